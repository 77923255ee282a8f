"""Prepares published data sets: removes duplicates and evaluation problems. No JAX.

A record is dropped, with the reason, if

  - no problem or gold can be read from it;
  - an earlier record has the same problem;
  - it overlaps with an evaluation problem;
  - its verifier cannot grade by its gold.

`tasks.PREPARED_RECORD` reads the records that are kept.
"""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.data.overlap import OverlapIndex, ProblemOverlap, whole_key
from rlvr_jax.tasks.public.files import find_files, hash_file
from rlvr_jax.tasks.public.layout import (
    DATA_SETS,
    DataSet,
    Layout,
    PublicRecord,
    UnusableRecordError,
    find_data_set,
    short_name,
)
from rlvr_jax.tasks.records.files import iterate_records
from rlvr_jax.tasks.records.hub import load_split
from rlvr_jax.types import Problem

DUPLICATE = "the same problem stood before"
OTHER_GOLD = "the same problem stood before, with another answer"
OVERLAPS = "overlaps with an evaluation problem"
_HUB_ADVICE = (
    "check --hub, --subset and --split, and the connection to the hub (some sets need "
    "hf auth login); or read files of the set with --from"
)
_BATCH = 1000  # golds graded between two lines of progress

# Takes a batch of problems; returns why golds cannot be used, by the problem's id.
GoldCheck = Callable[[Sequence[Problem]], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A data set's records, not read yet. `inputs` are its files and their sha256.

    A set on the hub has no files here. It gets one input once `records` has been read:
    the sha256 of the records as JSON.
    """

    name: str
    data_set: DataSet
    described: str
    records: Iterable[tuple[str, Any]]
    inputs: list[tuple[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """A record that a problem was read from; its id is NAME/ID."""

    name: str  # of its data set
    id: str
    said: PublicRecord

    def to_json(self) -> dict[str, Any]:
        """Returns the line of the prepared file."""
        said = self.said
        return {
            "id": self.id,
            "problem": said.problem,
            "answer": said.gold,
            "solution": said.solution,
            "level": said.level,
            "difficulty": said.difficulty,
            "type": said.type,
            "source": said.source or self.name,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dropped:
    """A record that was left out: `reason` is counted, `detail` is for this record.

    Repeats of one record share an entry: it is the first repeat, and `times` counts
    them. DAPO's set has each problem a hundred times.
    """

    name: str
    id: str
    reason: str
    detail: str = ""
    overlaps: tuple[ProblemOverlap, ...] = ()
    problem: str = ""
    times: int = 1

    def to_json(self) -> dict[str, Any]:
        """Returns the line of the file of removed records."""
        return {
            "id": self.id,
            "reason": self.reason,
            **({"detail": self.detail} if self.detail else {}),
            **({"times": self.times} if self.times > 1 else {}),
            **(
                {"overlaps": [overlap._asdict() for overlap in self.overlaps]}
                if self.overlaps
                else {}
            ),
            "problem": self.problem,
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """The records kept and dropped; `phrases_only` of the kept share a phrase."""

    kept: list[Candidate]
    dropped: list[Dropped]
    phrases_only: int

    def counts(self) -> dict[str, collections.Counter[str]]:
        """Returns, for each data set, the records by drop reason, and "kept"."""
        found: dict[str, collections.Counter[str]] = {}
        for one in self.kept:
            found.setdefault(one.name, collections.Counter())["kept"] += 1
        for drop in self.dropped:
            counts = found.setdefault(drop.name, collections.Counter())
            counts[drop.reason] += drop.times
        return found


def open_local(name: str, path: Path, *, split: str) -> Source:
    """Returns a data set's records in a file, or in a folder's files of a split.

    Raises ConfigError if it finds none.
    """
    data_set = find_data_set(name)
    wanted = split or data_set.train_split or data_set.eval_split
    files = find_files(path, data_set, wanted)
    return Source(
        name=short_name(name),
        data_set=data_set,
        described=", ".join(map(str, files[:3]))
        + (f" and {len(files) - 3} more files" if len(files) > 3 else ""),
        records=(placed for file in files for placed in iterate_records(file)),
        inputs=[(str(file), hash_file(file)) for file in files],
    )


def open_hub(name: str, *, hub: str, subset: str, split: str, revision: str) -> Source:
    """Returns a data set's records on the hub, or in a copy of it named `hub`."""
    data_set = find_data_set(name)
    place = hub or data_set.hub
    if not place:
        raise ConfigError(f"{name} is not on the hub; give its files with --from")
    wanted = split or data_set.train_split or data_set.eval_split
    inputs: list[tuple[str, str]] = []
    # A copy has other subsets than the original.
    subsets = [subset] if subset or hub else [*data_set.subsets] or [""]

    def read() -> Iterator[tuple[str, Any]]:
        digest = hashlib.sha256()
        for each in subsets:
            rows = load_split(
                place, wanted, subset=each, revision=revision, advice=_HUB_ADVICE
            )
            for number, row in enumerate(rows, start=1):
                digest.update(json.dumps(row, default=str).encode())
                yield f"{place}{f'/{each}' if each else ''}:{wanted}, row {number}", row
        inputs.append((f"{place}:{wanted}, as JSON", digest.hexdigest()))

    at = f", revision {revision}" if revision else ", the newest revision"
    return Source(
        name=short_name(name),
        data_set=data_set,
        described=f"{place} of the hub, split {wanted}{at}",
        records=read(),
        inputs=inputs,
    )


def prepare(
    sources: Sequence[Source],
    index: OverlapIndex,
    *,
    max_shared: int,
    check_golds: GoldCheck | None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Prepared:
    """Returns the records to train on, and the dropped ones.

    A run of words that more than `max_shared` of the problems have does not count as an
    overlap; with 0, every run counts. Without `check_golds` no gold is graded.
    """
    dropped: list[Dropped] = []
    unique = _drop_duplicates(
        (one for source in sources for one in _read_candidates(source, dropped)),
        dropped,
    )
    phrases: set[str] = set()
    if max_shared:
        texts = (one.said.problem for one in unique)
        phrases = index.find_phrases(texts, max_shared=max_shared)
    apart: list[Candidate] = []
    phrases_only = 0
    for one in unique:
        if overlaps := index.find(one.said.problem, phrases=phrases):
            dropped.append(_drop(one, OVERLAPS, overlaps=tuple(overlaps)))
            continue
        phrases_only += bool(phrases and index.shared_runs(one.said.problem))
        apart.append(one)
    if check_golds is not None:
        verifiers = {source.name: source.data_set.verifier for source in sources}
        apart = _drop_bad_golds(apart, verifiers, check_golds, dropped, on_progress)
    return Prepared(kept=apart, dropped=dropped, phrases_only=phrases_only)


def _drop(one: Candidate, reason: str, **more: Any) -> Dropped:
    return Dropped(
        name=one.name, id=one.id, reason=reason, problem=one.said.problem, **more
    )


def _read_candidates(source: Source, dropped: list[Dropped]) -> Iterator[Candidate]:
    """Yields the readable records; each file's first record decides its layout."""
    layout, last_file = None, ""
    ids: collections.Counter[str] = collections.Counter()
    number = 0
    for number, (place, record) in enumerate(source.records, start=1):
        file = place.rpartition(", ")[0]
        if layout is None or file != last_file:
            layout, last_file = source.data_set.choose_layout(record, place), file
        try:
            said = layout.read(record)
        except UnusableRecordError as error:
            name = f"{source.name}/{number}"
            dropped.append(
                Dropped(name=source.name, id=name, reason=str(error), detail=place)
            )
            continue
        name = f"{source.name}/{said.id or number}"
        ids[name] += 1
        suffix = f"#{ids[name]}" if ids[name] > 1 else ""
        yield Candidate(name=source.name, id=name + suffix, said=said)
    if not number:
        raise ConfigError(f"{source.described} holds no records")


def _drop_duplicates(
    candidates: Iterable[Candidate], dropped: list[Dropped]
) -> list[Candidate]:
    """Returns the first record of each problem."""
    first: dict[str, Candidate] = {}
    repeats: dict[tuple[str, str], Dropped] = {}  # by the first record's id, and set
    for one in candidates:
        before = first.setdefault(whole_key(one.said.problem), one)
        if before is one:
            continue
        if before.said.gold != one.said.gold:
            detail = f"{before.id}: {before.said.gold}, not {one.said.gold}"
            dropped.append(_drop(one, OTHER_GOLD, detail=detail))
            continue
        known = repeats.get((before.id, one.name))
        repeats[before.id, one.name] = (
            _drop(one, DUPLICATE, detail=before.id)
            if known is None
            else dataclasses.replace(known, times=known.times + 1)
        )
    dropped += repeats.values()
    return [*first.values()]


def _drop_bad_golds(
    candidates: Sequence[Candidate],
    verifiers: Mapping[str, str],
    check_golds: GoldCheck,
    dropped: list[Dropped],
    on_progress: Callable[[int, int], None],
) -> list[Candidate]:
    kept = []
    for start in range(0, len(candidates), _BATCH):
        batch = candidates[start : start + _BATCH]
        faults = check_golds(
            [
                Problem(
                    id=one.id,
                    prompt="",
                    gold=one.said.gold,
                    verifier=verifiers[one.name],
                    source=one.name,
                )
                for one in batch
            ]
        )
        for one in batch:
            if fault := faults.get(one.id):
                reason = (
                    f"the verifier {verifiers[one.name]} cannot grade by the answer"
                )
                detail = f"{one.said.gold:.200}: {fault}"
                dropped.append(_drop(one, reason, detail=detail))
            else:
                kept.append(one)
        on_progress(min(start + _BATCH, len(candidates)), len(candidates))
    return kept


def read_evaluation_problems(
    name: str, layouts: Sequence[Layout], files: Iterable[Path]
) -> list[tuple[str, str]]:
    """Returns (id, text) of the evaluation problems; their golds may be missing.

    Raises ConfigError if no layout fits.
    """
    found: list[tuple[str, str]] = []
    for path in files:
        for place, record in iterate_records(path):
            readings = [*filter(None, (_read_text(o, record) for o in layouts))]
            if not readings:
                raise ConfigError(
                    f"{place}: no layout can read this record of {name}; give "
                    "NAME=FILE, where NAME is a layout or your own module:NAME"
                )
            own_id, text = next((r for r in readings if r[0]), readings[0])
            found.append((own_id or str(len(found) + 1), text))
    if not found:
        raise ConfigError(f"{name} holds no records")
    return found


def _read_text(layout: Layout, record: object) -> tuple[str | None, str] | None:
    """Returns a record's id, if it has one, and its problem; None if unreadable."""
    try:
        said = layout.read(record)
    except UnusableRecordError:
        try:
            return None, layout.read_problem(record)
        except UnusableRecordError:
            return None
    return said.id, said.problem


def known_layouts() -> list[Layout]:
    """Returns the layouts of all data sets that have a name."""
    return [o for name in DATA_SETS.names for o in find_data_set(name).layouts]
