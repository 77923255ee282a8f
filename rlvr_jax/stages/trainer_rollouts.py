"""The rollouts of a training step, and rollouts sampled ahead for later steps."""

import dataclasses

from job_jax.processes import device_get
from job_jax.working import working
from rlvr_jax.rollouts.collect import RolloutBatch, collect_drawn, collect_rollouts
from rlvr_jax.rollouts.draw import draw_batch
from rlvr_jax.rollouts.sample import fetch_rollouts
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.stages.trainer import Trainer
from rlvr_jax.stages.trainer_state import TrainerState


def collect_step(
    trainer: Trainer, state: TrainerState, step: int, *, timer: StepTimer
) -> tuple[RolloutBatch, TrainerState]:
    """Returns a step's rollouts, and the state with rollouts for later steps.

    With train.staleness, earlier steps have sampled this step's rollouts, and this step
    starts sampling for a later one before it verifies them. If the sampler has separate
    devices, that sampling runs during the update; else it ends before this returns.
    """
    setup = trainer.setup
    if not setup.config.train.staleness:
        sampled = collect_rollouts(
            setup,
            trainer.trainable.policy_state(state.device),
            trainer.pool,
            state.difficulty,
            step=step,
            batch_key=trainer.batch_key,
            timer=timer,
        )
        return sampled, state
    if not state.pending:  # the first step: no older weights exist
        state = _draw_ahead(trainer, state, step, count=1, timer=timer)
    with working("waiting for completions that were begun before"):
        rollouts = fetch_rollouts(setup, state.pending[0].rollouts)
    timer.lap("rollout")
    count = 1 + setup.config.train.staleness
    state = _draw_ahead(trainer, state, step, count=count, timer=timer)
    drawn, *later = state.pending
    state = dataclasses.replace(state, pending=tuple(later))
    collected = collect_drawn(
        setup, drawn.problems, rollouts, state.difficulty, timer=timer
    )
    if not setup.sampler_layout.has_own_devices:
        with working("sampling for a later step"):
            for ahead in state.pending:
                ahead.wait()
        timer.lap("rollout")
    return collected, state


def _draw_ahead(
    trainer: Trainer, state: TrainerState, step: int, *, count: int, timer: StepTimer
) -> TrainerState:
    """Returns the state with batches drawn for `count` steps, `step` and the next ones.

    None are drawn beyond the last step. Missing batches are drawn with the state's
    weights and difficulty estimates.
    """
    setup, pending = trainer.setup, list(state.pending)
    version = int(device_get(state.device.step))
    count = min(count, setup.config.train.steps - step)
    if len(pending) >= count:
        return state
    params = trainer.trainable.merge_frozen(state.device.params)
    weights = setup.sampler_layout.place_params(params)
    if setup.sampler_layout.reshard is not None:
        timer.lap("reshard")
    while len(pending) < count:
        pending.append(
            draw_batch(
                setup,
                weights,
                trainer.pool,
                state.difficulty,
                step=step + len(pending),
                pending=pending,
                weight_version=version,
                batch_key=trainer.batch_key,
            )
        )
    timer.lap("rollout")
    return dataclasses.replace(state, pending=tuple(pending))
