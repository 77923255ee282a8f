"""Completions of a run's training problems by one of its policies."""

from collections.abc import Sequence
from typing import NamedTuple

from flax import nnx

from job_jax.metrics import Progress
from job_jax.steps import StopSignal
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Problem, Rollouts


class Completed(NamedTuple):
    """Problems, and their completions in the order of `rollouts`."""

    problems: Sequence[Problem]
    rollouts: Rollouts


def complete_problems(
    setup: RunSetup,
    params: nnx.State,
    step: int,
    *,
    num_problems: int,
    num_samples: int,
    stop: StopSignal,
    run: str = "",
) -> list[Completed]:
    """Returns completions of training problems by the policy after `step` RL steps.

    They are sampled as in training, `num_samples` for each problem. `run` is shown with
    the progress. Raises StoppedError between two batches if a signal came.
    """
    config = setup.config
    problems = setup.problems("train", num_problems)
    label = f"{run}, step {step}" if run else f"step {step}"
    progress = Progress(f"texts of {label}", len(problems), every=1)
    batches = []
    for batch in sample_problems(
        setup,
        params,
        problems,
        sampling=config.train.sampling,
        num_samples=num_samples,
        batch_size=min(config.eval.batch_size, config.train.batch_size),
        stream="train",
        weight_version=step,
    ):
        batches.append(Completed(*batch))
        progress.update(sum(len(each.problems) for each in batches), {})
        stop.check()
    progress.close()
    return batches
