"""Evaluation sets by name, from a directory with one file or folder per set."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config.task import Stage
from rlvr_jax.tasks.public.files import find_files
from rlvr_jax.tasks.public.layout import (
    DATA_SETS,
    DataSet,
    PublicRecord,
    UnusableRecordError,
    find_data_set,
    short_name,
)
from rlvr_jax.tasks.public.table import SUITES
from rlvr_jax.tasks.records.files import SUFFIXES, iterate_records
from rlvr_jax.tasks.records.prompts import PromptFormatter
from rlvr_jax.tasks.records.task import RecordTask
from rlvr_jax.types import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmark:
    """An evaluation set with its files. `name` is its name in results."""

    name: str
    data_set: DataSet
    files: tuple[Path, ...]

    def records(self) -> list[PublicRecord]:
        """Returns the content of its records, with unique ids. Raises ConfigError.

        Repeated problems are returned once: some files hold each one 32 times, for
        avg@32.
        """
        found: list[PublicRecord] = []
        seen: set[tuple[str, str]] = set()
        ids: set[str] = set()
        for path in self.files:
            layout = None
            for place, record in iterate_records(path):
                layout = layout or self.data_set.choose_layout(record, place)
                try:
                    said = layout.read(record)
                except UnusableRecordError as error:
                    raise ConfigError(
                        f"{place}: {error}; complete or remove the record"
                    ) from error
                if (said.problem, said.gold) in seen:
                    continue
                seen.add((said.problem, said.gold))
                name = said.id or str(len(found) + 1)
                while name in ids:
                    name += "#"
                ids.add(name)
                found.append(dataclasses.replace(said, id=name))
        if not found:
            raise ConfigError(f"{self.files[0]} has no records")
        return found


def expand_suite(names: Sequence[str]) -> list[str]:
    """Returns the evaluation sets for names of suites and of sets, in order.

    Raises ConfigError for an unknown name, and for a set without an eval split.
    """
    expanded = dict.fromkeys(
        each.strip() for name in names for each in SUITES.get(name.strip(), (name,))
    )
    for name in expanded:
        if ":" not in name and name not in DATA_SETS.names:
            known = [*SUITES, *(n for n in DATA_SETS.names if _can_score(n))]
            raise ConfigError(
                f"unknown suite or evaluation set {name!r}{did_you_mean(name, known)} "
                "Name your own set module:NAME"
            )
        if not _can_score(name):
            raise ConfigError(
                f"{name} is a training set without an evaluation split; to evaluate on "
                "your own held-out problems, set task.eval_path"
            )
    return [*expanded]


def _can_score(name: str) -> bool:
    return bool(find_data_set(name).eval_split)


def find_benchmarks(names: Sequence[str], directory: Path) -> list[Benchmark]:
    """Returns the evaluation sets with their files in a directory.

    The file of a set is DIRECTORY/NAME.jsonl (.json, .parquet). Or its files are all
    files of its split in the folder DIRECTORY/NAME. Raises one ConfigError that says,
    for each missing set, where to put it and how to get it.
    """
    if len({*map(short_name, names)}) < len(names):
        raise ConfigError(
            f"two of {', '.join(names)} have the same name; score them separately"
        )
    found, missing = [], []
    for name in names:
        data_set, short = find_data_set(name), short_name(name)
        files = [directory / f"{short}{suffix}" for suffix in SUFFIXES]
        given = [path for path in (*files, directory / short) if path.exists()]
        if not given:
            missing.append(_describe_missing(data_set, short, directory))
        elif len(given) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} are both {name}; delete one")
        else:
            paths = _files_of(given[0], data_set)
            found.append(Benchmark(name=short, data_set=data_set, files=(*paths,)))
    if missing:
        raise ConfigError("\n".join(missing))
    return found


def _files_of(path: Path, data_set: DataSet) -> list[Path]:
    """Returns the files of the evaluation split, or of the only one.

    If the data set has a train split too, that one is never taken.
    """
    if data_set.train_split not in ("", data_set.eval_split):
        return find_files(path, data_set, data_set.eval_split)
    try:
        return find_files(path, data_set)
    except ConfigError:
        return find_files(path, data_set, data_set.eval_split)


def _describe_missing(data_set: DataSet, name: str, directory: Path) -> str:
    place = directory / name
    line = f"{data_set.title} is missing: put it at {place}.jsonl (.json, .parquet)"
    if not data_set.hub:
        return line
    return (
        f"{line}, or run hf download {data_set.hub} --repo-type dataset --local-dir "
        f"{place}"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteTask(RecordTask):
    """Problems of evaluation sets in `record`'s templates. Has no training problems.

    The verifier of its set grades each problem. Its source is the name of the set, and
    its id is NAME/ID.
    """

    benchmarks: tuple[str, ...] = ()
    directory: str = ""
    first: int = 0  # problems per set; 0: all

    def problems(self, stage: Stage, *, seed: int) -> list[Problem]:
        """Returns the problems of all sets, one set after the other."""
        formatter = PromptFormatter(self.record)
        return [
            Problem(
                id=f"{benchmark.name}/{record.id}",
                prompt=prompt,
                literal=literal,
                gold=record.gold,
                verifier=benchmark.data_set.verifier,
                answer_format=self.record.answer_format,
                source=benchmark.name,
                level=record.level or 0,
                type=record.type,
            )
            for benchmark in find_benchmarks(self.benchmarks, Path(self.directory))
            for record in benchmark.records()[: self.first or None]
            for prompt, literal in [formatter.write_prompt(record.problem)]
        ]

    def describe(self) -> str:
        """Returns a phrase that names the sets."""
        return f"problems of {', '.join(self.benchmarks)}"
