"""Programs against tests: verdicts, limits, what a program sees, and how it ends."""

import dataclasses
import os
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlvr_jax.sandbox import system_calls
from rlvr_jax.sandbox.pool import Limits, Run, RunResult, Sandbox, SandboxError
from rlvr_jax.sandbox.zygote import MODULES

REPOSITORY = Path(__file__).parents[2]
LIMITS = Limits(cpu_s=1, wall_s=30, memory_mb=256)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(LIMITS, workers=2) as opened:
        yield opened


def outcome(sandbox: Sandbox, program: str, tests: str) -> RunResult:
    return sandbox.run_all([Run(program, tests, ("f",))])[0]


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def f(a, b=1): return a + b", "assert f(1) == 2\nassert f(1, b=3) == 4"),
        (
            "def f(x): return x",
            "assert f([(1, {2}), {3: None}]) == [(1, {2}), {3: None}]",
        ),
        (
            "def f(x): return (i * i for i in range(x))",
            "assert list(f(3)) == [0, 1, 4]",
        ),
        ("f = lambda x: x / 3", "import math\nassert math.isclose(f(1), 1 / 3)"),
        (
            "def f(x): raise ValueError(x)",
            "try: f(1)\nexcept ValueError: pass\nelse: f",
        ),
        (
            "import collections\ndef f(x): return collections.Counter(x)",
            "assert f('aa')['a'] == 2",
        ),
        (
            "k = 0\ndef f():\n global k\n k += 1\n return k",
            "assert [f(), f()] == [1, 2]",
        ),
        ("def f(x): return x", "def check(g):\n  assert g(1) == 1\ncheck(f)"),
    ],
)
def test_a_correct_program_passes(sandbox, program, tests):
    assert outcome(sandbox, program, tests) == RunResult(True)


@pytest.mark.parametrize(
    ("program", "tests", "reason"),
    [
        (
            "def f(x): return x",
            "assert f(1) == 1\nassert f(2) == 3",
            "AssertionError at 'assert f(2) == 3'; f returned 2",
        ),
        (
            "def f(x): return 1 / 0",
            "assert f(1) == 1",
            "ZeroDivisionError: division by zero at 'assert f(1) == 1'",
        ),
        ("def g(x): return x", "f(1)", "NameError: the program does not define 'f' at"),
        ("def f(x): return 1", "f(1, 2)", "TypeError: f() takes 1 positional"),
        ("def f(:", "f(1)", "SyntaxError: invalid syntax (<program>, line 1)"),
        (
            "def f(): return object()",
            "assert f() == 1",
            "AssertionError at 'assert f() == 1'; f returned <an object of the progra",
        ),
        (
            "def f(x): return 1",
            "f(print)",
            "MessageError: builtin_function_or_method is",
        ),
        ("import os\ndef f(): os._exit(0)", "f()", "the program ended"),
        # A bare except cannot hide that the program is gone.
        (
            "import os\ndef f(): os._exit(0)",
            "try: f()\nexcept: pass",
            "the program ended",
        ),
        ("def f(): return 1", "assert f() == 1\nraise SystemExit", "SystemExit at"),
        ("def f():\n while True: pass", "f()", "over the limit of 1 s of CPU"),
        ("def f(): return len([0] * 10**9)", "f()", "MemoryError at 'f()'"),
        ("import ctypes\ndef f(): ctypes.string_at(1)", "f()", "ended by SIGSEGV"),
        ("def f(): return 'x' * 10**7", "f()", "MessageError: 10000013 bytes in one"),
    ],
)
def test_one_that_does_not_fails_and_the_reason_says_why(
    sandbox, program, tests, reason
):
    found = outcome(sandbox, program, tests)
    assert found.passed is False
    assert reason in found.reason


def test_one_that_waits_is_over_the_limit_of_the_clock():
    program = "import threading\ndef f(): threading.Semaphore(0).acquire()"
    with Sandbox(dataclasses.replace(LIMITS, wall_s=1), workers=1) as sandbox:
        found = outcome(sandbox, program, "f()")
    assert found == RunResult(False, "over the limit of 1 s")


def test_equality_that_is_overwritten_does_not_reach_the_tests(sandbox):
    program = """
class Same(int):
    __eq__ = __le__ = __ge__ = lambda *a: True
    __hash__ = int.__hash__
def f(): return Same(1)
"""
    assert outcome(sandbox, program, "assert f() == 1") == RunResult(True)
    assert outcome(sandbox, program, "assert f() == 2").passed is False


NODES = """
class Node:
    left = right = None
    def __init__(self, value): self.value = value
    def children(self): return [n for n in (self.left, self.right) if n]
    def total(self, by=1):
        return by * self.value + sum(n.total(by) for n in self.children())
def double(node): return Node(2 * node.value)
"""


