"""Prints how many programs per second the jail runs; needs no JAX device.

    python -m benchmarks.programs [--workers=2] [--items=1000] > programs.jsonl

The programs come from the task of `configs/code.py`, with six unit tests each; no two
are equal.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence

from job_jax.flags import Flags, parse_flags
from rlvr_jax.config import VerifierConfig
from rlvr_jax.tasks import ProgramsTask
from rlvr_jax.verifiers.built_in.code import Code


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProgramsFlags(Flags):
    """The flags of this command."""

    workers: int = 2  # programs at a time
    items: int = 1000  # programs


def main(argv: Sequence[str]) -> int:
    """Prints the JSON line and returns 0."""
    flags, _ = parse_flags(argv, ProgramsFlags, usage=__doc__)
    source = ProgramsTask(error_rate=0.0).problems("train", seed=0)
    problems = [source[i] for i in range(flags.items)]
    items = [(p, f"{p.solution} # {i}") for i, p in enumerate(problems)]
    with Code(VerifierConfig(workers=flags.workers, code_cpu_s=20)) as verifier:
        verifier.check_ready()
        start = time.perf_counter()
        verdicts = verifier.grade_batch(items)
        seconds = time.perf_counter() - start
    right = sum(verdict.status == "correct" for verdict in verdicts)
    if right != len(items):
        raise RuntimeError(f"only {right} of {len(items)} correct programs passed")
    measured = {
        "items": len(items),
        "workers": flags.workers,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "programs_per_s": len(items) / seconds,
    }
    print(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
