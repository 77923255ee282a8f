"""Metrics of completions, by problem, that an intervention may move.

pass@k             for each k, and pass@1 by type of problem
length             tokens
truncated          fraction that reached the limit
flags              fraction that shows each degenerate behavior
strategies         P(strategy | type), if the task knows strategies
step accuracy      fraction of written steps that are correct, by kind of step, if the
                   task reads steps
"""

import collections
import functools
from collections.abc import Callable, Sequence

import numpy as np

from rlvr_jax.config.task import Task
from rlvr_jax.metrics.bootstrap import RatioStatistic
from rlvr_jax.metrics.statistics import pass_at_k
from rlvr_jax.rollouts.behavior import FLAGS
from rlvr_jax.rollouts.graded import GradedCompletion


def intervention_metrics(
    task: Task,
    graded: Sequence[GradedCompletion],
    *,
    num_samples: int,
    k: Sequence[int],
) -> dict[str, RatioStatistic]:
    """Returns every metric of N problems, each with `num_samples` successive rows."""
    N = len(graded) // num_samples
    num_correct_N = correctness(graded, num_samples).sum(axis=1)
    metrics = {
        f"pass@{i}": RatioStatistic(
            numerator=pass_at_k(num_samples, num_correct_N, i), denominator=np.ones(N)
        )
        for i in sorted({1, *k})
        if i <= num_samples
    }

    def share(
        of: Callable[[GradedCompletion], float], type_: str | None = None
    ) -> RatioStatistic:
        counts = [
            (of(one), 1.0) if type_ in (None, one.problem.type) else (0.0, 0.0)
            for one in graded
        ]
        value_N, per_N = np.reshape(counts, (N, num_samples, 2)).sum(axis=1).T
        return RatioStatistic(numerator=value_N, denominator=per_N)

    metrics["length"] = share(lambda one: one.length)
    metrics["truncated"] = share(lambda one: not one.finished)
    for flag in FLAGS:
        metrics[flag] = share(functools.partial(_has_flag, flag))
    for type_ in sorted({one.problem.type for one in graded}):
        metrics[f"pass@1, {type_}"] = share(
            lambda one: one.verdict.status == "correct", type_
        )
        for name in task.strategies:
            metrics[f"{name}, {type_}"] = share(
                functools.partial(_uses_strategy, name), type_
            )
    return metrics | _step_accuracy(task, graded, num_samples)


def _has_flag(flag: str, completion: GradedCompletion) -> bool:
    return flag in completion.flags


def _uses_strategy(strategy: str, completion: GradedCompletion) -> bool:
    return completion.strategy == strategy


def correctness(graded: Sequence[GradedCompletion], num_samples: int) -> np.ndarray:
    """Returns whether each completion is correct, [N, G]."""
    return np.reshape(
        [one.verdict.status == "correct" for one in graded], (-1, num_samples)
    )


def _step_accuracy(
    task: Task, graded: Sequence[GradedCompletion], num_samples: int
) -> dict[str, RatioStatistic]:
    """Returns the fraction of correct steps by kind; {} if the task reads no steps."""
    counts: dict[str, np.ndarray] = collections.defaultdict(
        lambda: np.zeros((len(graded) // num_samples, 2))
    )
    for index, sample in enumerate(graded):
        steps = task.step_correctness(sample.problem, sample.completion)
        for kind, is_correct in steps:
            counts[f"step accuracy, {kind}"][index // num_samples] += is_correct, 1
    return {
        name: RatioStatistic(numerator=value_per[:, 0], denominator=value_per[:, 1])
        for name, value_per in sorted(counts.items())
    }