def test_objects_of_the_programs_classes_are_read_set_and_called(sandbox):
    tests = """
root = Node(1)
root.left = Node(2)
root.left.right = Node(4)
assert root.total() == 7 and root.total(by=2) == 14
assert [double(node).value for node in root.children()] == [4]
assert root.right is None and root.left.right.value == 4
"""
    names = ("Node", "double")
    [passed] = sandbox.run_all([Run(NODES, tests, names)])
    assert passed == RunResult(True)
    [missed] = sandbox.run_all([Run(NODES, f"{tests}assert root.depth == 3", names)])
    assert missed.reason.startswith("AttributeError: 'Node' object has no attribute")


@pytest.mark.parametrize(
    "tests",
    [
        "assert f() == 2",
        "assert 2 == f()",
        "assert f() in [2]",
        "assert f() == f()",
        "assert f() is None",
        "assert f() <= 2",
        "assert len(f()) == 2",
        "assert list(f()) == [2]",
        "assert isinstance(f(), int)",
        "assert abs(f() - 2) < 1",
        "assert str(f()) == '2'",
        "assert {2: 1}[f()]",
    ],
)
def test_an_object_equals_nothing_even_if_its_class_disagrees(sandbox, tests):
    program = """
def always(*args, **kwargs): return True
class Two:
    __eq__ = __ne__ = __le__ = __ge__ = __lt__ = __gt__ = __contains__ = always
    __bool__ = always
    def __len__(self): return 2
    def __hash__(self): return hash(2)
    def __abs__(self): return 0
    def __sub__(self, other): return 0
    def __str__(self): return "2"
    def __int__(self): return 2
def f(): return Two()
"""
    assert outcome(sandbox, program, tests).passed is False


def test_only_named_functions_are_the_programs(sandbox):
    """A program that redefines `abs` or `all` does not affect the tests."""
    program = "abs = all = len = lambda *a: 0\ndef f(x): return 7"
    found = outcome(sandbox, program, "assert abs(f(1) - 3) < 1 and len([]) == 0")
    assert found.passed is False


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("dict(__import__('os').environ)", {}),
        ("__import__('os').getcwd()", PermissionError),
        ("__import__('sys').path", []),
        ("[fd for fd in range(64) if is_open(fd)]", [0, 1, 2, 3]),
        ("__import__('sys').stdin.read()", ""),
        ("__import__('numpy')", ModuleNotFoundError),
    ],
)
def test_a_program_sees_nothing_of_the_machine(sandbox, expression, value):
    program = f"""
import errno, os
def is_open(fd):
    try: os.lseek(fd, 0, os.SEEK_CUR)
    except OSError as error: return error.errno != errno.EBADF
    return True
def f(): return {expression}
"""
    tests = f"assert f() == {value!r}"
    if isinstance(value, type):
        tests = f"try: f()\nexcept {value.__name__}: pass\nelse: raise ValueError"
    assert outcome(sandbox, program, tests) == RunResult(True)


def test_what_may_be_imported_can_be(sandbox):
    names = "\n".join(f"import {name}" for name in MODULES)
    program = f"{names}\ndef f(): return datetime.datetime.strptime('1', '%d').day"
    assert outcome(sandbox, program, f"{names}\nassert f() == 1") == RunResult(True)


def test_every_run_has_its_own_outcome_in_order_and_equal_ones_share_it(sandbox):
    runs = [
        Run(f"def f(): return {i % 7}", f"assert f() == {i % 2}", ("f",))
        for i in range(30)
    ]
    assert [o.passed for o in sandbox.run_all(runs)] == [
        i % 7 == i % 2 for i in range(30)
    ]
    program = "import random\ndef f(): return random.SystemRandom().random()"
    one = Run(program, "assert f() < 0", ("f",))
    first, second = sandbox.run_all([one, one])
    assert first == second
    assert first.reason.startswith("AssertionError")
    assert first != sandbox.run_all([one])[0]  # it was random


def test_a_program_draws_the_same_and_orders_sets_alike_in_every_jail():
    program = "import random\ndef f(): return random.random(), list({'a', 'b', 'c'})"
    run = Run(program, "assert f() is None", ("f",))
    found = []
    for _ in range(2):
        with Sandbox(LIMITS, workers=1) as jail:
            found += jail.run_all([run])
    assert "f returned (0." in found[0].reason
    assert found[0] == found[1]


def test_an_exception_cannot_end_a_loop_of_the_tests(sandbox):
    program = "def f(x): raise StopIteration"
    found = outcome(sandbox, program, "assert all(map(lambda x: f(x) == x, [1, 2]))")
    assert found.passed is False


