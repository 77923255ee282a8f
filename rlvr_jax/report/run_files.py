"""Reads the files in a run's workdir. The run need not be finished."""

import dataclasses
import functools
import json
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from job_jax.config_io import from_json, to_json
from job_jax.flags import UsageError
from job_jax.metrics_file import METRICS_FILE, StageMetrics, read_stages
from job_jax.schema import ConfigError, did_you_mean
from job_jax.workdir import SUMMARY_FILE
from rlvr_jax.config import Config, DifficultyConfig
from rlvr_jax.metrics.doctor import Alarm, check_run
from rlvr_jax.metrics.progress_symptoms import draws_alike
from rlvr_jax.report.charts import BLUE, Line, NotebookFigure, Panel, draw_figure
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE
from rlvr_jax.run.workdir import read_rollouts, rollouts_file, saved_rollouts


class NotAWorkdirError(UsageError):
    """The directory is missing, or holds no run. The message says which."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunArtifacts:
    """A workdir's files, parsed. `metrics` holds each stage's lines, by column.

    `metadata` is all of config.json (config, seed, device, commit, versions). `summary`
    is empty until the run writes one.
    """

    path: pathlib.Path
    metadata: dict[str, Any]
    metrics: dict[str, StageMetrics]
    summary: dict[str, Any]

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Returns the resolved configuration.

        Fields that are newer than the run are included, at their defaults.
        """
        config = self.metadata["config"]
        try:
            return to_json(from_json(Config, config))
        except ConfigError:  # another kind of job, or a class that is not available
            return config

    @property
    def band_thresholds(self) -> DifficultyConfig:
        """Returns the pass rates that separate the run's difficulty bands."""
        difficulty = self.config["difficulty"]
        return DifficultyConfig(
            hard_below=difficulty["hard_below"], easy_above=difficulty["easy_above"]
        )

    def stage(self, name: str) -> StageMetrics:
        """Returns a stage's lines, possibly none."""
        return self.metrics.get(name, StageMetrics())

    def series(self, stage: str, name: str) -> tuple[Sequence[int], Sequence[float]]:
        """Returns the steps at which a stage wrote a metric, and its values there."""
        return self.stage(stage).series(name)

    def match_metrics(self, stage: str, pattern: str) -> list[str]:
        r"""Returns what the pattern's first group matches in a stage's metric names.

        Matches are unique and sorted, numbers as numbers. For example,
        `level_(\d+)/pass` gives the levels.
        """
        matches = (re.fullmatch(pattern, name) for name in self.stage(stage).names)
        groups = {match[1] for match in matches if match}
        return sorted(groups, key=lambda g: (int(g) if g.isdigit() else -1, g))

    @functools.cached_property
    def level_names(self) -> dict[int, str]:
        """Returns the names that the run's data gives to levels, often none."""
        rows = (
            row
            for stage in ("train", "eval_before")
            for step in self.rollout_steps(stage)[:1]
            for row in self.rollouts(stage, step)
        )
        return {row["level"]: row["level_name"] for row in rows if "level_name" in row}

    def level_label(self, level: int) -> str:
        """Returns "level 2", or "hard" if the data names its levels."""
        return self.level_names.get(level, f"level {level}")

    @functools.cached_property
    def alarms(self) -> list[Alarm]:
        """Returns the run doctor's alarms over the training steps so far."""
        # By JSON, because a class of the run's own config may not be available here.
        return check_run(
            self.stage("train"),
            total_steps=self.config["train"]["steps"],
            window=self.config["log"]["alarm_window"],
            max_logprob_mismatch=self.config["train"]["max_logprob_mismatch"],
            max_unexplained_growth=self.config["probe"]["max_unexplained_growth"],
            max_splice_cost=self.config["probe"]["max_splice_cost"],
            draws_alike=draws_alike(
                self.config.get("curriculum", {}),
                max_rounds=self.config.get("dynamic_sampling", {}).get("max_rounds", 0),
            ),
        )

    def plot(self, metric: str, *, stage: str = "train") -> NotebookFigure:
        """Returns a figure of a metric over a stage's steps, as in the report.

        The strong line is the moving mean over a twelfth of the steps, the faint one
        the values. In a notebook a cell that ends in `run.plot("reward/mean")` shows
        it; `savefig` writes it to a file. Raises UsageError if the stage did not log
        the metric.
        """
        if stage not in self.metrics:
            nearest = did_you_mean(stage, self.metrics)
            raise UsageError(f"{self.path} has no steps of stage {stage!r}{nearest}")
        steps, values = self.series(stage, metric)
        if not len(steps):
            nearest = did_you_mean(metric, self.stage(stage).names)
            raise UsageError(f"stage {stage!r} logged no metric {metric!r}{nearest}")
        line = Line(label="", color=BLUE, x=steps, y=values, show_raw=True)
        return draw_figure(Panel(title=metric, lines=[line]))

    def rollout_steps(self, stage: str) -> list[int]:
        """Returns the steps of a stage whose completions were saved."""
        return saved_rollouts(self.path).get(stage, [])

    def rollouts(self, stage: str, step: int) -> list[dict[str, Any]]:
        """Returns the completions saved at one step."""
        return read_rollouts(rollouts_file(self.path, stage, step))


def to_plain_json(value: object) -> Any:
    """Returns the value as plain JSON: NaN and infinity become null, no NumPy."""
    if isinstance(value, dict):
        return {str(name): to_plain_json(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [to_plain_json(item) for item in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def read_run(workdir: str | os.PathLike[str]) -> RunArtifacts:
    """Returns the run in `workdir`.

    Raises NotAWorkdirError if it holds no run.
    """
    path = pathlib.Path(workdir)
    if not path.is_dir():
        raise NotAWorkdirError(f"{path} is not a directory")
    if not (path / CONFIG_FILE).is_file():
        raise NotAWorkdirError(f"{path} holds no {CONFIG_FILE}: no run started there")
    file = path / METRICS_FILE
    summary = path / SUMMARY_FILE
    return RunArtifacts(
        path=path,
        metadata=json.loads((path / CONFIG_FILE).read_text(encoding="utf-8")),
        metrics=read_stages(file) if file.is_file() else {},
        summary=(
            json.loads(summary.read_text(encoding="utf-8")) if summary.is_file() else {}
        ),
    )


def read_runs(workdirs: Sequence[str]) -> dict[str, RunArtifacts]:
    """Returns the runs by the names given, which may be folders or bucket addresses.

    Raises NotAWorkdirError, and UsageError if a run is given twice.
    """
    paths = [local_run(workdir).resolve() for workdir in workdirs]
    if len({*paths}) < len(paths):
        raise UsageError(f"a run is given twice: {', '.join(workdirs)}")
    return {name: read_run(path) for name, path in zip(workdirs, paths, strict=True)}
