"""Influences, and how well cheap estimates rank them.

    influence of X = outcome(the update as it was) - outcome(the update without X)

Both policies start from one checkpoint and differ only in X, and all keys are the same.
The influence on these held-out problems is therefore exact. Its interval says how other
held-out problems could have come out. The update without the whole batch is no update.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from job_jax.resampling import Interval
from rlvr_jax.analysis.influence.held_out import Outcome
from rlvr_jax.metrics.bootstrap import mean_interval, t_interval
from rlvr_jax.metrics.ranks import DIGITS, rank_correlations

LOGPROB, PASS_AT_1 = "log-probability", "pass@1"
# Without the batch there is no update. Without its advantages there is one: it has what
# Adam remembers of earlier steps, weight decay, and the terms for KL and entropy.
BATCH, ADVANTAGES = "the whole batch", "all its advantages"
MIN_VALUES = 3  # different influences, for a rank correlation
_MIN_PROBLEMS = 6  # for the interval of a rank correlation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Influence:
    """The influence of one removed thing on each measured outcome, by its name."""

    removed: str
    outcomes: Mapping[str, Interval]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        found = {name: interval.to_json() for name, interval in self.outcomes.items()}
        return {"removed": self.removed, "influence": found}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemInfluence(Influence):
    """The influence of one problem of the batch, and its cheap estimates by name.

    `index` is its place in the batch. `has_signal` is False if all its advantages are
    0, also for external traces: then its influence is exactly 0.
    """

    index: int
    problem: str
    pass_rate: float
    has_signal: bool
    estimates: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {
            "index": self.index,
            "problem": self.problem,
            "pass_rate": self.pass_rate,
            "has_signal": self.has_signal,
            **super().to_json(),
            "estimates": {**self.estimates},
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Everything that the command found. Read by `tables`, written as JSON.

    `checks` compare the replay with the run: the largest difference of a weight from
    the next checkpoint (None if it was not kept), and the metric that differs most
    (None if the run has no line for the step).
    """

    num_held_out: int
    num_solutions: int
    checks: Mapping[str, Any]
    tracin_steps: Sequence[int]
    parts: Sequence[Influence]  # the batch and parts of the reward
    problems: Sequence[ProblemInfluence]
    correlations: Mapping[str, Mapping[str, Interval]]

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {
            "num_held_out": self.num_held_out,
            "num_solutions": self.num_solutions,
            "checks": {**self.checks},
            "tracin_steps": [*self.tracin_steps],
            "parts": [part.to_json() for part in self.parts],
            "problems": [problem.to_json() for problem in self.problems],
            "correlations": {
                outcome: {name: found.to_json() for name, found in by_name.items()}
                for outcome, by_name in self.correlations.items()
            },
        }


def compare_outcomes(
    as_it_was: Outcome, without: Outcome, *, resamples: int, seed: int
) -> dict[str, Interval]:
    """Returns the mean over held-out problems of as-it-was minus without, by outcome.

    The differences are paired by problem. Outcomes that were not measured are left out.
    """
    found = {}
    if as_it_was.logprobs is not None and without.logprobs is not None:
        found[LOGPROB] = t_interval(as_it_was.logprobs - without.logprobs)
    if as_it_was.pass_at_1 is not None and without.pass_at_1 is not None:
        found[PASS_AT_1] = mean_interval(
            as_it_was.pass_at_1 - without.pass_at_1,
            bounds=(-1.0, 1.0),
            resamples=resamples,
            seed=seed,
        )
    return found


def correlate_estimates(
    problems: Sequence[ProblemInfluence], *, resamples: int, seed: int
) -> dict[str, dict[str, Interval]]:
    """Returns Spearman's correlation of each estimate with the influence, by outcome.

    It is over the problems with a signal: the influence of the others is 0 and every
    estimate says so. An estimate that does not vary has no correlation, and neither has
    an outcome with fewer than three different values, as pass@1 after a tiny update.
    """
    known = [problem for problem in problems if problem.has_signal]
    found: dict[str, dict[str, Interval]] = {}
    for outcome in known[0].outcomes if known else ():
        exact_P = np.array([problem.outcomes[outcome].value for problem in known])
        if len({*exact_P.round(DIGITS).tolist()}) < MIN_VALUES:
            continue
        for name in known[0].estimates:
            estimate_P = np.array([problem.estimates[name] for problem in known])
            interval = rank_correlation(
                estimate_P, exact_P, resamples=resamples, seed=seed
            )
            if not math.isnan(interval.value):
                found.setdefault(outcome, {})[name] = interval
    return found


def rank_correlation(
    estimates: Float[np.ndarray, " P"],
    exact: Float[np.ndarray, " P"],
    *,
    resamples: int,
    seed: int,
) -> Interval:
    """Returns Spearman's correlation, with a percentile bootstrap over problems.

    Resamples in which a side does not vary are left out. NaN if a side does not vary.
    Fewer than six problems have no interval, because it would be too narrow:
    for three unrelated ones it excluded 0 in 32 % of 400 simulations, for six in 6 %.
    """
    rng, count = np.random.default_rng(seed), len(estimates)
    value = float(rank_correlations(estimates, exact))
    if math.isnan(value) or count < _MIN_PROBLEMS:
        return Interval(value, np.nan, np.nan)
    drawn_RP = rng.integers(count, size=(resamples, count))
    drawn_R = rank_correlations(estimates[drawn_RP], exact[drawn_RP])
    low, high = np.nanquantile(drawn_R, [0.025, 0.975])
    return Interval(value, float(low), float(high))
