"""Trackers, which show a run's metrics somewhere else.

metrics.jsonl is the record of a run. A tracker gets each of its lines, in order, with
samples and alarms. Lines are numbered from 0 by their place in the file, so that a
resumed run knows which lines its tracker already has.

Example of a custom tracker (`my_tracker.py` next to the recipe,
`--config.log.trackers=my_tracker:Printer`):

    class Printer(Tracker):
        def log(self, line):
            print(self.run.name, line.stage, line.step, line.values)
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.registry import Registry
from job_jax.schema import ConfigError

TRACKERS = Registry(
    "tracker",
    {
        "trackio": "job_jax.trackers.trackio:TrackioTracker",
        "wandb": "job_jax.trackers.wandb:WandbTracker",
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as its trackers know it; only `num_logged` differs between attempts.

    `id` is kept in the workdir. `parent` describes the run that this one continues
    ("id", None if that run was not tracked, "workdir", "stage", "step"), or is None for
    a fresh run. `num_logged` counts the lines that earlier attempts have logged.
    """

    id: str
    name: str
    project: str
    offline: bool
    workdir: str
    config: Mapping[str, Any]
    parent: Mapping[str, Any] | None
    num_logged: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackedLine:
    """A line of metrics.jsonl, with that step's samples and alarms.

    `number` is its place in the file, from 0. A value that was not finite is None.
    `samples` are completions of that step, as in rollouts/, or () if none were saved;
    `alarms` are the run doctor's alarms, as text.
    """

    number: int
    stage: str
    step: int
    time_s: float
    values: Mapping[str, float | None]
    samples: Sequence[Mapping[str, Any]] = ()
    alarms: Sequence[str] = ()

    def flat(self) -> dict[str, float]:
        """Returns the finite values as "train/loss/total", "train/step", "time_s"."""
        finite = {
            f"{self.stage}/{name}": value
            for name, value in self.values.items()
            if value is not None
        }
        return {**finite, f"{self.stage}/step": self.step, "time_s": self.time_s}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunResults:
    """The results at the end of a run: the summary's numbers, tables, paths of files.

    `num_lines` counts the lines of metrics.jsonl; `tables` are completions by their
    name ("eval_before"), as rows of rollouts/.
    """

    num_lines: int
    numbers: Mapping[str, float]
    tables: Mapping[str, Sequence[Mapping[str, Any]]]
    files: Sequence[str]


class Tracker:
    """Shows a run somewhere else. A custom subclass must define only `log`.

    Process 0 makes one for each attempt of a run. `open` is called before any work;
    then `log`, `finish` and `close` in a separate thread, in this order. An error in
    them is printed once and never ends a run.
    """

    def __init__(self, run: TrackedRun):
        self.run = run

    @classmethod
    def check_ready(cls, *, offline: bool) -> None:
        """Raises ConfigError, with the fix, if it lacks a library or a login."""

    def open(self) -> int:
        """Connects; returns how many lines, from the first on, the tracked run has.

        `log` gets the lines after these, older ones from metrics.jsonl first. By
        default it returns how many lines earlier attempts handed over, which the
        workdir records. A tracker that can query its server should return the number
        there: after a kill, lines that were handed over may be lost, and the line in
        transit may have arrived.
        """
        return self.run.num_logged

    @property
    def place(self) -> str:
        """Returns where the run can be viewed, for the log; "" prints nothing."""
        return ""

    def rewind(self, void_from: Mapping[str, int]) -> None:
        """Voids the steps of each stage that will be written again, from its step on.

        It is only for trackers that can void data. It is never called on background
        trackers, which get each line of metrics.jsonl once, by its number.
        """

    def log(self, line: TrackedLine) -> None:
        """Shows a line."""
        raise NotImplementedError

    def log_samples(
        self,
        stage: str,
        step: int,
        *,
        texts: Mapping[str, str],
        histograms: Mapping[str, np.ndarray],
    ) -> None:
        """Shows texts and histograms of a step whose line follows."""

    def finish(self, results: RunResults) -> None:
        """Takes the results at the end of a run; again if the run is extended."""

    def close(self, *, failed: bool) -> None:
        """Ends the attempt: the run is done or stopped, or it has `failed`."""


def tracker_class(name: str) -> type[Tracker]:
    """Returns the class of that name. Raises ConfigError if it is not a Tracker."""
    chosen = TRACKERS.load(name)
    if not (isinstance(chosen, type) and issubclass(chosen, Tracker)):
        raise ConfigError(
            f"tracker {name!r} is not a subclass of job_jax.trackers.base.Tracker; "
            "derive it from that class"
        )
    return chosen


def table_of(
    rows: Sequence[Mapping[str, object]],
) -> tuple[list[str], list[list[str | float | None]]]:
    """Returns the columns of a table (all keys of all rows) and its cells.

    A cell is a number, None, or text that UTF-8 can encode; a model's raw text may not
    be.

    Example:
        >>> table_of([{"id": "a", "reward": 1.0}, {"id": "b", "flags": ["bare"]}])
        (['id', 'reward', 'flags'], [['a', 1.0, None], ['b', None, "['bare']"]])
    """

    def cell(value: object) -> str | float | None:
        if value is None or isinstance(value, int | float):
            return value
        return str(value).encode("utf-8", "replace").decode()

    columns = list(dict.fromkeys(name for row in rows for name in row))
    return columns, [[cell(row.get(name)) for name in columns] for row in rows]


def flatten_numbers(values: Mapping[str, object], path: str = "") -> Iterator[Any]:
    """Yields ("eval/after/pass@k/1/mean", value) for every nested number.

    Example:
        >>> dict(flatten_numbers({"a": {"b": 1, "c": "x"}, "d": None}))
        {'a/b': 1}
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_numbers(value, f"{path}{name}/")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{path}{name}", value
