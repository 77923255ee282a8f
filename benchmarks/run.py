"""`python -m benchmarks.run [--sizes=3M,24M] [--peers=hf,trl --peer_python=PATH]`.

Every side is a separate process, which warms up before anything counts. Then the sides
take turns, one step each, for `--repeats` rounds, so that other load on the machine
affects all of them. Figures are medians over the rounds. Standard output gets JSON
lines, which `benchmarks.compare` reads; standard error gets progress and a table.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.channel import ROOT, Worker, environment
from benchmarks.counts import (
    count_parameters,
    decode_bytes,
    expected_tokens,
    forward_flops,
    length_law,
    update_flops,
)
from benchmarks.figures import (
    LengthLaw,
    Step,
    check_equal_tokens,
    median_interval,
    ratios_to_ours,
    summarize_steps,
)
from benchmarks.job import JOBS, Job
from job_jax.machine import cpu_name

Columns = Mapping[str, tuple[str, str]]

_OURS = [sys.executable, "-m", "benchmarks.ours"]
_PEERS = {
    "hf": {
        "hf float32": ["benchmarks.hf_generate", "float32"],
        "hf bfloat16": ["benchmarks.hf_generate", "bfloat16"],
    },
    "trl": {"trl float32": ["benchmarks.trl_grpo"]},
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The command line's options."""

    sizes: list[str]
    peers: list[str]
    peer_python: str
    repeats: int

    def commands(self) -> dict[str, list[str]]:
        """Returns the command that starts each side's worker, ours first."""
        ours = {"ours float32": _OURS}
        theirs = {
            side: [self.peer_python, "-m", *command]
            for peer in self.peers
            for side, command in _PEERS[peer].items()
        }
        return ours | theirs


def parse_arguments(argv: Sequence[str]) -> Options:
    """Returns the options of a command line; exits with 2 if one is unknown."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "--sizes",
        default="3M,3M-geometric,3M-vocab8192,24M,24M-geometric",
        help=f"of {', '.join(JOBS)}",
    )
    parser.add_argument("--peers", default="", help=f"of {', '.join(_PEERS)}")
    parser.add_argument(
        "--peer_python", default="", help="python of make_peer_env.sh's environment"
    )
    parser.add_argument(
        "--repeats", type=int, default=7, help="rounds; do not quote results under 5"
    )
    parser.add_argument(
        "--quick", action="store_true", help="3M and 5 rounds: a minute, two with peers"
    )
    flags = parser.parse_args(argv)
    sizes, peers = _split_names(flags.sizes), _split_names(flags.peers)
    for names, choices in ((sizes, JOBS), (peers, _PEERS)):
        for name in set(names) - set(choices):
            parser.error(f"unknown {name!r}; choose from {', '.join(choices)}")
    if peers and not flags.peer_python:
        parser.error("peers need --peer_python; benchmarks/make_peer_env.sh makes it")
    if flags.repeats < 1:
        parser.error(f"--repeats={flags.repeats} measures nothing; give at least 1")
    return Options(
        sizes=["3M"] if flags.quick else sizes,
        peers=peers,
        peer_python=flags.peer_python,
        repeats=5 if flags.quick else flags.repeats,
    )


def _split_names(listed: str) -> list[str]:
    return [name for name in listed.split(",") if name]


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    options = parse_arguments(argv)
    measured = measure_machine()
    print_json(measured)
    rows = []
    for size in options.sizes:
        work = _count_work(size, JOBS[size])
        print_json(work)
        for result in _measure_job(JOBS[size], options):
            rows.append(
                {"size": size, **result, **_utilization(result, work, measured)}
            )
            print_json(rows[-1])
    print(format_table(rows), file=sys.stderr)
    return 0


def _measure_job(job: Job, options: Options) -> list[dict[str, Any]]:
    """Returns each side's figures; ours include the first step of a second start."""
    with tempfile.TemporaryDirectory() as cache:
        results = measure_sides(
            job,
            options.commands(),
            options.repeats,
            cache=cache,
            law=length_law(job) if job.num_end_ids else None,
        )
        _log("starting ours again, with its programs already compiled")
        with Worker(_OURS, job, cache=cache) as worker:
            results[0]["first_step_cached_s"] = worker.facts["first_step_s"]
            worker.finish()
    return results


def measure_sides(
    job: object,
    commands: Mapping[str, Sequence[str]],
    repeats: int,
    *,
    cache: str | None = None,
    law: LengthLaw | None = None,
) -> list[dict[str, Any]]:
    """Returns each side's figures over `repeats` rounds of one step per side.

    `cache` is where compiled programs are stored; None means nowhere. Raises ValueError
    if steps differ in tokens, or, with a `law`, if a side's lengths do not follow it.
    """
    with contextlib.ExitStack() as stack:
        workers = {}
        for side, command in commands.items():
            _log(f"warming up {side}")
            workers[side] = stack.enter_context(Worker(command, job, cache=cache))
        steps: dict[str, list[Step]] = {side: [] for side in workers}
        for round_number in range(repeats):
            _log(f"round {round_number + 1} of {repeats}")
            for side, worker in workers.items():
                steps[side].append(worker.step())
        if law is None:
            check_equal_tokens([step for taken in steps.values() for step in taken])
        results = [
            {
                "side": side,
                **worker.facts,
                **summarize_steps(steps[side]),
                **({"lengths": law.summarize_lengths(steps[side])} if law else {}),
                **worker.finish(),
            }
            for side, worker in workers.items()
        ]
    ours = results[0]
    return [
        result
        | _compare_to_ours(result, ours, steps[result["side"]], steps[ours["side"]])
        for result in results
    ]


