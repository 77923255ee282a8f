"""What the steps of stage `train` share, and how one of them learns and ends."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Self

import jax
import numpy as np

from job_jax.steps import StageSteps
from rlvr_jax import doctor, throughput
from rlvr_jax.adapters import Learner, learner
from rlvr_jax.data import Difficulty, Pool, difficulty
from rlvr_jax.evaluate import score
from rlvr_jax.experience import Experience
from rlvr_jax.held_out import evaluated
from rlvr_jax.learn.batches import rollout_batch
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.optimize import Optimized, optimize
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.run import Run
from rlvr_jax.stage import Loop, policy_after
from rlvr_jax.telemetry import rollout_metrics
from rlvr_jax.throughput import Clock
from rlvr_jax.token_classes import token_classes
from rlvr_jax.watching import Watcher


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training:
    """What stage `train` opens once. Written by `open`, read by its steps.

    `loop` carries the run whose policy goes with whole parameters. `reference` is None
    where nothing reads one. `draw_key` gives a batch's key from the number of its draw.
    """

    loop: Loop
    learner: Learner
    pool: Pool
    updater: Updater
    watcher: Watcher | None
    reference: Any
    sampling: Sampling
    draw_key: Callable[[np.uint32], jax.Array]

    @classmethod
    def open(cls, loop: Loop) -> Self:
        """Returns what training needs, from where the warm start ended."""
        config = loop.run.config.train
        trained = learner(loop.run, lambda: policy_after(loop, "warmup"))
        run = trained.run
        watcher = Watcher.open(loop, trained)
        reads_reference = config.loss.kl_coef > 0 or config.rfgo.reads_reference
        return cls(
            loop=dataclasses.replace(loop, run=run),
            learner=trained,
            pool=Pool(run.sources["train"], run.config),
            updater=Updater(
                run.graphdef,
                policy_objective(config.loss, token_classes(run.tokenizer)),
                optimizer=config.optimizer,
                total_steps=config.optimizer_steps,
                logit_chunk=config.logit_chunk,
                seed=run.config.seed,
                probing=watcher.probing if watcher else None,
                frozen=trained.frozen,
            ),
            watcher=watcher,
            # Updates donate their state, so a reference is an array of its own.
            reference=trained.start() if reads_reference else None,
            sampling=run.replicate(Sampling.of(config.sampling)),
            draw_key=jax.jit(functools.partial(jax.random.fold_in, run.key("train"))),
        )

    @property
    def run(self) -> Run:
        """Returns the run whose policy is trained."""
        return self.loop.run

    def new_state(self) -> TrainState:
        """Returns what is on the devices before the first step."""
        return self.updater.init(self.learner.start())

    def new_host_state(self) -> dict[str, Any]:
        """Returns what is remembered on the host before the first step."""
        return {
            "doctor": doctor.new_state(),
            "speed": throughput.nothing(),
            "rfgo": self.watcher.new_state() if self.watcher else None,
        }


def learn(
    training: Training,
    steps: StageSteps,
    step: int,
    experience: Experience,
    *,
    clock: Clock,
) -> Optimized:
    """Returns what a step's optimizer steps made of its experience."""
    run, watcher = training.run, training.watcher
    rollouts = experience.groups.rollouts
    batch = rollout_batch(rollouts, experience.advantages, bands_P=experience.bands)
    watch = None
    if watcher:
        batch, watch = watcher.before(steps, step, experience, batch)
    clock.lap("probe")
    result = optimize(
        run.config,
        training.updater,
        steps.state,
        batch=batch,
        weight_version=rollouts.weight_version,
        reference=training.reference,
        sampling=training.sampling,
        place=run.place,
        watch=watch,
    )
    clock.lap("update")
    return result


def end_step(
    training: Training,
    steps: StageSteps,
    step: int,
    experience: Experience,
    *,
    result: Optimized,
    known: Difficulty,
    watched: Mapping[str, float],
    clock: Clock,
) -> None:
    """Logs a training step, asks the doctor, and keeps what has to be kept."""
    workdir, config = training.loop.workdir, training.run.config
    metrics = {
        **result.metrics,
        **_sampled(experience, k=config.eval.k),
        **watched,
        **difficulty.drift(known, config.difficulty),
    }
    if config.eval.every and (step + 1) % config.eval.every == 0:
        metrics |= _evaluated(training, steps, step)
    steps.host["doctor"], alarms = doctor.examine(
        steps.host["doctor"],
        step,
        metrics,
        window=config.log.alarm_window,
        max_logprob_gap=config.train.max_logprob_gap,
        max_fve_drop=config.probe.max_fve_drop,
    )
    for alarm in alarms:
        steps.say(str(alarm))
    if step > steps.first:  # the first step compiles
        steps.host["speed"] = throughput.add(
            steps.host["speed"],
            clock,
            sampled=experience.sampled,
            learnt=int(experience.groups.rollouts.lengths.sum()),
        )
    if step % config.log.rollouts_every == 0 or step + 1 == config.train.steps:
        rows = (one.row("train", step) for one in experience.groups.judged)
        workdir.write_rollouts("train", step, rows)
        workdir.write_token_sums(step, result.by_cell)
    timings = {f"time/{name}": value for name, value in clock.seconds.items()}
    steps.end(
        step,
        metrics | timings,
        shown=("reward/mean", "groups/split", "rollout/length_mean"),
        tokens=experience.sampled,
        skipped=bool(metrics["optimizer/skipped"]),
    )


def _sampled(experience: Experience, *, k: tuple[int, ...]) -> dict[str, float]:
    """Returns the metrics of a step's completions and rewards."""
    metrics = rollout_metrics(
        experience.groups.judged,
        rewards_PG=experience.rewards,
        advantages_PG=experience.advantages,
        split_P=experience.split,
        k=k,
    )
    if len(experience.reward_parts) > 1:
        metrics |= {
            f"reward/{name}": float(part_PG.mean())
            for name, part_PG in experience.reward_parts.items()
        }
    return metrics | experience.notes


def _evaluated(training: Training, steps: StageSteps, step: int) -> dict[str, float]:
    """Returns pass@k on held-out problems after a step."""
    loop = training.loop
    judged = evaluated(
        loop,
        training.learner.whole(steps.state.params),
        f"eval at {step + 1}",
        weight_version=int(steps.state.step),
        between=lambda: None,  # a step that has begun is ended and saved
    )
    passed = score(loop.run.config, judged)["pass@k"]
    return {f"eval/pass@{k}": found["mean"] for k, found in passed.items()}
