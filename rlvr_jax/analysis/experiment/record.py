"""The file that says which experiment a directory holds."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job_jax.config_io import diff_json, from_json, keep_earlier_values, to_json
from job_jax.files import write_json
from job_jax.flags import UsageError
from job_jax.schema import ConfigError
from job_jax.workdir import SUMMARY_FILE
from rlvr_jax.analysis.compare.arms import compared_config
from rlvr_jax.config import Config
from rlvr_jax.config.experiment import Experiment

EXPERIMENT_FILE = "experiment.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """An experiment, the recipe that its arms differ from, and whether it is reduced.

    `recipe` is the config as JSON, without fields that do not affect a run's numbers.
    """

    experiment: Experiment
    recipe: Mapping[str, Any]
    is_reduced: bool


def make_record(
    experiment: Experiment, recipe: Config, *, is_reduced: bool
) -> ExperimentRecord:
    """Returns the record of an experiment that is about to run."""
    return ExperimentRecord(
        experiment=experiment,
        recipe=compared_config(to_json(recipe)),
        is_reduced=is_reduced,
    )


def read_record(folder: Path) -> ExperimentRecord:
    """Returns the record that `write_record` wrote. Raises UsageError without one."""
    path = folder / EXPERIMENT_FILE
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no {EXPERIMENT_FILE}; give the --workdir of an experiment "
            "(python -m rlvr_jax.experiment)"
        )
    try:
        data = json.loads(path.read_text())
        experiment = Experiment.from_json(data.pop("experiment"))
        return ExperimentRecord(experiment=experiment, **data)
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is not an experiment's record: {error}") from error


def write_record(folder: Path, record: ExperimentRecord) -> None:
    """Writes the record, which must have passed `check_record`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(
        folder / EXPERIMENT_FILE,
        {**vars(record), "experiment": record.experiment.to_json()},
    )


def check_record(folder: Path, new: ExperimentRecord, recipe: Config) -> None:
    """Raises UsageError if the directory holds runs of another experiment.

    An experiment may get more arms and seeds later. But arms, the baseline and the
    first outcome must not change, and no seed may be removed. `recipe` is the config of
    `new`.
    """
    if not (folder / EXPERIMENT_FILE).is_file():
        return
    old = read_record(folder)
    differ = ["--reduced"] if old.is_reduced != new.is_reduced else []
    before, after = (_what_is_fixed(record) for record in (old, new))
    differ += [name for name in before if before[name] != after.get(name)]
    differ += _differences(old.recipe, recipe)
    if lost := sorted({*old.experiment.seeds} - {*new.experiment.seeds}):
        differ.append(f"seeds without {', '.join(map(str, lost))}")
    if differ:
        raise UsageError(
            f"{folder} holds runs of another experiment, which differs in "
            f"{', '.join(differ)}; use another --workdir"
        )


def _differences(old: Mapping[str, object], recipe: Config) -> list[str]:
    """Returns the fields in which a recorded recipe differs.

    Fields that are newer than the record count as defaults. Fields that do not affect a
    run's numbers were not recorded.
    """
    new = to_json(recipe)
    compared = compared_config(new)
    aside = {name: value for name, value in new.items() if name not in compared}
    try:
        before = from_json(Config, {**aside, **old})
    except ConfigError as error:
        return [f"what this version cannot read ({error})"]
    compared = compared_config(to_json(keep_earlier_values(before, recipe)))
    lines = diff_json(compared_config(to_json(before)), compared)
    return [line.split(":")[0] for line in lines]


def _what_is_fixed(record: ExperimentRecord) -> dict[str, object]:
    """Returns all that must not change: what decides, the starts and the arms.

    Keys cannot clash, because names of starts and arms have no spaces.
    """
    experiment = record.experiment
    return {
        "the baseline": experiment.baseline,
        "the first outcome": experiment.outcomes[0],
        "the stages of starts": experiment.start_stages,
        **({"what is reduced": experiment.reduced} if record.is_reduced else {}),
        **experiment.starts,
        **{name: (arm.start, arm.overrides) for name, arm in experiment.arms.items()},
        **{f"the slope {name}": slope for name, slope in experiment.slopes.items()},
    }


def workdir_of(folder: Path, name: str, seed: int) -> Path:
    """Returns the workdir of an arm's or a start's run."""
    return folder / name / f"seed_{seed}"


def read_summary(workdir: Path) -> dict[str, Any]:
    """Returns a run's summary.json, {} before it is written. Raises UsageError."""
    path = workdir / SUMMARY_FILE
    try:
        return json.loads(path.read_text()) if path.is_file() else {}
    except ValueError as error:
        raise UsageError(f"{path} is damaged: {error}") from error


def has_scores(workdir: Path) -> bool:
    """Returns whether a run has been evaluated after RL."""
    return "after" in read_summary(workdir).get("eval", {})
