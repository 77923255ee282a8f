"""`python -m benchmarks.compare [NEW.jsonl ...] [--against=benchmarks/ratios.json]`.

Reports what became slower or faster than in a stored table of ratios. NEW is the output
of `benchmarks.run` and `benchmarks.sae`; default: standard input. Only ratios are
compared, a peer's time over ours in the same rounds, because seconds depend on the
machine and its load. A ratio has changed if the intervals of both runs, each 95 % over
its rounds, do not overlap. Exit code: 0 if nothing is slower, 1 if something is, 2 on
bad usage. `--store` instead replaces the table with NEW.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_STORED = pathlib.Path(__file__).with_name("ratios.json")
_MIN_ROUNDS = 5  # with fewer, an interval says too little
_MAX_LOAD = 0.5
# The compared figures; grading is not compared, because this reward costs nothing.
_FIGURES = {
    "rollout_s": "rollout",
    "update_s": "update",
    "step_s": "step",
    "first_step_s": "first step",
    "peak_rss_bytes": "peak memory",
}

# (job, side, figure)
Key = tuple[str, str, str]


class UsageError(ValueError):
    """There is nothing to compare; the message is for the user."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """A peer's figure divided by ours; no interval if it was only measured once."""

    ratio: float
    interval: tuple[float, float] | None
    rounds: int

    def __str__(self) -> str:
        if self.interval is None:
            return f"{self.ratio:.2f}"
        return f"{self.ratio:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """Ratios, with the machine, commit and versions they were measured with."""

    machine: Mapping[str, Any]
    commit: str
    versions: Mapping[str, str]
    ratios: Mapping[Key, Ratio]


def read_results(texts: Mapping[str, str]) -> Table:
    """Returns the ratios in the output of `benchmarks.run`, given as file name -> text.

    Raises UsageError if there are no results, or from several kinds of machine.
    """
    machine: dict[str, Any] = {}
    versions: dict[str, str] = {}
    ratios: dict[Key, Ratio] = {}
    for record in _read_records(texts):
        if "cpu" in record:
            if machine and _kind(machine) != _kind(record):
                raise UsageError("results of two kinds of machine; give only one kind")
            machine = record
        elif "times_ours" in record:
            versions |= record.get("versions", {})
            # Ratios of our own sides do not involve a peer.
            if not record["side"].startswith("ours"):
                ratios |= _ratios_of_side(record)
    if not machine or not ratios:
        raise UsageError("no results with a peer; run benchmarks.run with --peers")
    return Table(
        machine=machine, commit=machine["commit"], versions=versions, ratios=ratios
    )


def _read_records(texts: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            try:
                record = json.loads(line)
            except json.JSONDecodeError:
                record = None
            if not isinstance(record, dict):
                raise UsageError(f"{name}:{number}: not a JSON object")
            yield record


def _read_files(paths: Sequence[pathlib.Path]) -> dict[str, str]:
    """Returns the text of every file, or of standard input without files."""
    try:
        return {str(path): path.read_text() for path in paths} or {
            "standard input": sys.stdin.read()
        }
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}") from error


def _ratios_of_side(record: Mapping[str, Any]) -> dict[Key, Ratio]:
    intervals = record.get("times_ours_interval", {})
    return {
        (record["size"], record["side"], figure): Ratio(
            ratio=ratio,
            interval=tuple(intervals[figure]) if figure in intervals else None,
            rounds=record["repeats"],
        )
        for figure, ratio in record["times_ours"].items()
        if figure in _FIGURES
    }


def _kind(machine: Mapping[str, object]) -> str:
    return f"{machine['cpu']}, {machine['cores']} cores"


def read_table(path: pathlib.Path) -> Table:
    """Returns a stored table. Raises UsageError if it is missing or damaged."""
    if not path.exists():
        raise UsageError(f"{path} does not exist; --store writes it")
    try:
        stored = json.loads(path.read_text())
        ratios = {
            (found["job"], found["side"], found["figure"]): Ratio(
                ratio=found["ratio"],
                interval=tuple(found["interval"]) if found["interval"] else None,
                rounds=found["rounds"],
            )
            for found in stored["ratios"]
        }
        table = Table(**{**stored, "ratios": ratios})
        _kind(table.machine)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise UsageError(f"{path} is not a table of ratios: {error!r}") from error
    return table


def write_table(table: Table, path: pathlib.Path) -> None:
    """Writes a table as JSON, one ratio per line, without the machine's load."""
    head = {
        "machine": {name: table.machine[name] for name in ("cpu", "cores", "python")},
        "commit": table.commit,
        "versions": dict(table.versions),
    }
    lines = [
        json.dumps(
            {
                **dict(zip(("job", "side", "figure"), key, strict=True)),
                "ratio": round(ratio.ratio, 4),
                "interval": ratio.interval and [round(x, 4) for x in ratio.interval],
                "rounds": ratio.rounds,
            }
        )
        for key, ratio in table.ratios.items()
    ]
    ratios = ",\n  ".join(lines)
    opening = json.dumps(head, indent=1).removesuffix("\n}")
    path.write_text(f'{opening},\n "ratios": [\n  {ratios}\n ]\n}}\n')


