"""Runs the tests of a mutant in a copy of the tree, with the program cache of the gate.

The everyday tests come first, and the first failure ends the trial. Only if they pass
do the slow ones run.
"""

import compileall
import dataclasses
import os
import pathlib
import py_compile
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from xml.etree import ElementTree

from tests.mutants.mutant import Mutant

ROOT = pathlib.Path(__file__).parents[2]
EVERYDAY = "not slow and not exhaustive and not live and not gpu"
SLOW = "slow and not exhaustive and not live and not gpu"
# As launch/test.sh sets them: programs compiled with other flags would not be found.
CACHE = "rlvr_jax/tests"
XLA_FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_collective_timeout_seconds=600",
    "--xla_cpu_collective_call_terminate_timeout_seconds=600",
)
_FAILED, _NO_TESTS, _TIMEOUT = 1, 5, 124
_SLOW_LIMIT_S = 900


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the tests ended: `code` is pytest's, or 124 if they ran past the limit."""

    code: int
    seconds: float
    text: str

    @property
    def is_kill(self) -> bool:
        """Returns whether a test failed. Tests that cannot be collected are no kill.

        pytest -x ends with 1 for both, so a test must be named.
        """
        return self.code == _FAILED and self.first_failure() is not None

    @property
    def passed(self) -> bool:
        """Returns whether no test failed; there may have been none to run."""
        return self.code in (0, _NO_TESTS)

    def first_failure(self) -> str | None:
        """Returns the name of the first test that failed, None if none is named."""
        found = re.search(r"^(?:FAILED|ERROR) (\S+?::.*?)(?: - |$)", self.text, re.M)
        return found[1] if found else None


def try_mutant(
    mutant: Mutant, tree: pathlib.Path, *, limit_s: float, has_slow_tests: bool
) -> Outcome:
    """Returns how the mutant's tests end in the tree, which is restored afterwards.

    `limit_s` is for the everyday tests. A slow test that fails must pass without the
    mutant, or it is no kill.
    """
    path = tree / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(before), encoding="utf-8")
    try:
        outcome = run_tests(tree, mutant.tests, EVERYDAY, limit_s=limit_s)
        if not (outcome.passed and has_slow_tests):
            return outcome
        slow = run_tests(tree, mutant.tests, SLOW, limit_s=_SLOW_LIMIT_S)
    finally:
        path.write_text(before, encoding="utf-8")
    slow = dataclasses.replace(slow, seconds=outcome.seconds + slow.seconds)
    if not slow.is_kill:
        return slow
    killer = slow.first_failure()
    if killer and run_tests(tree, [killer], SLOW, limit_s=_SLOW_LIMIT_S).code == 0:
        return slow
    return dataclasses.replace(slow, code=0, text=f"{killer} fails without the mutant")


def run_tests(
    tree: pathlib.Path,
    tests: Sequence[str],
    marks: str,
    *,
    limit_s: float,
    options: Sequence[str] = (),
) -> Outcome:
    """Returns how pytest ends in a tree; at most one test fails."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-rfE",
        "--tb=no",
        "-m",
        marks,
    ]
    started = time.monotonic()
    try:
        done = subprocess.run(
            [*command, *options, *tests],
            cwd=tree,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_s,
            env=environment(tree),
        )
    except subprocess.TimeoutExpired as error:
        return Outcome(_TIMEOUT, time.monotonic() - started, str(error.stdout))
    return Outcome(
        done.returncode, time.monotonic() - started, done.stdout + done.stderr
    )


def environment(tree: pathlib.Path) -> dict[str, str]:
    """Returns the variables of a run of tests: those of launch/test.sh, in this tree.

    What is set already is kept.
    """
    cache = os.environ.get("XDG_CACHE_HOME", str(pathlib.Path.home() / ".cache"))
    return {
        "JAX_COMPILATION_CACHE_DIR": f"{cache}/{CACHE}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": " ".join(XLA_FLAGS),
        **os.environ,
        # The copy has bytecode that is checked by content. Nothing else is written: a
        # file that changes within a second and keeps its size would be mistaken for
        # its bytecode.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(tree),
    }


def copy_tree(target: pathlib.Path) -> pathlib.Path:
    """Returns a copy of what git knows or would add, as it is now."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    compileall.compile_dir(
        target,
        quiet=2,
        invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH,
    )
    return target


def seconds_by_file(report: pathlib.Path) -> dict[str, float]:
    """Returns the seconds of each test file, from a report in JUnit's XML."""
    seconds: dict[str, float] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").replace(".", "/") + ".py"
        seconds[file] = seconds.get(file, 0.0) + float(case.get("time", 0.0))
    return seconds
