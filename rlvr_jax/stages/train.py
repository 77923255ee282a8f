"""The stage `train`: reinforcement learning, with the parts of a step in order.

problems -> completions -> verdicts -> rewards -> advantages -> optimizer steps
"""

from job_jax.working import working
from rlvr_jax.data.difficulty_summary import count_band_moves
from rlvr_jax.metrics.doctor import describe_short_run
from rlvr_jax.run import throughput
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.stages.context import RunContext, describe_update, require_finished
from rlvr_jax.stages.difficulty import write_difficulty
from rlvr_jax.stages.trainer import (
    Trainer,
    check_health,
    evaluate_if_due,
    measure_time,
    next_state,
    resume_or_init,
    save_if_due,
    step_metrics,
    update_policy,
    warn_of_fallback,
)
from rlvr_jax.stages.trainer_rollouts import collect_step

# Words of the progress line, and the metrics that they show.
_PROGRESS = {
    "reward": "reward/mean",
    "signal": "groups/nonzero_std",
    "length": "rollout/length_mean",
}


def train(ctx: RunContext) -> None:
    """Trains the policy by reinforcement learning, from where stage `sft` ended."""
    require_finished(ctx, "sft", "difficulty", "probe")
    trainer = Trainer.open(ctx)
    setup, probe_step = trainer.setup, None
    with ctx.stage_steps("train", setup.config.train.steps) as steps:
        state = resume_or_init(trainer, steps)
        for step in steps:
            timer = StepTimer()
            rollouts, state = collect_step(trainer, state, step, timer=timer)
            is_first = step == steps.start_step
            with working(describe_update(is_first=is_first)):
                update = update_policy(trainer, state, step, rollouts, timer=timer)
            probe_step = update.probe_step
            state = next_state(trainer, state, step, rollouts, update)
            metrics = step_metrics(trainer, state, rollouts, update)
            state, alarms = check_health(trainer, state, step, metrics)
            # The first step compiles, so it is not timed.
            state, seconds = measure_time(
                trainer, state, rollouts, timer=timer, is_timed=not is_first
            )
            metrics |= seconds | evaluate_if_due(trainer, state, step)
            save_if_due(trainer, step, rollouts, update)
            warnings = warn_of_fallback(trainer, state, metrics) if is_first else []
            for message in (*warnings, *update.messages, *alarms):
                steps.log(message)
            steps.commit(
                step,
                state.device,
                metrics,
                host_state=state.to_json,
                displayed=_PROGRESS,
                tokens=rollouts.sampled_tokens,
                skipped=bool(metrics["optimizer/skipped"]),
            )
        if short := describe_short_run(
            state.doctor.num_steps, setup.config.log.alarm_window
        ):
            steps.log(f"doctor: {short}")
        with working("reading the last step with the probe"):
            trainer.end_probe(state, probe_step, num_steps=steps.num_steps)
    write_difficulty(ctx, trainer.pool, state.difficulty)
    rates = throughput.summary(
        state.timing,
        model=setup.config.model,
        vocab_size=setup.vocab_size,
        devices=setup.mesh.local_devices,
        num_devices=setup.mesh.devices.size,
        num_epochs=setup.config.train.num_epochs,
        frozen=bool(trainer.trainable.frozen),
    )
    moves = count_band_moves(state.difficulty, setup.config.difficulty)
    ctx.update_summary(
        {
            "stages": {"train": steps.seconds},
            "throughput": rates,
            **({"difficulty": {"posterior_by_initial": moves}} if moves else {}),
        }
    )
