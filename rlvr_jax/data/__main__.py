"""The command `python -m rlvr_jax.data`: published data sets, ready to train on."""

import dataclasses
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from job_jax.command import run_command
from job_jax.files import write_atomically
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.metrics import Progress
from job_jax.schema import (
    AtLeastTwo,
    ConfigError,
    NonNegativeInt,
    PositiveInt,
    did_you_mean,
)
from rlvr_jax.config import VerifierConfig
from rlvr_jax.data.card import format_card, summarize
from rlvr_jax.data.overlap import OverlapIndex
from rlvr_jax.data.prepare import (
    Prepared,
    Source,
    known_layouts,
    open_hub,
    open_local,
    prepare,
    read_evaluation_problems,
)
from rlvr_jax.tasks.public.files import find_files
from rlvr_jax.tasks.public.layout import (
    DATA_SETS,
    FieldLayout,
    find_data_set,
    short_name,
)
from rlvr_jax.tasks.public.suite import expand_suite, find_benchmarks
from rlvr_jax.tasks.public.table import SUITES
from rlvr_jax.verifiers.grader import Grader

_USAGE = """\
usage: python -m rlvr_jax.data list
       python -m rlvr_jax.data prepare NAME ... --out=FILE.jsonl [--from=FILE|DIR] ...

list     prints the named data sets, and the fields that are read

prepare  reads data sets and drops problems that cannot be used: without an answer, with
         an answer that the verifier cannot grade by, duplicates, and overlaps with an
         evaluation problem. It writes

           FILE.jsonl          the problems: id, problem, answer, solution, level,
                               difficulty, type, source; task.record is
                               rlvr_jax.tasks.PREPARED_RECORD
           FILE.removed.jsonl  the dropped records, each with its reason
           FILE.card.md        sources, counts, levels, overlaps, sha256

NAME     a name from the list, or your own layout as module:NAME (docs/use/data_sets.md)

--against takes evaluation sets, separated by commas. Each is a file; or NAME=FILE,
where NAME gives the layout; or the name of a suite or set (math5, aime24) with files in
--suite_dir, as for python -m rlvr_jax.evaluate --suite.

flags:"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataFlags(Flags):
    """The flags of this command."""

    out: str = ""  # the file to write, ending in .jsonl
    from_: str = (
        ""  # a file or folder to read instead of the hub (json, jsonl, parquet)
    )
    hub: str = ""  # read this copy on the hub, ORGANIZATION/NAME
    subset: str = ""  # the configuration to read on the hub
    split: str = ""  # the split to read; by default train, else evaluation
    # commit or tag of the hub's repository; by default the newest
    revision: str = ""
    suite_dir: str = ""  # the folder of evaluation sets that --against names
    against: tuple[str, ...] = ()  # evaluation sets to keep out
    ngram: AtLeastTwo = 13  # shared words in a row that count
    # shared words that more than N problems have do not count; 0: all count
    max_shared: NonNegativeInt = 10
    check_golds: bool = True  # drop ungradable answers
    workers: PositiveInt = 2  # grading processes


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if a file cannot be written, 2 on bad usage or data."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    flags, (command, *names) = parse_flags(
        argv, DataFlags, usage=_USAGE, arguments=["COMMAND"], at_least=True
    )
    if command == "list":
        print(_list_data_sets())
    elif command == "prepare":
        _prepare(names, flags, shlex.join(["python", "-m", "rlvr_jax.data", *argv]))
    else:
        near = did_you_mean(command, ["list", "prepare"])
        raise UsageError(f"no command {command!r}{near}")


def _list_data_sets() -> str:
    lines = ["name           set                   license     on the hub"]
    for name in DATA_SETS.names:
        each = find_data_set(name)
        lines.append(f"{name:<14} {each.title:<21} {each.license:<11} {each.hub}")
        for layout in each.layouts:
            form = layout.gold_form if isinstance(layout, FieldLayout) else ""
            fields = ", ".join(layout.expected_fields())
            lines.append(f"{'':<14} {fields}{f' ({form})' if form != 'whole' else ''}")
    lines += [f"{name:<14} {', '.join(sets)}" for name, sets in SUITES.items()]
    return "\n".join(lines)


def _prepare(names: Sequence[str], flags: DataFlags, command: str) -> None:
    out = _check_flags(names, flags)
    sources = [_open_source(name, flags) for name in names]
    sets = _read_evaluation_sets(flags.against, flags.suite_dir)
    index = OverlapIndex(sets, n=flags.ngram)
    config = VerifierConfig(workers=flags.workers, timeout_s=60.0)
    with Grader(config) as grader:
        progress: list[Progress] = []

        def on_progress(done: int, total: int) -> None:
            if not progress:
                progress.append(Progress("answers", total, every=1))
            progress[0].update(done, {})

        prepared = prepare(
            sources,
            index,
            max_shared=flags.max_shared,
            check_golds=grader.invalid_golds if flags.check_golds else None,
            on_progress=on_progress,
        )
        for each in progress:
            each.close()
    if not prepared.kept:
        counts = ", ".join(
            f"{count} {reason}"
            for each in prepared.counts().values()
            for reason, count in each.items()
        )
        raise ConfigError(f"no problem of {', '.join(names)} is left: {counts}")
    files = _write(out, prepared, sources, sets, flags, command)
    print(json.dumps(summarize(prepared, files), indent=2))


def _check_flags(names: Sequence[str], flags: DataFlags) -> Path:
    """Returns the file to write. Raises UsageError with a line for each fault."""
    out, local = Path(flags.out), flags.from_
    faults = []
    if not names:
        faults.append("prepare needs the NAME of a data set; see list")
    if len(set(names)) < len(names):
        faults.append(f"{' '.join(names)} repeats a name; give each once")
    if not flags.out:
        faults.append("--out=FILE.jsonl is missing; see --help")
    elif out.suffix != ".jsonl":
        faults.append(f"--out={flags.out!r} must end in .jsonl")
    elif not out.parent.is_dir():
        faults.append(
            f"--out={out}: directory {str(out.parent)!r} does not exist; make it"
        )
    if len(names) > 1 and (local or flags.hub):
        faults.append("--from and --hub take one data set; prepare them one by one")
    if local and (flags.hub or flags.revision or flags.subset):
        faults.append("--hub, --subset, --revision do not go with --from; remove it")
    read = [local, *(each.rpartition("=")[2] for each in flags.against)]
    if flags.out and any(
        out.resolve() == Path(each).resolve() for each in read if each
    ):
        faults.append(f"--out={out} would replace a file that is read; give another")
    if flags.suite_dir and not flags.against:
        faults.append("--suite_dir needs --against, with the sets to read")
    if faults:
        raise UsageError("\n".join(faults))
    return out


def _open_source(name: str, flags: DataFlags) -> Source:
    if local := flags.from_:
        return open_local(name, Path(local), split=flags.split)
    return open_hub(
        name,
        hub=flags.hub,
        subset=flags.subset,
        split=flags.split,
        revision=flags.revision,
    )


def _read_evaluation_sets(
    against: Sequence[str], suite_dir: str
) -> dict[str, list[tuple[str, str]]]:
    """Returns name -> (id, text) of each evaluation set. Raises ConfigError."""
    sets: dict[str, list[tuple[str, str]]] = {}
    names = []
    for each in against:
        name, equals, file = each.partition("=")
        if equals:
            data_set = find_data_set(name)
            files = find_files(Path(file), data_set)
            sets.setdefault(short_name(name), []).extend(
                read_evaluation_problems(each, data_set.layouts, files)
            )
        elif Path(each).is_file():
            sets[each] = read_evaluation_problems(each, known_layouts(), [Path(each)])
        else:
            names.append(each)
    if names and not suite_dir:
        raise ConfigError(
            f"--against={','.join(names)}: no such file; names of evaluation sets need "
            "--suite_dir=DIR, the folder of their files"
        )
    for benchmark in find_benchmarks(expand_suite(names), Path(suite_dir)):
        sets.setdefault(benchmark.name, []).extend(
            read_evaluation_problems(
                benchmark.name, benchmark.data_set.layouts, benchmark.files
            )
        )
    return sets


def _write(
    out: Path,
    prepared: Prepared,
    sources: Sequence[Source],
    sets: dict[str, list[tuple[str, str]]],
    flags: DataFlags,
    command: str,
) -> dict[str, str]:
    """Writes the three files, each whole or not at all; returns their names."""
    removed, card = out.with_suffix(".removed.jsonl"), out.with_suffix(".card.md")
    content = _to_lines([one.to_json() for one in prepared.kept])
    digest = hashlib.sha256(content).hexdigest()
    text = format_card(
        prepared,
        sources,
        evaluation_sets={name: len(problems) for name, problems in sets.items()},
        n=flags.ngram,
        max_shared=flags.max_shared,
        command=command,
        output=(out.name, digest),
    )
    dropped = _to_lines([drop.to_json() for drop in prepared.dropped])
    for path, data in ((out, content), (removed, dropped), (card, text.encode())):
        with write_atomically(path) as partial:
            partial.write_bytes(data)
    return {"out": str(out), "removed_records": str(removed), "card": str(card)}


def _to_lines(records: Sequence[object]) -> bytes:
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    return "".join(lines).encode()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
