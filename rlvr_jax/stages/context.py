"""The context that a run's stages share, and the results that they leave."""

import dataclasses
from collections.abc import Mapping

from flax import nnx

from job_jax.config_io import to_json
from job_jax.mesh import describe_devices
from job_jax.metrics import CompileCounter, MetricsWriter
from job_jax.metrics_file import METRICS_FILE, StageMetrics, read_stages
from job_jax.processes import is_primary
from job_jax.schema import check
from job_jax.steps import StageSteps, StopSignal
from rlvr_jax.learn.presets import algorithm_name
from rlvr_jax.metrics.rollouts import run_summary
from rlvr_jax.probe.rfgo_state import rfgo_summary
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.load import load_checkpoint_params, load_params_before_rl
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.stage_table import STAGES, count_steps, is_finished
from rlvr_jax.run.workdir import Workdir


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunContext:
    """An opened run and its workdir. Made by the command, passed to every stage."""

    setup: RunSetup
    workdir: Workdir
    writer: MetricsWriter
    stop_signal: StopSignal
    compile_counter: CompileCounter
    lineage: Lineage | None = None  # None: not started from another run

    def stage_steps(self, name: str, num_steps: int) -> StageSteps:
        """Returns the bookkeeping of one stage's steps."""
        return StageSteps(
            name,
            num_steps,
            directory=self.workdir.checkpoints,
            checkpoint=self.setup.config.checkpoint,
            progress_every=self.setup.config.log.progress_every,
            writer=self.writer,
            stop_signal=self.stop_signal,
            after_step=self.workdir.after_step,
        )

    def update_summary(self, values: Mapping[str, object]) -> None:
        """Merges `values` and the numbers of the run so far into summary.json."""
        if not is_primary():
            return
        config = self.setup.config
        stages = read_stages(self.workdir.path / METRICS_FILE)
        old = self.workdir.read_summary()
        self.workdir.update_summary(
            {
                "probe_overhead": old.get("probe_overhead"),
                "rfgo": old.get("rfgo") or rfgo_summary(None),
                "config": to_json(config),
                "task": config.task.describe(),
                "algorithm": algorithm_name(config),
                "seed": config.seed,
                "device": describe_devices(),
                "compile_count": self.compile_counter.count,
                "too_long": self.setup.too_long,
                "invalid_golds": self.setup.invalid_golds,
                **run_summary(stages.get("train", StageMetrics()), config),
                **values,
            }
        )


def describe_update(*, is_first: bool) -> str:
    """Returns the progress text of an optimizer step."""
    return "compiling and running the first update" if is_first else "updating"


def load_stage_params(ctx: RunContext, stage: str) -> nnx.State:
    """Returns the policy's parameters after stage `sft` or `train`.

    A stage without steps changes nothing: its parameters are those before it, which at
    first are the ones that the run starts from.
    """
    setup = ctx.setup
    config = setup.config
    checkpoints = ctx.workdir.checkpoints
    if stage == "sft" or not config.train.steps:
        return load_params_before_rl(setup, checkpoints)
    return load_checkpoint_params(setup, checkpoints / stage, config.train.steps)


def require_finished(ctx: RunContext, *stages: str) -> None:
    """Raises ConfigError, naming the command, if one of the stages is not finished.

    A stage with steps is finished when all are done.
    """
    config, workdir = ctx.setup.config, ctx.workdir
    for stage in stages:
        if (num_steps := STAGES[stage].num_steps) is not None:
            done, total = count_steps(stage, workdir), num_steps(config)
            problem = (
                f"has done {done} of {total} steps in {workdir.checkpoints / stage}"
            )
            finished = done == total
        else:
            problem = f"has not ended in {workdir.path}"
            finished = is_finished(stage, config=config, workdir=workdir)
        check(
            finished,
            f"stage {stage} {problem}; run --stage={stage} or --stage=all first",
        )
