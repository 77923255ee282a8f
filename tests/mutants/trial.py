"""Runs the tests of a mutant in a copy of the tree, with the test gate's program cache.

The everyday tests come first, and the first failure ends the trial. The slow tests run
only if they pass.
"""

import compileall
import dataclasses
import json
import os
import pathlib
import py_compile
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.mutants.mutant import Mutant

ROOT = pathlib.Path(__file__).parents[2]
EVERYDAY = "not slow and not exhaustive and not live and not gpu"
SLOW = "slow and not exhaustive and not live and not gpu"
# As in launch/test.sh: the cache has no programs compiled with other flags.
CACHE = "rlvr_jax/tests"
XLA_FLAGS = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_collective_timeout_seconds=600",
    "--xla_cpu_collective_call_terminate_timeout_seconds=600",
)
# Libraries that are slow to import. None of them imports the program.
LIBRARIES = (
    *("beartype", "flax.nnx", "grain", "jax", "jaxtyping", "matplotlib", "optax"),
    *("orbax.checkpoint", "pyarrow", "pytest", "qwix", "scipy.stats"),
    "jax.experimental.pallas.ops.tpu.splash_attention",
)
_PASSED, _FAILED, _NO_TESTS = 0, 1, 5
_SLOW_LIMIT_S = 900
_OPTIONS = (
    *("-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"),
    "--assert=plain",  # explaining how two long lists differ can take minutes
    # Libraries that are pytest plugins are imported before pytest looks for them.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How the tests ended: `code` is pytest's, or 124 if they ran past the limit."""

    code: int
    seconds: float
    text: str

    @property
    def is_kill(self) -> bool:
        """Returns whether a test failed. An error in collecting tests is not a kill.

        pytest -x ends with 1 for both, so the output must also name a failed test.
        """
        return self.code == _FAILED and self.first_failure() is not None

    @property
    def passed(self) -> bool:
        """Returns whether no test failed; perhaps no test ran at all."""
        return self.code in (_PASSED, _NO_TESTS)

    def first_failure(self) -> str | None:
        """Returns the name of the first test that failed, None if none is named."""
        found = re.search(r"^(?:FAILED|ERROR) (\S+?::.*?)(?: - |$)", self.text, re.M)
        return found[1] if found else None


class Runner:
    """A context manager that runs tests in one tree.

    Its process has already imported the libraries.
    """

    def __init__(self, tree: pathlib.Path, libraries: Sequence[str] = LIBRARIES):
        self.tree = tree
        script = pathlib.Path(__file__).with_name("preloaded.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", script, *libraries],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tree,
            env=environment(tree),
        )

    def run(self, tests: Sequence[str], marks: str, *, limit_s: float) -> Outcome:
        """Returns how pytest ends; at most one test fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        arguments = [*_OPTIONS, "-m", marks, *tests]
        request = json.dumps({"arguments": arguments, "limit_s": limit_s})
        print(request, file=self._process.stdin, flush=True)
        reply = self._process.stdout.readline()
        if not reply:
            raise RuntimeError(f"the process that runs the tests in {self.tree} ended")
        return Outcome(**json.loads(reply))

    def __enter__(self) -> Self:
        """Returns the runner itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process."""
        self._process.terminate()
        self._process.communicate()


def try_mutant(
    mutant: Mutant, runner: Runner, *, limit_s: float, has_slow_tests: bool
) -> Outcome:
    """Returns how the mutant's tests end in the runner's tree, which is then restored.

    `limit_s` is for the everyday tests. If a slow test fails, it must pass without the
    mutant to count as a kill.
    """
    path = runner.tree / mutant.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(before), encoding="utf-8")
    try:
        outcome = runner.run(mutant.tests, EVERYDAY, limit_s=limit_s)
        if not (outcome.passed and has_slow_tests):
            return outcome
        slow = runner.run(mutant.tests, SLOW, limit_s=_SLOW_LIMIT_S)
    finally:
        path.write_text(before, encoding="utf-8")
    slow = dataclasses.replace(slow, seconds=outcome.seconds + slow.seconds)
    if not slow.is_kill:
        return slow
    killer = slow.first_failure()
    if runner.run([killer], SLOW, limit_s=_SLOW_LIMIT_S).code == _PASSED:
        return slow
    return dataclasses.replace(
        slow, code=_PASSED, text=f"{killer} fails without the mutant"
    )


def environment(tree: pathlib.Path) -> dict[str, str]:
    """Returns the environment variables of a test run, as launch/test.sh sets them.

    Variables that are already set keep their values.
    """
    cache = os.environ.get("XDG_CACHE_HOME", str(pathlib.Path.home() / ".cache"))
    return {
        "JAX_COMPILATION_CACHE_DIR": f"{cache}/{CACHE}",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "XLA_FLAGS": " ".join(XLA_FLAGS),
        **os.environ,
        # The copy has bytecode that is checked by content. New bytecode is not written:
        # if a file changed within a second and kept its size, Python would run its old
        # bytecode.
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(tree),
    }


def copy_tree(target: pathlib.Path) -> pathlib.Path:
    """Returns a copy of the files that git tracks or would add, as they are now."""
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