def compare_ratios(
    old: Mapping[Key, Ratio], new: Mapping[Key, Ratio]
) -> dict[Key, str]:
    """Returns a verdict on every ratio in either table.

    A smaller ratio is slower: the peer gained on us. Ratios that were measured once, or
    in under five rounds, are not judged.
    """
    return {key: _judge(old.get(key), new.get(key)) for key in {**old, **new}}


def _judge(old: Ratio | None, new: Ratio | None) -> str:
    if new is None:
        return "not measured"
    if old is None:
        return "new"
    if old.interval is None or new.interval is None:
        return "measured once, not judged"
    if min(old.rounds, new.rounds) < _MIN_ROUNDS:
        return f"under {_MIN_ROUNDS} rounds, not judged"
    if new.interval[1] < old.interval[0]:
        return "slower"
    if new.interval[0] > old.interval[1]:
        return "faster"
    return "the same, within the spread"


def format_report(old: Table, new: Table) -> list[str]:
    """Returns lines on both tables, then a line for every figure."""
    lines = [f"{old.commit} -> {new.commit}, peers' time over ours"]
    if _kind(old.machine) != _kind(new.machine):
        lines.append(
            f"another kind of machine: {_kind(old.machine)} -> {_kind(new.machine)}; "
            "ratios depend on it too"
        )
    if new.machine.get("load", 0.0) > _MAX_LOAD:
        load = new.machine["load"]
        lines.append(f"the machine was busy (load {load:.1f}): measure again")
    lines += [
        f"another version of {name}: {version} -> {new.versions[name]}"
        for name, version in old.versions.items()
        if new.versions.get(name, version) != version
    ]
    for key, found in compare_ratios(old.ratios, new.ratios).items():
        job, side, figure = key
        change = " -> ".join(str(table.ratios.get(key, "?")) for table in (old, new))
        lines.append(f"{job}, {side}, {_FIGURES[figure]}: {change}: {found}")
    return lines


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("new", nargs="*", type=pathlib.Path, metavar="NEW.jsonl")
    parser.add_argument("--against", type=pathlib.Path, default=_STORED)
    parser.add_argument("--store", action="store_true", help="write the table instead")
    flags = parser.parse_args(argv)
    try:
        new = read_results(_read_files(flags.new))
        if flags.store:
            write_table(new, flags.against)
            print(f"{len(new.ratios)} ratios stored in {flags.against}")
            return 0
        old = read_table(flags.against)
        if old.ratios.keys().isdisjoint(new.ratios):
            raise UsageError(
                f"{flags.against} has none of the jobs and sides in the results"
            )
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(format_report(old, new)))
    return int("slower" in compare_ratios(old.ratios, new.ratios).values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
