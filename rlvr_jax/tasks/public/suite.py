"""Evaluation sets by name, from a folder with a file or a folder for each."""

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
    """An evaluation set with its files. `name` is what it is called in results."""

    name: str
    data_set: DataSet
    files: tuple[Path, ...]

    def records(self) -> list[PublicRecord]:
        """Returns what its records say, each with an id of its own. ConfigError.

        Of a problem that is there several times, as in files that hold 32 of each for
        avg@32, there is one.
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
            raise ConfigError(f"{self.files[0]} holds no records")
        return found


def expand_suite(names: Sequence[str]) -> list[str]:
    """Returns the evaluation sets that names of suites and of sets stand for, in order.

    Raises ConfigError for a name that is neither, and for a set without an eval split.
    """
    expanded = dict.fromkeys(
        each.strip() for name in names for each in SUITES.get(name.strip(), (name,))
    )
    for name in expanded:
        if ":" not in name and name not in DATA_SETS.names:
            known = [*SUITES, *(n for n in DATA_SETS.names if _can_score(n))]
            raise ConfigError(
                f"unknown suite or evaluation set {name!r}{did_you_mean(name, known)} "
                "One of your own is named by its place: module:NAME"
            )
        if not _can_score(name):
            raise ConfigError(
                f"{name} is a set to train on, without an evaluation split; for "
                "held-out problems of your own see task.eval_path"
            )
    return [*expanded]


def _can_score(name: str) -> bool:
    return bool(find_data_set(name).eval_split)


def find_benchmarks(names: Sequence[str], directory: Path) -> list[Benchmark]:
    """Returns the evaluation sets with their files in a folder.

    A set's file is DIRECTORY/NAME.jsonl (.json, .parquet), or all that the folder
    DIRECTORY/NAME holds of its split. Raises one ConfigError that says of each that is
    missing where it goes and how to get it.
    """
    if len({*map(short_name, names)}) < len(names):
        raise ConfigError(f"two of {', '.join(names)} have one name; score them apart")
    found, missing = [], []
    for name in names:
        data_set, short = find_data_set(name), short_name(name)
        files = [directory / f"{short}{suffix}" for suffix in SUFFIXES]
        given = [path for path in (*files, directory / short) if path.exists()]
        if not given:
            missing.append(_describe_missing(data_set, short, directory))
        elif len(given) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} are both {name}; leave one")
        else:
            paths = _files_of(given[0], data_set)
            found.append(Benchmark(name=short, data_set=data_set, files=(*paths,)))
    if missing:
        raise ConfigError("\n".join(missing))
    return found


def _files_of(path: Path, data_set: DataSet) -> list[Path]:
    """Returns the files of the evaluation split, or of the only split there is."""
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
    """Problems of evaluation sets, asked by `record`'s templates. No training problems.

    Each is graded by the verifier of its set, and its source is the set's name. Ids are
    NAME/ID.
    """

    benchmarks: tuple[str, ...] = ()
    directory: str = ""
    first: int = 0  # problems of each set; 0: all

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
        """Returns which sets they are."""
        return f"problems of {', '.join(self.benchmarks)}"
