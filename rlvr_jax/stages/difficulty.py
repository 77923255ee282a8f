"""The stage `difficulty`: how hard each problem is for the policy before RL."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from job_jax.checkpoint import StageCheckpoints
from rlvr_jax.config import Config
from rlvr_jax.data import Difficulty, Pool, ProblemOutcome, difficulty
from rlvr_jax.data.difficulty_summary import difficulty_rows, summarize_initial_bands
from rlvr_jax.metrics.scores import bands_from_verdicts
from rlvr_jax.rollouts.graded import (
    GradedCompletion,
    grade_completions,
    verdicts_by_problem,
)
from rlvr_jax.rollouts.groups import ProblemGroups, problem_outcomes
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import sample_completions
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.stages.context import RunContext, load_stage_params, require_finished


def estimate_difficulty(ctx: RunContext) -> None:
    """Estimates how hard each train problem is for the policy that RL starts from.

    Does nothing with difficulty.num_samples=0. Each step is a batch of problems.
    """
    run, config = ctx.setup, ctx.setup.config.difficulty
    if config.num_samples == 0:
        return
    require_finished(ctx, "sft")
    pool, size = Pool(run.sources["train"], run.config), run.config.eval.batch_size
    weights = run.sampler_layout.place_params(load_stage_params(ctx, "sft"))
    with ctx.stage_steps("difficulty", -(-pool.size // size)) as steps:
        device, saved = steps.resume_or_init(
            lambda: _empty_device_state(run), lambda: _empty_device_state(run)
        )
        estimates = (
            difficulty.from_json(saved["difficulty"]) if saved else pool.initial()
        )
        for step in steps:
            numbers = np.arange(step * size, min((step + 1) * size, pool.size))
            problems = pool.problems(numbers)
            request = SampleRequest(
                problems=problems,
                weights=weights,
                sampling=run.config.train.sampling,
                num_samples=config.num_samples,
                key=run.stream_key("difficulty"),
                weight_version=np.int32(0),
                batch_size=size,
            )
            rollouts = sample_completions(run, request)
            graded = grade_completions(run, problems, rollouts)
            _save_completions(ctx, step, graded)
            outcomes = problem_outcomes(
                ProblemGroups(problem_index=numbers, rollouts=rollouts, graded=graded)
            )
            estimates = update_difficulty(
                run.config, estimates, outcomes, step=difficulty.INITIAL_STEP
            )
            num_correct = sum(outcome.num_correct for outcome in outcomes)
            num_graded = sum(outcome.num_graded for outcome in outcomes)
            steps.commit(
                step,
                device,
                {"difficulty/pass": num_correct / max(num_graded, 1)},
                host_state=lambda: {"difficulty": estimates.to_json()},  # noqa: B023
                displayed={"pass": "difficulty/pass"},
                tokens=int(rollouts.lengths.sum()),
            )
    write_difficulty(ctx, pool, estimates)
    ctx.update_summary(
        {
            "stages": {"difficulty": steps.seconds},
            "difficulty": summarize_initial_bands(estimates, config),
        }
    )


def _save_completions(
    ctx: RunContext, step: int, graded: Sequence[GradedCompletion]
) -> None:
    """Saves a batch's completions with their bands, up to the stage's limit.

    A batch that is sampled again after an interruption replaces its file.
    """
    config = ctx.setup.config
    batch = config.eval.batch_size * config.difficulty.num_samples
    kept = graded[: max(0, config.log.difficulty_rollouts - step * batch)]
    if not kept:
        return
    rows = [completion.to_json("difficulty", step) for completion in graded]
    bands = bands_from_verdicts(verdicts_by_problem(rows), config.difficulty)
    ctx.workdir.write_rollouts(
        "difficulty",
        step,
        (row | {"band": bands[row["id"]]} for row in rows[: len(kept)]),
    )


def initial_difficulty(ctx: RunContext, pool: Pool) -> Difficulty:
    """Returns the estimates of stage `difficulty`, or empty ones if it is off."""
    if ctx.setup.config.difficulty.num_samples == 0:
        return pool.initial()
    with StageCheckpoints(ctx.workdir.checkpoints / "difficulty") as checkpoints:
        step = checkpoints.latest_step or 0
        _, saved = checkpoints.restore(step, _empty_device_state(ctx.setup))
    return difficulty.from_json(saved["host"]["difficulty"])


def _empty_device_state(setup: RunSetup) -> Any:
    """Returns a dummy state: a checkpoint needs an array, but this stage has none."""
    return setup.replicate({"nothing": np.int32(0)})


def update_difficulty(
    config: Config,
    prior: Difficulty,
    outcomes: Sequence[ProblemOutcome],
    *,
    step: int,
    num_batches: int = 0,
) -> Difficulty:
    """Returns the estimates after these outcomes, of `num_batches` more batches."""
    return difficulty.record_outcomes(
        prior,
        outcomes,
        step=step,
        num_batches=num_batches,
        config=config.difficulty,
    )


def write_difficulty(ctx: RunContext, pool: Pool, estimates: Difficulty) -> None:
    """Writes difficulty.jsonl: a line for each problem that was ever sampled."""
    ctx.workdir.write_difficulty(
        difficulty_rows(
            estimates,
            pool.problem_ids(),
            pool.levels(),
            config=ctx.setup.config.difficulty,
        )
    )