def _compare_to_ours(
    result: Mapping[str, Any],
    ours: Mapping[str, Any],
    steps: Sequence[Step],
    our_steps: Sequence[Step],
) -> dict[str, Any]:
    """Returns a side's figures divided by ours, with intervals over the rounds."""
    ratios = ratios_to_ours(steps, our_steps)
    once = ("first_step_s", "peak_rss_bytes")
    return {
        "times_ours": {
            **{part: statistics.median(values) for part, values in ratios.items()},
            **{name: result[name] / ours[name] for name in once if name in ours},
        },
        "times_ours_interval": {
            part: median_interval(values) for part, values in ratios.items()
        },
    }


def measure_machine() -> dict[str, Any]:
    """Returns the machine's description and its peaks."""
    _log("measuring the machine")
    measured = subprocess.run(
        [sys.executable, "-m", "benchmarks.machine"],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "commit": _commit(),
        "load": os.getloadavg()[0],  # above about 0.5, the machine is busy
        **json.loads(measured.stdout),
    }


def _commit() -> str:
    """Returns the commit, with "+" after it if tracked files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"


def _count_work(size: str, job: Job) -> dict[str, Any]:
    """Returns the job's counted work."""
    return {
        "size": size,
        "job": dataclasses.asdict(job),
        "parameters": count_parameters(job),
        "tokens": expected_tokens(job),
        "rollout_flops": forward_flops(job),
        "update_flops": update_flops(job),
        "decode_bytes": decode_bytes(job),
    }


def _utilization(
    result: Mapping[str, Any], work: Mapping[str, Any], machine: Mapping[str, Any]
) -> dict[str, float]:
    """Returns each part's necessary work per second as a share of the machine's peaks.

    The work and the seconds are for the job's expected tokens. Work and peaks are in
    float32, so a side in bfloat16 has no shares.
    """
    if not result["side"].endswith("float32"):
        return {}
    steps_per_s = {
        part: result[f"{part}_tokens_per_s"] / work["tokens"]
        for part in ("rollout", "update")
        if f"{part}_tokens_per_s" in result
    }
    read_per_s = work["decode_bytes"] * steps_per_s["rollout"]
    return {
        f"{part}_mfu": work[f"{part}_flops"] * steps_per_s[part] / machine["peak_flops"]
        for part in steps_per_s
    } | {"rollout_bandwidth_utilization": read_per_s / machine["bytes_per_s"]}


_COLUMNS: Columns = {
    "rollout tok/s": ("rollout_tokens_per_s", "{:,.0f}"),
    "update tok/s": ("update_tokens_per_s", "{:,.0f}"),
    "rollout s": ("rollout_s", "{:.3f}"),
    "grade s": ("verify_s", "{:.3f}"),
    "update s": ("update_s", "{:.3f}"),
    "step s": ("step_s", "{:.3f}"),
    "s / 1,000 tok": ("seconds_per_1k_tokens", "{:.3f}"),
    "first step s": ("first_step_s", "{:.1f}"),
    "first step s, cached": ("first_step_cached_s", "{:.1f}"),
    "rollout FLOP/s": ("rollout_mfu", "{:.1%}"),
    "rollout B/s": ("rollout_bandwidth_utilization", "{:.1%}"),
    "update FLOP/s": ("update_mfu", "{:.1%}"),
    "peak RSS": ("peak_rss_mib", "{:,.0f} MiB"),
    "rollout time": ("rollout_times_ours", "{:.2f} x ours"),
    "step time": ("step_times_ours", "{:.2f} x ours"),
    "peak memory": ("peak_rss_bytes_times_ours", "{:.2f} x ours"),
}


def format_table(rows: Sequence[Mapping[str, Any]], columns: Columns = _COLUMNS) -> str:
    """Returns the results as a Markdown table; `columns` is title -> (figure, form)."""
    lines = ["| size | side | " + " | ".join(columns) + " |"]
    lines.append("|---|---|" + "--:|" * len(columns))
    for row in rows:
        shown = {
            **row,
            "peak_rss_mib": row["peak_rss_bytes"] / 2**20,
            **{
                f"{name.removesuffix('_s')}_times_ours": ratio
                for name, ratio in row["times_ours"].items()
            },
        }
        values = [(shown.get(name), form) for name, form in columns.values()]
        cells = ["-" if value is None else form.format(value) for value, form in values]
        lines.append("| " + " | ".join([row["size"], row["side"], *cells]) + " |")
    return "\n".join(lines)


def print_json(record: Mapping[str, object]) -> None:
    """Prints a record as a line of the results."""
    print(json.dumps(record), flush=True)


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
