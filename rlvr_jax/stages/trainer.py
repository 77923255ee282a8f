"""The parts of a training step, in the order in which `train` calls them."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Self

import jax
import numpy as np
from flax import nnx

from job_jax.steps import StageSteps
from rlvr_jax.data import Pool
from rlvr_jax.data.difficulty_summary import difficulty_metrics, summarize_initial_bands
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.run_updates import UpdateResult, run_updates
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.metrics import doctor
from rlvr_jax.metrics.doctor import DoctorState
from rlvr_jax.metrics.rollouts import rollout_metrics
from rlvr_jax.metrics.scores import summarize_completions
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.probe.rfgo_state import RFGOState
from rlvr_jax.rollouts.collect import RolloutBatch
from rlvr_jax.rollouts.graded import training_rows
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.start import count_earlier_batches, load_start_state
from rlvr_jax.run.throughput import StepTimer, Timing
from rlvr_jax.run.trainable import TrainableParams, split_trainable
from rlvr_jax.stages.context import RunContext, load_stage_params
from rlvr_jax.stages.difficulty import initial_difficulty, update_difficulty
from rlvr_jax.stages.held_out import evaluate_held_out
from rlvr_jax.stages.probe_hooks import ProbeCallback, ProbeStep
from rlvr_jax.stages.trainer_state import TrainerState
from rlvr_jax.tokenizer.classes import token_classes

_NUM_TEXT_SAMPLES = 4  # completions of a step that TensorBoard shows


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """The immutable context of the steps of stage `train`. Made by `open`.

    The setup in `ctx` has the graphdef of the whole policy, adapters included.
    `reference` holds the parameters of the reference policy, None if nothing reads
    them. `batch_key` returns a batch's sampling key from the batch's number.
    """

    ctx: RunContext
    trainable: TrainableParams
    pool: Pool
    updater: Updater
    probe: ProbeCallback | None
    reference: nnx.State | None
    sampling: SamplingParams
    batch_key: Callable[[np.uint32], jax.Array]

    @classmethod
    def open(cls, ctx: RunContext) -> Self:
        """Opens the context of training, with the policy after stage `sft`."""
        config = ctx.setup.config.train
        trainable = split_trainable(ctx.setup, lambda: load_stage_params(ctx, "sft"))
        setup = trainable.setup
        probe = ProbeCallback.open(ctx, trainable)
        has_reference = config.loss.kl_coef > 0 or config.rfgo.needs_reference_policy
        return cls(
            ctx=dataclasses.replace(ctx, setup=setup),
            trainable=trainable,
            pool=Pool(setup.sources["train"], setup.config),
            updater=Updater(
                setup.graphdef,
                policy_objective(config.loss, token_classes(setup.tokenizer)),
                optimizer=config.optimizer,
                total_steps=config.optimizer_steps,
                logits_chunk_size=config.logits_chunk_size,
                seed=setup.config.seed,
                probe=probe.spec if probe else None,
                frozen=trainable.frozen,
            ),
            probe=probe,
            # Updates donate their state, so the reference needs separate arrays.
            reference=trainable.init() if has_reference else None,
            sampling=setup.replicate(SamplingParams.from_config(config.sampling)),
            batch_key=jax.jit(
                functools.partial(jax.random.fold_in, setup.stream_key("train"))
            ),
        )

    @property
    def setup(self) -> RunSetup:
        """Returns the run whose policy is trained."""
        return self.ctx.setup

    def end_probe(
        self, state: TrainerState, last_step: ProbeStep | None, *, num_steps: int
    ) -> None:
        """Writes the probe's results after the last step, if the run has a probe."""
        if self.probe is None or state.rfgo is None:
            return
        self.probe.on_train_end(
            state.rfgo,
            state.device.params,
            last_step=last_step,
            timing=state.timing,
            num_steps=num_steps,
            updater=self.updater,
            sampling=self.sampling,
        )


