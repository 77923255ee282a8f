"""Prints how many answers per second the verifiers grade; needs no JAX device.

    python -m benchmarks.verdicts [--workers=2] [--items=20000] > verdicts.jsonl

Answers look like GSM8K's worked solutions and end in "#### N". Half of them are wrong,
and no two are equal. `math_latex` ends in a boxed fraction, which needs a grammar.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Sequence

from job_jax.flags import Flags, parse_flags
from rlvr_jax.verifiers.math_pool import Item, MathPool

_WORKED_SOLUTION = (
    "She sold {n}/2 = {half} clips in May, half as many as in April.\n"
    "Altogether, in April and May, she sold {n} + {half} = {total} clips.\n"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerdictsFlags(Flags):
    """The flags of this command."""

    workers: int = 2  # worker processes
    items: int = 20_000  # answers of each kind


def main(argv: Sequence[str]) -> int:
    """Prints one JSON line per kind of answer and returns 0."""
    flags, _ = parse_flags(argv, VerdictsFlags, usage=__doc__)
    kinds = {
        "math": _number_items("math", flags.items),
        "numeric": _number_items("numeric", flags.items),
        "math_latex": _fraction_items(flags.items // 20),
    }
    with MathPool(flags.workers, timeout_s=60.0) as verifier:
        verifier.grade_all([Item("1", "1")] * 2 * flags.workers)  # starts the workers
        for name, items in kinds.items():
            start = time.perf_counter()
            verdicts = verifier.grade_all(items)
            seconds = time.perf_counter() - start
            right = sum(verdict.status == "correct" for verdict in verdicts)
            if right != (len(items) + 1) // 2:
                raise RuntimeError(f"{name}: {right} of {len(items)} graded correct")
            measured = {
                "answers": name,
                "items": len(items),
                "workers": flags.workers,
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
                "items_per_s": len(items) / seconds,
            }
            print(json.dumps(measured), flush=True)
    return 0


def _number_items(kind: str, count: int) -> list[Item]:
    items = []
    for i in range(count):
        worked = _WORKED_SOLUTION.format(n=2 * i, half=i, total=3 * i)
        items.append(Item(str(3 * i), f"{worked}#### {3 * i + i % 2}", verifier=kind))
    return items


def _fraction_items(count: int) -> list[Item]:
    return [
        Item(rf"\frac{{{i}}}{{7}}", rf"so \boxed{{\frac{{{2 * i}}}{{{14 + i % 2}}}}}")
        for i in range(2, count + 2)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
