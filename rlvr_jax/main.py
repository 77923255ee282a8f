"""`python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v] [--stage=S]`.

Exit code 0: done; 1: failed; 2: bad usage or config; 75: a signal stopped the run after
it saved a checkpoint; run the command again to resume.
"""

import gc
import importlib
import sys
from collections.abc import Sequence
from typing import Any

from job_jax.command import run_command
from job_jax.working import working
from rlvr_jax.run.cli import Invocation, parse


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    asked: list[Invocation] = []
    if code := run_command(lambda: asked.append(parse(argv)), ()):
        return code
    with working("loading the libraries"):
        pipeline = _load("rlvr_jax.pipeline")
    return run_command(lambda: pipeline.execute(asked[0]), pipeline.EXPECTED_ERRORS)


def _load(name: str) -> Any:
    """Returns a module. Later garbage collections do not visit what it loads.

    Visiting it took some 5 % of the processor time of a run of configs/smoke.py.
    """
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        module = importlib.import_module(name)
        gc.freeze()
    finally:
        gc.enable()
    return module


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
