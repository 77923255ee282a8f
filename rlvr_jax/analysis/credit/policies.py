"""Several policies, each measured by itself: what is kept of each, and their mean."""

import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from job_jax.command import UsageError, load_config
from job_jax.files import write_json
from job_jax.resampling import Interval
from rlvr_jax.analysis.credit.weights import load_selection
from rlvr_jax.analysis.workdir import CONFIG_FILE
from rlvr_jax.config import Config
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.run.fetch import local_run


class Comparison(Protocol):
    """What a command finds of one policy, a dataclass; its JSON has its fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        ...

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the comparison that `to_json` wrote."""
        ...


_Found = TypeVar("_Found", bound=Comparison)


class ProbedRun(NamedTuple):
    """A run whose policy before RL is asked, and its reasoning features."""

    workdir: Path
    config: Config
    selection: FeatureSelection


def open_runs(
    workdirs: Sequence[str], check: Callable[[Config], None]
) -> list[ProbedRun]:
    """Returns the runs; `check` refuses a config.

    Raises UsageError, as `check` does, where one has no features or is given twice.
    """
    paths = [local_run(each, with_checkpoints=True) for each in workdirs]
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError(f"a run is given twice: {', '.join(workdirs)}")
    runs = []
    for path in paths:
        config = load_config(path / CONFIG_FILE, Config)
        check(config)
        runs.append(ProbedRun(path, config, load_selection(path)))
    return runs


def compare_policies(
    runs: Sequence[ProbedRun],
    file_name: str,
    asked: Mapping[str, Any],
    kind: type[_Found],
    measure: Callable[[ProbedRun], _Found],
    tell: Callable[[_Found, str], str],
) -> None:
    """Prints what is found of each run's policy, and of several their mean.

    `tell` says what was found as text, and what its intervals are over: "" is what is
    compared within one policy.
    """
    found = []
    for run in runs:
        file = run.workdir / file_name
        of_run = functools.partial(measure, run)
        found.append(_read_or_measure(file, asked, kind, of_run))
        print(f"{tell(found[-1], '')}\n{file}")
    if len(found) > 1:
        over = f"{len(found)} policies"
        print(f"\nMeans over {over}\n{tell(average_policies(found), over)}")


def average_policies(found: Sequence[Any]) -> Any:
    """Returns the mean of what was found alike of several policies.

    Of each interval the policies' mean with Student's t over them, their own ends
    unused; of each count the sum; lists are joined. In a dataclass or a dict, so each
    entry.
    """
    first = found[0]
    if isinstance(first, Interval):
        return t_interval([each.value for each in found])
    if isinstance(first, int):
        return sum(found)
    if isinstance(first, list):
        return [*itertools.chain.from_iterable(found)]
    if isinstance(first, dict):
        return {
            name: average_policies([each[name] for each in found]) for name in first
        }
    return dataclasses.replace(
        first, **average_policies([vars(each) for each in found])
    )


def _read_or_measure(
    file: Path,
    asked: Mapping[str, Any],
    kind: type[_Found],
    measure: Callable[[], _Found],
) -> _Found:
    """Returns what `file` says of the same question, or measures and writes it.

    So a command that was cut short goes on with the policy that it was at. A file of
    other fields, as an earlier version wrote, is measured anew.
    """
    record = json.loads(file.read_text()) if file.is_file() else {}
    names = {field.name for field in dataclasses.fields(kind)}
    if record.keys() == {"asked", *names} and record["asked"] == asked:
        print(f"{file} was there, asked alike; remove it to ask anew", file=sys.stderr)
        return kind.from_json(record)
    found = measure()
    write_json(file, {"asked": asked, **found.to_json()})
    return found
