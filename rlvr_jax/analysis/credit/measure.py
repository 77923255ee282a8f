"""The weight of tokens that change a completion's value, compared with controls.

    weight on change = sum_it w_it dV_it^2 / sum_it dV_it^2

over completions i and their tokens t, whose weights w have mean 1 in each completion.
The ratio is 1 if weights and value changes are unrelated within a completion, as for
shuffled weights on average. The ratio and its controls are ours.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Float

from job_jax.resampling import Interval, resample_counts
from rlvr_jax.metrics.bootstrap import RatioStatistic, ratio_difference

_RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightOnChange:
    """The weight on change of one kind of weights.

    `beyond_controls` is the ratio minus the controls' ratio, averaged over their draws.
    Its interval is over problems, and treats these draws as fixed. `num_as_high` counts
    the draws with a ratio at least as high.
    """

    ratio: Interval
    beyond_controls: Interval
    num_as_high: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreditComparison:
    """Kinds of weights by label, and the controls' ratio: the mean and each draw."""

    kinds: dict[str, WeightOnChange]
    controls: Interval
    of_draws: list[float]
    num_problems: int

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the comparison that `to_json` wrote."""
        return cls(
            kinds={
                name: WeightOnChange(
                    ratio=Interval(*kind["ratio"]),
                    beyond_controls=Interval(*kind["beyond_controls"]),
                    num_as_high=kind["num_as_high"],
                )
                for name, kind in fields["kinds"].items()
            },
            controls=Interval(*fields["controls"]),
            of_draws=fields["of_draws"],
            num_problems=fields["num_problems"],
        )


def compare_weights(
    weights: Mapping[str, Float[np.ndarray, "B T"]],
    controls: Sequence[Float[np.ndarray, "B T"]],
    changes: Sequence[Float[np.ndarray, " T"]],
) -> CreditComparison:
    """Returns the weight on change of each kind of weights, for B completions.

    `changes` are the squared value changes of each completion's tokens. `controls` are
    weights from draws of random latents. Intervals are percentile bootstraps over
    problems, with one completion each. Raises ValueError if no value changes.
    """
    total_B = np.array([change.sum() for change in changes])
    if not total_B.sum() > 0:
        raise ValueError(
            "no token of these completions changes the chance of a right answer; use "
            "more problems (--num_problems), or harder or easier ones"
        )
    counts_RN = resample_counts(len(total_B), resamples=_RESAMPLES, seed=0)

    def weigh(weight_BT: Float[np.ndarray, "B T"]) -> RatioStatistic:
        rows = zip(weight_BT, changes, strict=True)
        weighted_B = np.array([row[: len(each)] @ each for row, each in rows])
        return RatioStatistic(numerator=weighted_B, denominator=total_B)

    def compare(ratio: RatioStatistic, other: RatioStatistic) -> Interval:
        found = ratio_difference(ratio, other, counts_RN)
        return Interval(found.mean, found.low, found.high)

    def beyond_one(ratio: RatioStatistic) -> Interval:
        even = RatioStatistic(numerator=total_B, denominator=total_B)
        mean, low, high = compare(ratio, even)
        return Interval(1 + mean, 1 + low, 1 + high)

    drawn = [weigh(control) for control in controls]
    of_draws = [ratio.mean() for ratio in drawn]
    mean_B = np.mean([ratio.numerator for ratio in drawn], axis=0)
    average = RatioStatistic(numerator=mean_B, denominator=total_B)
    kinds = {label: weigh(weight_BT) for label, weight_BT in weights.items()}
    return CreditComparison(
        kinds={
            label: WeightOnChange(
                ratio=beyond_one(ratio),
                beyond_controls=compare(ratio, average),
                num_as_high=sum(each >= ratio.mean() for each in of_draws),
            )
            for label, ratio in kinds.items()
        },
        controls=beyond_one(average),
        of_draws=of_draws,
        num_problems=len(changes),
    )
