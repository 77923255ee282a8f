"""`python -m benchmarks.accelerator --minutes=9 --out=DIR`: measures one device.

Runs the parts of `parts.list_parts` one after another, each in a separate process,
until the minutes are over. DIR/results.json is written after each part, and the same
command continues where it stopped. DIR/log.txt has the output of the processes. On a
CPU the shapes are small: this shows that it works, but nothing about speed.
"""

import argparse
import pathlib
import sys
import time
from collections.abc import Sequence

from benchmarks.accelerator.parts import MACHINE, list_parts
from benchmarks.accelerator.process import Launcher
from benchmarks.accelerator.results import Results
from benchmarks.accelerator.schedule import Schedule
from benchmarks.accelerator.tables import format_results


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a part failed."""
    flags = _parse(argv)
    flags.out.mkdir(parents=True, exist_ok=True)
    results = Results(flags.out)
    if not flags.table:
        if flags.retry:
            results.forget_failures()
        _run(flags, results)
    print(format_results(results.parts), end="", flush=True)
    statuses = [part["status"] for part in results.parts.values()]
    return int("failed" in statuses)


def _run(flags: argparse.Namespace, results: Results) -> None:
    """Measures the device, then runs the parts that its platform supports."""
    end = time.monotonic() + 60 * flags.minutes
    cache = (flags.cache or flags.out / "cache").resolve()

    def run(parts: list, worker_flags: list[str]) -> None:
        Schedule(
            results,
            budget_s=end - time.monotonic(),
            launch=Launcher(flags.out, cache=cache, flags=worker_flags, say=_say),
            clock=time.monotonic,
            say=_say,
        ).run(parts)

    run([MACHINE], [])
    machine = results.parts["machine"].get("result")
    if machine is None:
        _say(f"the device could not be measured; see {flags.out / 'log.txt'}")
        return
    small = flags.small or machine["platform"] == "cpu"
    worker_flags = [f"--platform={machine['platform']}", f"--model={flags.model}"]
    run(
        list_parts(platform=machine["platform"], small=small, model=flags.model),
        [*worker_flags, *(["--small"] if small else [])],
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.accelerator", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder")
    parser.add_argument(
        "--minutes", type=float, default=9.0, help="time limit for all parts"
    )
    parser.add_argument(
        "--cache", type=pathlib.Path, help="compiled programs; default OUT/cache"
    )
    parser.add_argument("--small", action="store_true", help="small shapes")
    parser.add_argument("--model", default="", help="SmolLM2, a Hugging Face directory")
    parser.add_argument("--retry", action="store_true", help="run failed parts again")
    parser.add_argument("--table", action="store_true", help="only print the table")
    flags = parser.parse_args(argv)
    flags.model = str(pathlib.Path(flags.model).resolve()) if flags.model else ""
    return flags


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
