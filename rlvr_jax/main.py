"""`python -m rlvr_jax.main --config=FILE --workdir=DIR [--config.a.b=v] [--stage=S]`.

Exit code 0: done; 1: failed; 2: bad usage or config; 75: a signal stopped the run after
it saved a checkpoint; run the command again to resume.
"""

import importlib
import sys
from collections.abc import Sequence

from job_jax.command import run_command
from job_jax.working import working
from rlvr_jax.run.cli import Invocation, parse


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    asked: list[Invocation] = []
    if code := run_command(lambda: asked.append(parse(argv)), ()):
        return code
    with working("loading the libraries"):
        pipeline = importlib.import_module("rlvr_jax.pipeline")
    return run_command(lambda: pipeline.execute(asked[0]), pipeline.EXPECTED_ERRORS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
