"""The stage `difficulty`, and what later stages do with what it found."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from job_jax.checkpoint import StageCheckpoints
from job_jax.steps import StageSteps
from rlvr_jax.data import Difficulty, Pool, Visit, difficulty
from rlvr_jax.evaluate import completions
from rlvr_jax.experience import Groups, ask, visits
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.run import Run
from rlvr_jax.stage import Loop, check_ended, policy_after


def estimation(loop: Loop) -> None:
    """Estimates how hard each train problem is for the policy that RL starts from.

    Does nothing with difficulty.samples=0. A step is a batch of problems.
    """
    run, config = loop.run, loop.run.config.difficulty
    if config.samples == 0:
        return
    check_ended(loop, "warmup")
    pool, size = Pool(run.sources["train"], run.config), run.config.eval.batch_size
    weights = run.layout.weights(policy_after(loop, "warmup"))
    sampling = run.replicate(Sampling.of(run.config.train.sampling))
    with loop.steps("difficulty", -(-pool.size // size)) as steps:
        steps.begin(lambda: _nothing(run), host={})
        known = restored(steps) or pool.fresh()
        for step in steps:
            numbers = np.arange(step * size, min((step + 1) * size, pool.size))
            problems = pool.problems(numbers)
            # The last batch is filled up so that it meets the program of the others.
            filled = problems + problems[:1] * (size - len(problems))
            rollouts = ask(
                run,
                filled,
                weights,
                samples_per_prompt=config.samples,
                key=run.key("difficulty"),
                sampling=sampling,
                weight_version=np.int32(0),
            )
            judged = completions(run, problems, rollouts)
            found = visits(Groups(numbers=numbers, rollouts=rollouts, judged=judged))
            known = learnt(loop, steps, known, found, step=difficulty.BEFORE_RL)
            right, asked = sum(v.right for v in found), sum(v.judged for v in found)
            steps.end(
                step,
                {"difficulty/pass": right / max(asked, 1)},
                shown=("difficulty/pass",),
                tokens=int(rollouts.lengths.sum()),
                skipped=False,
            )
    write_difficulty(loop, pool, known)
    loop.summarise(
        {
            "stages": {"difficulty": steps.seconds},
            "difficulty": difficulty.summary(known, config),
        }
    )


def known_before_rl(loop: Loop, pool: Pool) -> Difficulty:
    """Returns what stage `difficulty` found out; nothing where it is off."""
    if loop.run.config.difficulty.samples == 0:
        return pool.fresh()
    with StageCheckpoints(loop.workdir.checkpoints / "difficulty") as checkpoints:
        step = checkpoints.latest_step or 0
        _, host = checkpoints.restore(step, _nothing(loop.run))
    return difficulty.from_json(host["difficulty"])


def _nothing(run: Run) -> Any:
    """Returns the device state of a stage that has none: a checkpoint holds some."""
    return run.replicate({"nothing": np.int32(0)})


def restored(steps: StageSteps) -> Difficulty | None:
    """Returns what was known at the checkpoint that a stage goes on from, if any."""
    if steps.first == 0:
        return None
    return difficulty.from_json(steps.host["difficulty"])


def learnt(
    loop: Loop,
    steps: StageSteps,
    known: Difficulty,
    found: Sequence[Visit],
    *,
    step: int,
    draws: int = 0,
) -> Difficulty:
    """Returns what is known after a step, which the next checkpoint will hold."""
    config = loop.run.config
    known = difficulty.updated(
        known,
        found,
        step=step,
        draws=draws,
        config=config.difficulty,
        momentum=config.curriculum.vcrl_momentum,
    )
    steps.host["difficulty"] = known.to_json
    return known


def write_difficulty(loop: Loop, pool: Pool, known: Difficulty) -> None:
    """Writes difficulty.jsonl: every problem that was ever met."""
    loop.workdir.write_difficulty(
        difficulty.rows(
            known, pool.names(), pool.levels(), config=loop.run.config.difficulty
        )
    )
