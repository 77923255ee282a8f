"""What the stages of a run share: their bookkeeping, and what each leaves the next."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from job_jax.checkpoint import latest_step
from job_jax.compiles import CompileCounter
from job_jax.config_io import to_json
from job_jax.mesh import device_name
from job_jax.metrics import METRICS_FILE, MetricsWriter, read_metrics
from job_jax.processes import from_primary, is_primary
from job_jax.schema import ConfigError, require
from job_jax.steps import StageSteps, StopSignal
from rlvr_jax import guidance
from rlvr_jax.adapters import saved_params
from rlvr_jax.config import Config
from rlvr_jax.run import Run
from rlvr_jax.telemetry import run_summary
from rlvr_jax.workdir import DIFFICULTY_FILE, Workdir


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loop:
    """What the stages of a run share."""

    run: Run
    workdir: Workdir
    writer: MetricsWriter
    stop: StopSignal
    compiles: CompileCounter

    def steps(self, name: str, total: int) -> StageSteps:
        """Returns the bookkeeping of one stage's steps."""
        return StageSteps(
            name,
            total,
            directory=self.workdir.checkpoints,
            checkpoint=self.run.config.checkpoint,
            progress_every=self.run.config.log.progress_every,
            writer=self.writer,
            stop=self.stop,
        )

    def summarise(self, values: Mapping[str, Any]) -> None:
        """Merges `values` into summary.json, beside what holds for the whole run."""
        if not is_primary():
            return
        config = self.run.config
        rows = read_metrics(self.workdir.path / METRICS_FILE)
        old = self.workdir.read_summary()
        self.workdir.update_summary(
            {
                "probe_overhead": old.get("probe_overhead"),
                "rfgo": old.get("rfgo") or guidance.summary(None),
                "config": to_json(config),
                "seed": config.seed,
                "device": device_name(),
                "compile_count": self.compiles.count,
                "too_long": self.run.too_long,
                "unreadable_golds": self.run.unreadable,
                **run_summary(rows, config),
                **values,
            }
        )


def policy_after(loop: Loop, stage: str) -> Any:
    """Returns the parameters that a stage ended with.

    A stage of no steps leaves what was there before it: in the end, parameters drawn
    from the seed.
    """
    run, steps = loop.run, _steps(loop.run.config)
    if stage == "train" and steps["train"] == 0:
        stage = "warmup"
    if steps[stage] == 0:
        return run.initial_params()
    return saved_params(run, loop.workdir.checkpoints / stage, steps[stage])


def is_done(stage: str, *, config: Config, workdir: Workdir) -> bool:
    """Returns whether a stage has ended, with what it left still in the workdir."""
    return from_primary(lambda: _is_done(stage, config=config, workdir=workdir))


def _is_done(stage: str, *, config: Config, workdir: Workdir) -> bool:
    summary = workdir.read_summary()
    if stage == "difficulty":
        told = (workdir.path / DIFFICULTY_FILE).exists() and "difficulty" in summary
        return config.difficulty.samples == 0 or told
    if stage == "tsae":
        return config.probe.source == "off" or "features" in summary
    if stage == "eval":
        return summary.get("eval", {}).keys() >= {"before", "after"}
    saved = latest_step(workdir.checkpoints / stage) or 0
    return saved == _steps(config)[stage] and stage in summary.get("stages", {})


def check_ended(loop: Loop, *stages: str) -> None:
    """Raises ConfigError where one of the stages has not done all its steps."""
    for stage in stages:
        if stage in ("difficulty", "tsae"):
            require(
                is_done(stage, config=loop.run.config, workdir=loop.workdir),
                f"stage {stage} has not ended in {loop.workdir.path}; run "
                f"--stage={stage} or --stage=all first",
            )
            continue
        directory = loop.workdir.checkpoints / stage
        total = _steps(loop.run.config)[stage]
        done = from_primary(functools.partial(latest_step, directory)) or 0
        if done != total:
            raise ConfigError(
                f"stage {stage} has done {done} of {total} steps in {directory}; run "
                f"--stage={stage} or --stage=all first"
            )


def _steps(config: Config) -> dict[str, int]:
    return {"warmup": config.warmup.steps, "train": config.train.steps}
