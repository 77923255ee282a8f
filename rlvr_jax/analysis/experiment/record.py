"""The file that says which experiment a directory holds."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from job_jax.command import UsageError
from job_jax.files import write_json
from job_jax.workdir import SUMMARY_FILE
from rlvr_jax.config.experiment import Experiment

EXPERIMENT_FILE = "experiment.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentRecord:
    """An experiment, and whether its runs are the reduced ones."""

    experiment: Experiment
    is_reduced: bool


def read_record(folder: Path) -> ExperimentRecord:
    """Returns what `write_record` wrote. Raises UsageError where there is none."""
    path = folder / EXPERIMENT_FILE
    if not path.is_file():
        raise UsageError(
            f"{folder} holds no {EXPERIMENT_FILE}; give the --workdir of an experiment "
            "(python -m rlvr_jax.experiment)"
        )
    try:
        data = json.loads(path.read_text())
        return ExperimentRecord(
            experiment=Experiment.from_json(data["experiment"]),
            is_reduced=data["is_reduced"],
        )
    except (ValueError, TypeError, KeyError) as error:
        raise UsageError(f"{path} is no record of an experiment: {error}") from error


def write_record(folder: Path, record: ExperimentRecord) -> None:
    """Writes the record.

    Raises UsageError where the directory holds runs of another experiment: the same
    question may get more arms and seeds, but no arm may become another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / EXPERIMENT_FILE).is_file():
        _check_same(folder, read_record(folder), record)
    write_json(
        folder / EXPERIMENT_FILE,
        {"experiment": record.experiment.to_json(), "is_reduced": record.is_reduced},
    )


def _check_same(folder: Path, old: ExperimentRecord, new: ExperimentRecord) -> None:
    differ = ["--reduced"] if old.is_reduced != new.is_reduced else []
    if new.is_reduced and old.experiment.reduced != new.experiment.reduced:
        differ.append("reduced")
    before, after = (_overrides(record.experiment) for record in (old, new))
    differ += [name for name in before if before[name] != after.get(name)]
    if differ:
        raise UsageError(
            f"{folder} holds runs of another experiment, which differs in "
            f"{', '.join(differ)}; use another --workdir"
        )


def _overrides(experiment: Experiment) -> dict[str, object]:
    """Returns all that makes each start and each arm what it is, by name."""
    return {
        "start_stages": experiment.start_stages,
        **experiment.starts,
        **{name: (arm.start, arm.overrides) for name, arm in experiment.arms.items()},
    }


def workdir_of(folder: Path, name: str, seed: int) -> Path:
    """Returns where the run of an arm or a start lies."""
    return folder / name / f"seed_{seed}"


def read_summary(workdir: Path) -> dict[str, Any]:
    """Returns a run's summary.json, {} where there is none yet."""
    path = workdir / SUMMARY_FILE
    return json.loads(path.read_text()) if path.is_file() else {}


def has_scores(workdir: Path) -> bool:
    """Returns whether a run has been evaluated after RL."""
    return "after" in read_summary(workdir).get("eval", {})
