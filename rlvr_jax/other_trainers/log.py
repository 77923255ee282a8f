"""A run's log: which trainer wrote it, and the doctor's quantities at each step."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from rlvr_jax.other_trainers.files import LogError, Row, find_file, read_rows
from rlvr_jax.other_trainers.trainer import SHARES, STEP_NAMES, Trainer

NONFINITE = frozenset({"loss", "grad_norm", "reward"})  # quantities that may be NaN
_SHOWN_NAMES = 8  # of an unknown log, in the error
_OUR_NAMES = frozenset({"groups/nonzero_std", "verdict/correct"})


@dataclasses.dataclass(frozen=True)
class Log:
    """The training steps of a run: each step's number and its quantities.

    A step has the quantities that the log has there. Loss, gradient norm and reward are
    NaN if they are not finite; other numbers that are not finite are left out, and so
    are shares beyond 0 and 1, with a line in `left_out`.
    """

    trainer: Trainer
    files: Sequence[Path]
    steps: Sequence[int]
    rows: Sequence[Mapping[str, float]]
    left_out: Sequence[str] = ()

    def quantities(self) -> frozenset[str]:
        """Returns the quantities that any step has."""
        return frozenset().union(*self.rows)

    def interval(self) -> int:
        """Returns the usual number of steps from one row to the next."""
        gaps = [after - before for before, after in itertools.pairwise(self.steps)]
        return statistics.median_low(gaps) if gaps else 1

    def describe(self) -> str:
        """Returns the header of the doctor's report: trainer, files and steps."""
        count = len(self.steps)
        files = ", ".join(map(str, self.files))
        return (
            f"{self.trainer.name}: {files}: {count} training "
            f"row{'s' * (count != 1)}, steps {self.steps[0]} to {self.steps[-1]}"
        )


def read_log(paths: Sequence[Path], trainers: Sequence[Trainer]) -> Log:
    """Returns the log of one run in one or more files, joined by step.

    Where two files have a quantity of the same step, the later file counts. Raises
    LogError if a file cannot be read, no trainer is recognized, or files differ in it.
    """
    files = [find_file(path) for path in paths]
    columns: dict[str, dict[int, float]] = {}
    recognized: dict[str, Path] = {}
    trainer = trainers[0]
    for file in files:
        rows = read_rows(file)
        trainer = _recognize(file, rows, trainers)
        recognized[trainer.name] = file
        for quantity, column in _read_columns(rows, trainer).items():
            columns.setdefault(quantity, {}).update(column)
    if len(recognized) > 1:
        kinds = " and ".join(f"{file} ({name})" for name, file in recognized.items())
        raise LogError(f"{kinds} are logs of different trainers; give one run's logs")
    steps = sorted({step for column in columns.values() for step in column})
    if not steps:
        raise LogError(
            f"{', '.join(map(str, files))}: no training rows; a row needs a step (one "
            f"of {', '.join(STEP_NAMES)}, a number and not a text) and a number of "
            f"training, such as {next(iter(trainer.names.values()))[0]}"
        )
    table = [
        {name: column[step] for name, column in columns.items() if step in column}
        for step in steps
    ]
    if trainer.drops_nonfinite and "grad_norm" in columns:
        for row in table:
            if "learning_rate" in row:
                row.setdefault("grad_norm", math.nan)
    left_out = _drop_impossible_shares(steps, table, trainer)
    return Log(trainer, files, steps, table, left_out)


def _drop_impossible_shares(
    steps: Sequence[int], table: Sequence[dict[str, float]], trainer: Trainer
) -> list[str]:
    """Removes shares beyond 0 and 1, and returns a line for each quantity with some."""
    lines = []
    for name in SHARES:
        odd = [i for i, row in enumerate(table) if not 0 <= row.get(name, 0) <= 1]
        if odd:
            value, metric = table[odd[0]][name], trainer.names[name][0]
            lines.append(
                f"left out: {metric} where it is not between 0 and 1: {len(odd)} "
                f"of {len(table)} rows, such as {value:g} at step {steps[odd[0]]}"
            )
        for i in odd:
            del table[i][name]
    return lines


def _recognize(path: Path, rows: Sequence[Row], trainers: Sequence[Trainer]) -> Trainer:
    names = dict.fromkeys(name for row in rows for name in row)
    counts = [trainer.count_signature(names) for trainer in trainers]
    if not names:
        raise LogError(
            f"{path}: no rows; either the run has not logged a step yet, or its log "
            "is another file"
        )
    if not any(counts):
        known = ", ".join(trainer.name for trainer in trainers)
        shown = ", ".join([*names][:_SHOWN_NAMES]) or "none"
        more = ", ..." if len(names) > _SHOWN_NAMES else ""
        raise LogError(
            f"{path}: unknown format; known are the logs of {known}, and any other "
            f"with --names. Names found: {shown}{more}.{_guess_origin(names)}"
        )
    return trainers[counts.index(max(counts))]


def _guess_origin(names: Collection[str]) -> str:
    """Returns what a log of unknown format seems to be, "" without a guess."""
    if not _OUR_NAMES.isdisjoint(names):
        return " This is a log of rlvr_jax: its report has the run doctor's alarms."
    if "loss" in names and not any("reward" in name for name in names):
        return " It has a loss and no reward: is it a log of supervised training?"
    return ""


def _read_columns(rows: Sequence[Row], trainer: Trainer) -> dict[str, dict[int, float]]:
    """Returns each quantity's value by step, of the last time that a step was written.

    A resumed run repeats the steps after its checkpoint. What the log has beyond the
    newest repeated step belongs to the attempt that was given up.
    """
    located = trainer.find_names({name for row in rows for name in row})
    columns: dict[str, dict[int, float]] = {}
    for row in rows:
        step = _step_of(row)
        if step is None:
            continue
        for quantity, value in _read_quantities(row, located, trainer):
            column = columns.setdefault(quantity, {})
            if column and step < next(reversed(column)):
                column = {s: v for s, v in column.items() if s < step}
                columns[quantity] = column
            column[step] = value
    if columns.keys() <= {"learning_rate"}:
        return {}
    return columns


def _step_of(row: Row) -> int | None:
    for name in STEP_NAMES:
        if _is_number(row.get(name)) and math.isfinite(row[name]):
            return int(row[name])
    return None


def _read_quantities(
    row: Row, located: Mapping[str, Sequence[str]], trainer: Trainer
) -> Iterator[tuple[str, float]]:
    for quantity, names in located.items():
        values = [row[name] for name in names if _is_number(row.get(name))]
        may_be_null = trainer.null_is_nonfinite and quantity != "reward"
        if not values and may_be_null and names[0] in row:
            values = [math.nan]
        if values:
            mean = sum(values) / len(values)
            if math.isfinite(mean):
                yield quantity, float(mean)
            elif quantity in NONFINITE:
                yield quantity, math.nan


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
