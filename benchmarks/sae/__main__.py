"""`python -m benchmarks.sae [--sizes=D256,D1536 --peers=... --peer_python=PATH]`.

Works like `benchmarks.run`: processes, turns, medians, JSON lines and a table.
"""

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.run import format_table, measure_machine, measure_sides, print_json
from benchmarks.sae.job import JOBS

_PEERS = {"saelens": "saelens", "dictionary_learning": "dictionaries"}
_COLUMNS = {
    "pairs/s": ("update_tokens_per_s", "{:,.0f}"),
    "step s": ("update_s", "{:.3f}"),
    "first step s": ("first_step_s", "{:.1f}"),
    "FLOP/s, dense": ("dense_mfu", "{:.0%}"),
    "peak RSS": ("peak_rss_mib", "{:,.0f} MiB"),
    "step time": ("update_times_ours", "{:.2f} x ours"),
}


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sae", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--sizes", default="D256", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--peers", default="", help=f"of {', '.join(_PEERS)}")
    parser.add_argument("--peer_python", default="", help="python of the peers")
    parser.add_argument("--repeats", type=int, default=7, help="rounds")
    flags = parser.parse_args(argv)
    sizes, peers = flags.sizes.split(","), [p for p in flags.peers.split(",") if p]
    for names, choices in ((sizes, JOBS), (peers, _PEERS)):
        for name in set(names) - set(choices):
            parser.error(f"unknown {name!r}; choose from {', '.join(choices)}")
    if peers and not flags.peer_python:
        parser.error("peers need --peer_python; benchmarks/README.md says how")
    commands = {
        f"ours {kind}": [sys.executable, "-m", "benchmarks.sae.ours", kind]
        for kind in ("batchtopk", "temporal")
    } | {
        peer: [flags.peer_python, "-m", f"benchmarks.sae.{_PEERS[peer]}"]
        for peer in peers
    }
    measured = measure_machine()
    print_json(measured)
    rows = []
    for size in sizes:
        job = JOBS[size]
        print_json({"size": size, "job": dataclasses.asdict(job), **job.matmul_flops()})
        for result in measure_sides(job, commands, flags.repeats):
            rows.append(
                {"size": size, **result, **_utilization(result, size, measured)}
            )
            print_json(rows[-1])
    print(format_table(rows, _COLUMNS), file=sys.stderr)
    return 0


def _utilization(
    result: Mapping[str, Any], size: str, measured: Mapping[str, Any]
) -> dict[str, float]:
    """Returns the dense products' FLOP/s divided by the machine's peak.

    Sides that skip products with zeros can exceed 1.
    """
    dense = JOBS[size].matmul_flops()["dense"]
    return {"dense_mfu": dense / result["update_s"] / measured["peak_flops"]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