def resume_or_init(trainer: Trainer, steps: StageSteps) -> TrainerState:
    """Returns the state of the newest checkpoint, or the state before step 0."""
    trainable, updater = trainer.trainable, trainer.updater
    workdir, lineage = trainer.ctx.workdir, trainer.ctx.lineage

    def abstract() -> TrainState:
        return updater.abstract_state(trainable.abstract)

    def init() -> TrainState:
        if lineage and lineage.has_optimizer:
            return load_start_state(workdir, abstract())
        return updater.init(trainable.init())

    device, saved = steps.resume_or_init(init, abstract)
    if saved is not None:
        return TrainerState.from_json(device, saved, pool=trainer.pool)
    return TrainerState(
        device=device,
        difficulty=dataclasses.replace(
            initial_difficulty(trainer.ctx, trainer.pool),
            num_batches=count_earlier_batches(workdir),
        ),
        doctor=DoctorState(),
        timing=Timing(),
        rfgo=trainer.probe.init_state() if trainer.probe else None,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class StepUpdate:
    """A step's optimizer steps, and what the probe read in them. By `update_policy`."""

    result: UpdateResult
    rfgo: RFGOState | None  # after the step
    probe_step: ProbeStep | None
    probe_metrics: dict[str, float] = dataclasses.field(default_factory=dict)
    messages: tuple[str, ...] = ()  # the probe's, to log


def update_policy(
    trainer: Trainer,
    state: TrainerState,
    step: int,
    rollouts: RolloutBatch,
    *,
    timer: StepTimer,
) -> StepUpdate:
    """Takes a step's optimizer steps. Consumes the device part of `state`."""
    setup, probe, rfgo = trainer.setup, trainer.probe, state.rfgo
    batch = batch_from_rollouts(
        rollouts.groups.rollouts,
        rollouts.advantages,
        bands_P=rollouts.bands,
        external=rollouts.external,
        mask_truncated=setup.config.train.loss.mask_truncated,
    )
    probe_step = None
    if probe is not None and rfgo is not None:
        probe_step = probe.on_update_begin(
            rfgo, step, state.device.params, rollouts, batch
        )
        batch = probe_step.batch
    timer.lap("probe")
    result = run_updates(
        setup.config,
        trainer.updater,
        state.device,
        batch=batch,
        weight_version=rollouts.groups.rollouts.weight_version,
        ref_params=trainer.reference,
        sampling=trainer.sampling,
        to_device=setup.shard_batch,
        probe=probe_step.inputs if probe_step else None,
    )
    timer.lap("update")
    if probe is None or rfgo is None or probe_step is None:
        return StepUpdate(result=result, rfgo=rfgo, probe_step=None)
    rfgo, metrics, messages = probe.on_update_end(rfgo, step, probe_step, result)
    timer.lap("probe")
    return StepUpdate(
        result=result,
        rfgo=rfgo,
        probe_step=probe_step,
        probe_metrics=metrics,
        messages=tuple(messages),
    )


def next_state(
    trainer: Trainer,
    state: TrainerState,
    step: int,
    rollouts: RolloutBatch,
    update: StepUpdate,
) -> TrainerState:
    """Returns the state with the new weights and with what the step's outcomes say."""
    return dataclasses.replace(
        state,
        device=update.result.state,
        rfgo=update.rfgo,
        difficulty=update_difficulty(
            trainer.setup.config,
            state.difficulty,
            rollouts.outcomes,
            step=step,
            num_batches=rollouts.num_batches,
        ),
    )


def step_metrics(
    trainer: Trainer, state: TrainerState, rollouts: RolloutBatch, update: StepUpdate
) -> dict[str, float]:
    """Returns the metrics of a step; `state` is the one after it."""
    config = trainer.setup.config
    return {
        **update.result.metrics,
        **_rollout_metrics(rollouts, k=config.eval.ks),
        **update.probe_metrics,
        **difficulty_metrics(state.difficulty, config.difficulty),
    }


def check_health(
    trainer: Trainer, state: TrainerState, step: int, metrics: Mapping[str, float]
) -> tuple[TrainerState, list[str]]:
    """Returns the state with the doctor's memory of the step, and its alarms."""
    config = trainer.setup.config
    doctor_state, alarms = doctor.check_step(
        state.doctor,
        step,
        metrics,
        **doctor.alarm_limits(config),
    )
    return dataclasses.replace(state, doctor=doctor_state), [*map(str, alarms)]


def warn_of_fallback(
    trainer: Trainer, state: TrainerState, metrics: Mapping[str, float]
) -> list[str]:
    """Returns a warning if the curriculum found no problem for some of the prompts."""
    share = metrics["curriculum/fallback"]
    if not share:
        return []
    config = trainer.setup.config
    bands = summarize_initial_bands(state.difficulty, config.difficulty)["bands"]
    counts = ", ".join(f"{band} {count}" for band, count in bands.items())
    return [
        f"warning: curriculum.name={config.curriculum.tags()['name']} found no "
        f"eligible problem for {100 * share:.0f} % of the prompts; they come from all "
        f"{state.difficulty.size} problems (before RL: {counts})"
    ]


def measure_time(
    trainer: Trainer,
    state: TrainerState,
    rollouts: RolloutBatch,
    *,
    timer: StepTimer,
    is_timed: bool,
) -> tuple[TrainerState, dict[str, float]]:
    """Returns the state with the step's timing, and the metrics of its phases.

    Steps that are not `is_timed` do not count in the throughput.
    """
    overlap = timer.overlap_seconds(
        drawn.in_flight for drawn in state.pending if drawn.in_flight
    )
    metrics = {f"time/{phase}_s": value for phase, value in timer.seconds.items()}
    if trainer.setup.config.train.staleness:
        metrics["time/overlap_s"] = overlap
    if is_timed:
        timing = state.timing.add_step(
            timer,
            sampled_tokens=rollouts.sampled_tokens,
            trained_tokens=rollouts.trained_tokens,
            overlap_seconds=overlap,
        )
        state = dataclasses.replace(state, timing=timing)
    return state, metrics


def save_if_due(
    trainer: Trainer, step: int, rollouts: RolloutBatch, update: StepUpdate
) -> None:
    """Saves completions and token statistics, every log.rollouts_every steps.

    TensorBoard gets a few completions, and histograms of rewards, lengths and
    advantages.
    """
    config, workdir = trainer.setup.config, trainer.ctx.workdir
    if step % config.log.rollouts_every and step + 1 != config.train.steps:
        return
    rows = training_rows(
        rollouts.groups.graded,
        step,
        rewards_PG=rollouts.rewards,
        advantages_PG=rollouts.advantages,
        reward_parts=rollouts.reward_parts,
    )
    workdir.write_rollouts("train", step, rows)
    workdir.write_token_stats(step, update.result.token_stats)
    samples = rollouts.groups.graded[:_NUM_TEXT_SAMPLES]
    trainer.ctx.writer.write_samples(
        "train",
        step,
        texts={
            f"completion/{i}": f"{sample.problem.prompt}\n\n{sample.completion}\n\n"
            f"({sample.verdict.status})"
            for i, sample in enumerate(samples)
        },
        histograms={
            "histogram/reward": rollouts.rewards,
            "histogram/length": rollouts.groups.rollouts.lengths,
            "histogram/advantage": rollouts.advantages,
        },
    )


def evaluate_if_due(
    trainer: Trainer, state: TrainerState, step: int
) -> dict[str, float]:
    """Returns pass@k on held-out problems, every eval.every steps; else {}."""
    config = trainer.setup.config
    if not config.eval.every or (step + 1) % config.eval.every:
        return {}
    graded = evaluate_held_out(
        trainer.ctx,
        trainer.trainable.merge_frozen(state.device.params),
        f"eval at {step + 1}",
        weight_version=int(state.device.step),
        after_batch=lambda: None,  # no stop here: a step always ends and is saved
    )
    pass_at_k = summarize_completions(config, graded)["pass@k"]
    return {f"eval/pass@{k}": estimate["mean"] for k, estimate in pass_at_k.items()}


def _rollout_metrics(rollouts: RolloutBatch, *, k: tuple[int, ...]) -> dict[str, float]:
    """Returns the metrics of a step's completions and rewards."""
    metrics = rollout_metrics(
        rollouts.groups.graded,
        rewards_PG=rollouts.rewards,
        judged_PG=rollouts.judged,
        advantages_PG=rollouts.advantages,
        has_signal_P=rollouts.has_signal,
        k=k,
    )
    if len(rollouts.reward_parts) > 1:
        metrics |= {
            f"reward/{name}": float(part_PG.mean())
            for name, part_PG in rollouts.reward_parts.items()
        }
    return metrics | rollouts.metrics
