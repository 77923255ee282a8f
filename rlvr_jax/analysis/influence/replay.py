"""A step of RL, taken again from its checkpoint as often as one likes.

The step runs in a temporary fork of the run, by the code of stage `train`. A step
depends only on (config, step) and the state before it, so it samples the same
completions and ends with the same bits. Nothing in the run itself changes.
"""

import contextlib
import dataclasses
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
from flax import nnx

from job_jax.checkpoint import StageCheckpoints
from job_jax.files import checkpoint_steps
from job_jax.mesh import start_jax
from job_jax.metrics import CompileCounter, MetricsWriter
from job_jax.metrics_file import METRICS_FILE, read_records
from job_jax.steps import StopSignal
from job_jax.working import working
from rlvr_jax.config import Config
from rlvr_jax.learn.update import TrainState
from rlvr_jax.rewards.parts import verifiers_of_rewards
from rlvr_jax.rollouts.collect import RolloutBatch
from rlvr_jax.run.cpu_devices import choose_mesh
from rlvr_jax.run.fork import make_fork
from rlvr_jax.run.lineage import CONFIG_FILE, read_lineage
from rlvr_jax.run.setup import open_setup
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.stages.context import RunContext
from rlvr_jax.stages.trainer import (
    Trainer,
    next_state,
    resume_or_init,
    step_metrics,
    update_policy,
)
from rlvr_jax.stages.trainer_rollouts import collect_step
from rlvr_jax.stages.trainer_state import TrainerState


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay:
    """A step that can be taken again: its state, and the rollouts sampled from it.

    Made by `open_replay`. `source` is the run's own directory.
    """

    source: Path
    step: int
    trainer: Trainer
    state: TrainerState
    rollouts: RolloutBatch

    def update(self, rollouts: RolloutBatch) -> tuple[nnx.State, dict[str, float]]:
        """Returns the trained parameters after the step, and the step's metrics.

        `rollouts` are the step's own, or the same with something removed.
        """
        state = dataclasses.replace(self.state, device=self._copy_device())
        with working("updating"):
            update = update_policy(
                self.trainer, state, self.step, rollouts, timer=StepTimer()
            )
        after = next_state(self.trainer, state, self.step, rollouts, update)
        metrics = step_metrics(self.trainer, after, rollouts, update)
        return after.device.params, metrics

    def merge(self, params: nnx.State) -> nnx.State:
        """Returns the whole policy's parameters from the trained ones."""
        return self.trainer.trainable.merge_frozen(params)

    def checkpoint_steps(self) -> list[int]:
        """Returns the steps with a checkpoint, and the step of the replay."""
        kept = checkpoint_steps(self.source / "checkpoints/train")
        return sorted({*kept, self.step})

    def load_params(self, step: int) -> nnx.State:
        """Returns the trained parameters at one of `checkpoint_steps`."""
        if step == self.step:
            return self.state.device.params
        folder = self.source / "checkpoints/train"
        with StageCheckpoints(folder) as checkpoints, working(f"loading step {step}"):
            return checkpoints.restore_params(step, self.trainer.trainable.abstract)

    def gap_to_next_checkpoint(self, params: nnx.State) -> float | None:
        """Returns the largest difference of a weight from the run's own next step.

        `params` are the trained parameters after the step. None if the run has not kept
        the checkpoint of that step.
        """
        if self.step + 1 not in self.checkpoint_steps():
            return None
        gaps = jax.tree.map(
            lambda ours, theirs: jnp.abs(ours - theirs).max().astype(jnp.float32),
            params,
            self.load_params(self.step + 1),
        )
        return float(jnp.stack(jax.tree.leaves(gaps)).max())

    def _copy_device(self) -> TrainState:
        """Returns a copy of the state on the devices, because updates consume it."""
        return jax.tree.map(jnp.copy, self.state.device)


@contextlib.contextmanager
def open_replay(
    source: Path, step: int, config: Config, *, scratch: Path
) -> Iterator[Replay]:
    """Yields the step after `step` steps of the run in `source`, sampled again.

    The temporary fork lies in `scratch`. Starts JAX; within the context, the mesh is
    set and verifiers may be used.
    """
    with tempfile.TemporaryDirectory(dir=scratch, prefix=".influence-") as folder:
        fork = Path(folder) / "run"
        with working("copying the run"):
            make_fork(source, step, fork, config=config, changes=(), name=str(source))
        start_jax(choose_mesh(config, fork))
        with working("reading the problems"):
            setup = open_setup(
                config, Workdir(fork, config).tokenizer_path, stages=("train", "eval")
            )
        record = json.loads((fork / CONFIG_FILE).read_text())
        with (
            jax.set_mesh(setup.mesh),
            setup.verifier,
            MetricsWriter(fork) as writer,
        ):
            rewards = verifiers_of_rewards(config.train.reward)
            for name in sorted({*setup.first_by_verifier(), *rewards}):
                verifier = setup.verifier.open_verifier(name)
                verifier.keep_state(fork / name)  # the grades of a judge
                verifier.check_ready()
            ctx = RunContext(
                setup=setup,
                workdir=Workdir(fork, config),
                writer=writer,
                stop_signal=StopSignal(),
                compile_counter=CompileCounter(),
                lineage=read_lineage(record),
            )
            yield _sample_step(source, step, ctx)


def _sample_step(source: Path, step: int, ctx: RunContext) -> Replay:
    """Returns the step with its state and its rollouts."""
    with working("loading the policy"):
        trainer = Trainer.open(ctx)
        with ctx.stage_steps("train", ctx.setup.config.train.steps) as steps:
            state = resume_or_init(trainer, steps)
    with working(f"sampling the batch of step {step}"):
        rollouts, state = collect_step(trainer, state, step, timer=StepTimer())
    return Replay(
        source=source, step=step, trainer=trainer, state=state, rollouts=rollouts
    )


def largest_metric_gap(
    source: Path, step: int, metrics: Mapping[str, float]
) -> tuple[str, float] | None:
    """Returns the metric of the step that differs most from the run's, and how much.

    The difference is relative to the larger of the two. Times are not compared. The
    name is "" if nothing differs. None if the run has no line for the step.
    """
    worst = None
    for _, row in read_records(source / METRICS_FILE):
        if row["stage"] != "train" or row["step"] != step:
            continue
        worst = ("", 0.0)
        for name, value in metrics.items():
            recorded = row.get(name)
            if recorded is None:
                continue
            gap = abs(recorded - value) / max(abs(recorded), abs(value), 1e-30)
            worst = max(worst, (name, gap), key=lambda pair: pair[1])
    return worst
