"""Prints how many programs per second the jail runs; needs no JAX device.

    python -m benchmarks.programs [--workers=2] [--items=1000] > programs.jsonl

The programs come from the task of `configs/code.py`, with six unit tests each; no two
are equal.
"""

import json
import os
import sys
import time
from collections.abc import Sequence

from absl import flags

from rlvr_jax.config import VerifierConfig
from rlvr_jax.tasks import ProgramsTask
from rlvr_jax.verifiers.built_in.code import Code


def main(argv: Sequence[str]) -> int:
    """Prints the JSON line and returns 0."""
    values = flags.FlagValues()
    flags.DEFINE_integer("workers", 2, "programs at a time", flag_values=values)
    flags.DEFINE_integer("items", 1000, "programs", flag_values=values)
    values(["programs", *argv])
    source = ProgramsTask(error_rate=0.0).problems("train", seed=0)
    problems = [source[i] for i in range(values.items)]
    items = [(p, f"{p.solution} # {i}") for i, p in enumerate(problems)]
    with Code(VerifierConfig(workers=values.workers, code_cpu_s=20)) as verifier:
        verifier.check_ready()
        start = time.perf_counter()
        verdicts = verifier.grade_all(items)
        seconds = time.perf_counter() - start
    right = sum(verdict.status == "correct" for verdict in verdicts)
    if right != len(items):
        raise RuntimeError(f"only {right} of {len(items)} correct programs passed")
    measured = {
        "items": len(items),
        "workers": values.workers,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "programs_per_s": len(items) / seconds,
    }
    print(json.dumps(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
