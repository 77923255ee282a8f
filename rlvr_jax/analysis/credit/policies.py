"""Measures several policies one by one, keeps a file for each, and averages them."""

import dataclasses
import functools
import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

from job_jax.command import load_config
from job_jax.files import write_json
from job_jax.flags import UsageError
from job_jax.resampling import Interval
from rlvr_jax.analysis.credit.weights import load_selection
from rlvr_jax.config import Config
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.probe.selection import FeatureSelection
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE


class Comparison(Protocol):
    """A command's result for one policy: a dataclass whose JSON has its fields."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        ...

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> Self:
        """Returns the comparison that `to_json` wrote."""
        ...


_Found = TypeVar("_Found", bound=Comparison)


class ProbedRun(NamedTuple):
    """A run whose policy before RL is measured, and its reasoning features."""

    workdir: Path
    config: Config
    selection: FeatureSelection


def open_runs(
    workdirs: Sequence[str], check: Callable[[Config], None]
) -> list[ProbedRun]:
    """Returns the runs; `check` raises UsageError for a config that cannot be used.

    Raises UsageError if a run has no features or is given twice.
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
    asked: Mapping[str, object],
    kind: type[_Found],
    measure: Callable[[ProbedRun], _Found],
    tell: Callable[[_Found, str], str],
) -> None:
    """Prints the result for each run's policy and, for several, their mean.

    `tell` formats a result. Its second argument names the units of the intervals; "" is
    for the units within one policy.
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
    """Returns the average of several policies' results, which have the same fields.

    An interval becomes the policies' mean with Student's t over policies; the ends of
    the single intervals are not used. Counts are added and lists are joined. The
    entries of a dataclass or a dict are averaged one by one.
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
    asked: Mapping[str, object],
    kind: type[_Found],
    measure: Callable[[], _Found],
) -> _Found:
    """Returns the result in `file` if its settings match, else measures and writes it.

    A command that was interrupted can thus resume with the policy that it was at. If
    the file has other fields, from an earlier version, the policy is measured again.
    """
    record = json.loads(file.read_text()) if file.is_file() else {}
    names = {field.name for field in dataclasses.fields(kind)}
    if record.keys() == {"asked", *names} and record["asked"] == asked:
        print(f"using {file}; remove it to measure again", file=sys.stderr)
        return kind.from_json(record)
    found = measure()
    write_json(file, {"asked": asked, **found.to_json()})
    return found