def test_a_call_that_is_interrupted_leaves_nothing_to_the_next(monkeypatch):
    run = Run("def f(): return 1", "assert f() == 1", ("f",))
    with Sandbox(LIMITS, workers=1) as sandbox:
        assert sandbox.run_all([run]) == [RunResult(True)]
        with monkeypatch.context() as patched:
            patched.setattr(sandbox._zygote, "receive", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                sandbox.run_all([run])
        assert sandbox.run_all([run]) == [RunResult(True)]


def _interrupt():
    raise KeyboardInterrupt


def test_texts_that_are_too_long_are_refused_by_themselves(sandbox):
    fine = Run("def f(): return 1", "assert f() == 1", ("f",))
    long = fine._replace(program=fine.program + " " * 100_000)
    tests = fine._replace(tests=fine.tests + " " * 400_000)
    assert sandbox.run_all([long, fine, tests]) == [
        RunResult(False, "a program with over 100000 characters"),
        RunResult(True),
        RunResult(None, "tests with over 400000 characters"),
    ]


def test_a_jail_that_is_killed_is_nobodys_fault_and_another_is_started():
    run = Run("def f(): return 1", "assert f() == 1", ("f",))
    with Sandbox(LIMITS, workers=1) as sandbox:
        assert sandbox.run_all([run]) == [RunResult(True)]
        os.kill(sandbox._zygote.process.pid, signal.SIGKILL)
        sandbox._zygote.process.wait()
        first, second = sandbox.run_all([run, run._replace(tests="assert f() == 2")])
        assert first.passed is None
        assert first.reason.startswith("the jail ended")
        assert second.passed is False
        assert sandbox.run_all([run]) == [RunResult(True)]


_ENDLESS = """
import threading
from rlvr_jax.sandbox.pool import Limits, Run, Sandbox
sandbox = Sandbox(Limits(cpu_s=1000, wall_s=1000, memory_mb=256), workers=1)
sandbox.run_all([Run("def f(): return 1", "f()", ("f",))])
endless = Run("def f():\\n while True: pass", "f()", ("f",))
threading.Thread(target=sandbox.run_all, args=([endless],)).start()
print(sandbox._zygote.process.pid, flush=True)
"""


def test_nothing_outlives_a_trainer_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", _ENDLESS], cwd=REPOSITORY, stdout=subprocess.PIPE
    ) as trainer:
        jail = int(trainer.stdout.readline())
        watched = os.pidfd_open(jail)
        trainer.kill()
    with os.fdopen(watched):
        ended, _, _ = select.select([watched], [], [], 60)
    assert ended  # and, with process 1 of its namespace, everything in it


_REFUSING = """
import sys
from rlvr_jax.sandbox import system_calls
from rlvr_jax.sandbox.pool import Limits, Run, Sandbox, SandboxError
system_calls.install_filter(bytes.fromhex(sys.argv[1]))
runs = [Run("def f(): return 1", "assert f() == 1", ("f",)),
        Run("def f(): return open('/etc/passwd').read()", "f()", ("f",)),
        Run("import os\\ndef f(): return os.fork()", "f()", ("f",))]
for _ in range(2):
    with Sandbox(Limits(cpu_s=1, wall_s=5, memory_mb=256), workers=1) as sandbox:
        print([o.passed for o in sandbox.run_all(runs)])
"""


def _run_on_a_kernel_without(*numbers: tuple[int, int]) -> tuple[str, str]:
    """Returns the output of a kernel without these system calls (by machine)."""
    column = 0 if os.uname().machine == "x86_64" else 1
    code = struct.pack("HBBI", 0x20, 0, 0, 0)
    for number in numbers:
        code += struct.pack("HBBI", 0x15, 0, 1, number[column])
        code += struct.pack("HBBI", 0x06, 0, 0, 0x00050000 | 1)
    code += struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    done = subprocess.run(
        [sys.executable, "-c", _REFUSING, code.hex()],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout, done.stderr


def test_a_wall_that_the_kernel_lacks_is_said_once_and_the_others_hold():
    printed, said = _run_on_a_kernel_without((272, 97), (444, 444))
    assert printed == "[True, False, False]\n" * 2
    lines = said.splitlines()
    assert len(lines) == 2
    assert "sandbox: this kernel refuses namespaces (Operation not permitted)" in said
    assert "sandbox: this kernel refuses Landlock (Operation not permitted)" in said


def test_without_the_filter_nothing_is_run():
    printed, said = _run_on_a_kernel_without((157, 167))
    assert printed == ""
    assert "SandboxError: the jail " in said


def test_another_machine_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(system_calls.platform, "system", lambda: "Darwin")
    with Sandbox(LIMITS, 1) as sandbox, pytest.raises(SandboxError, match="is Darwin"):
        sandbox.run_all([Run("", "", ())])
