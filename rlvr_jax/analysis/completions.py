"""Completions of a run's training problems by one of its policies, graded."""

from collections.abc import Sequence
from typing import NamedTuple

from flax import nnx

from job_jax.metrics import Progress
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Problem, Rollouts


class GradedBatch(NamedTuple):
    """Problems, and their completions in the order of `rollouts`."""

    problems: Sequence[Problem]
    rollouts: Rollouts
    graded: Sequence[GradedCompletion]


def complete_problems(
    setup: RunSetup,
    params: nnx.State,
    step: int,
    *,
    num_problems: int,
    num_samples: int,
) -> list[GradedBatch]:
    """Returns completions of training problems by the policy after `step` RL steps.

    They are sampled as in training, `num_samples` for each problem.
    """
    config = setup.config
    problems = setup.problems("train", num_problems)
    progress = Progress(f"texts of step {step}", len(problems), every=1)
    batches = []
    for batch, rollouts in sample_problems(
        setup,
        params,
        problems,
        sampling=config.train.sampling,
        num_samples=num_samples,
        batch_size=config.eval.batch_size,
        stream="train",
        weight_version=step,
    ):
        graded = grade_completions(setup, batch, rollouts)
        batches.append(GradedBatch(batch, rollouts, graded))
        progress.update(sum(len(each.problems) for each in batches), {})
    progress.close()
    return batches
