"""RFGO's state from step to step: feature scales, and evidence for the proxy.

The state is written after every step, read before the next, and kept in checkpoints.

The proxy replaces the reward, so it is on only while quality is known to follow the
outcome. The test is on their correlation within groups over the last steps: the lower
end of its 95 % interval must be at least `train.rfgo.min_correlation`. With v_p the
moments (c, q, y) of group p (covariance and sums of squares), and N groups that have
both outcomes,

    r = C / sqrt(Q Y),  (C, Q, Y) = sum_p v_p
    error^2 = N / (N - 1)  g . (sum_p v_p v_p^T) g,  g = r (1/C, -1/2Q, -1/2Y)

which is the linearized error of a ratio, with groups as units. The interval is
Fisher's, z = atanh r, z +- t error / (1 - r^2), with N - 1 degrees of freedom in t.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Int
from scipy.special import stdtrit

from rlvr_jax.config import RFGOConfig
from rlvr_jax.probe.protocol import Probe
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import BANDS, FeatureSums, Outcome

_TAIL = 0.025  # on each side of an interval
_MAX_CORRELATION = 1 - 1e-6  # beyond it rounding dominates Fisher's z


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutcomeCorrelation:
    """The correlation of quality and outcome within groups, with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RFGOState:
    """RFGO's state between steps. Made by `init`, replaced by `update`.

    `mean_square` is each feature's running mean square. `moments` holds 13 numbers for
    each of the last steps: how many groups have both outcomes, the sums of their
    moments, and the sums of products of two moments (`types.FeatureSums`).
    `num_proxy_steps` counts the steps whose proxy had a strength above 0.
    """

    mean_square: tuple[float, ...]
    moments: tuple[tuple[float, ...], ...] = ()
    num_proxy_groups: int = 0
    num_proxy_steps: int = 0

    @classmethod
    def init(cls, rms: Sequence[float]) -> Self:
        """Returns the state before the first step, from each feature's rms."""
        return cls(mean_square=tuple(value**2 for value in rms))

    def to_json(self) -> dict[str, Any]:
        """Returns the state as JSON, for a checkpoint."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Returns the state that `to_json` made."""
        moments = tuple(tuple(of_step) for of_step in values["moments"])
        mean_square = tuple(values["mean_square"])
        return cls(**{**values, "mean_square": mean_square, "moments": moments})

    @property
    def scale(self) -> list[float]:
        """Returns sigma, each feature's running root mean square."""
        return [mean_square**0.5 for mean_square in self.mean_square]

    @property
    def correlation(self) -> OutcomeCorrelation | None:
        """Returns the correlation of quality and outcome within groups, last steps.

        It is None if one of the two did not vary, or with fewer than two informative
        groups.
        """
        if not self.moments:
            return None
        total = np.sum(self.moments, axis=0)
        num_groups, moments_3, products_33 = total[0], total[1:4], total[4:]
        covariance, quality, outcome = moments_3
        if num_groups < 2 or quality <= 0 or outcome <= 0:
            return None
        norm = np.sqrt(quality * outcome)
        value = covariance / norm
        gradient_3 = np.array([1 / norm, -value / 2 / quality, -value / 2 / outcome])
        square = gradient_3 @ products_33.reshape(3, 3) @ gradient_3
        error = np.sqrt(max(0.0, square * num_groups / (num_groups - 1)))
        value = np.clip(value, -_MAX_CORRELATION, _MAX_CORRELATION)
        width = -stdtrit(num_groups - 1, _TAIL) * error / (1 - value**2)
        low, high = np.tanh(np.arctanh(value) + np.array([-width, width]))
        return OutcomeCorrelation(value=float(value), low=float(low), high=float(high))

    def is_proxy_on(self, config: RFGOConfig) -> bool:
        """Returns whether there is enough evidence for a proxy in the next step.

        A floor of -1 needs no evidence.
        """
        low = self.correlation.low if self.correlation else -1.0
        return config.lambda_p > 0 and low >= config.min_correlation

    def proxy_strength(self, step: int, config: RFGOConfig) -> float:
        """Returns lambda_p of a step: annealed linearly; 0 while the proxy is off."""
        if not self.is_proxy_on(config):
            return 0.0
        if config.anneal_steps == 0:
            return config.lambda_p
        return config.lambda_p * max(0.0, 1.0 - step / config.anneal_steps)

    def update(
        self, sums: FeatureSums, config: RFGOConfig, *, proxy_strength: float
    ) -> Self:
        """Returns the state after a step; sums that are not finite change nothing."""
        moments = (
            float(sums.num_informative_groups),
            *np.ravel(sums.moments).tolist(),
            *np.ravel(sums.moment_products).tolist(),
        )
        if not np.isfinite([*moments, *sums.sum_squares.tolist()]).all():
            return self
        mean_square_R = np.asarray(self.mean_square)
        if num_tokens := float(sums.num_tokens):
            rate = config.scale_update_rate
            step_R = np.asarray(sums.sum_squares, np.float64) / num_tokens
            mixed_R = (1 - rate) * mean_square_R + rate * step_R
            # A feature that did not fire in this step keeps its scale.
            mean_square_R = np.where(step_R > 0, mixed_R, mean_square_R)
        return dataclasses.replace(
            self,
            mean_square=tuple(mean_square_R.tolist()),
            moments=(*self.moments, moments)[-config.correlation_window :],
            num_proxy_groups=self.num_proxy_groups + int(sums.proxy_groups),
            num_proxy_steps=self.num_proxy_steps + (proxy_strength > 0),
        )


def step_metrics(
    state: RFGOState,
    sums: FeatureSums,
    probe: Probe,
    *,
    num_groups: int,
    proxy_strength: float,
) -> dict[str, float]:
    """Returns a step's metrics of the features; `state` is the one after the step.

    `band_NAME/feature_activation` is the mean over the band's tokens.
    """
    num_tokens = max(float(sums.num_weighted_tokens), 1.0)
    unit_R = np.asarray(probe.weights) / np.asarray(state.scale)
    metrics = {
        "rfgo/num_features": float(len(probe.weights)),
        "rfgo/proxy_groups": float(sums.proxy_groups) / num_groups,
        "rfgo/proxy_strength": proxy_strength,
        "rfgo/weight_std": float(np.sqrt(sums.weight_sq_deviation / num_tokens)),
    }
    if (correlation := state.correlation) is not None:
        metrics["rfgo/corr_reward"] = correlation.value
        metrics["rfgo/corr_reward_low"] = correlation.low
    for q, band in enumerate(BANDS):
        if sums.tokens_by_band[q] > 0:
            mean_R = sums.sums_by_band[q] / sums.tokens_by_band[q]
            metrics[f"band_{band}/feature_activation"] = float((mean_R * unit_R).sum())
    mean_OR = sums.sums_by_outcome / np.maximum(sums.tokens_by_outcome, 1)[:, None]
    difference_R = mean_OR[Outcome.correct] - mean_OR[Outcome.incorrect]
    total = max(float(sums.tokens_by_outcome.sum()), 1.0)
    mean_R = sums.sums_by_outcome.sum(axis=0) / total
    for r, name in enumerate(probe.feature_names):
        metrics[f"feature_{name}/mean"] = float(mean_R[r])
        metrics[f"feature_{name}/correct_minus_incorrect"] = float(difference_R[r])
    return metrics


def outcome_codes(graded: Sequence[GradedCompletion]) -> Int[np.ndarray, " B"]:
    """Returns the `Outcome` of each completion."""
    return np.array(
        [Outcome[completion.verdict.status] for completion in graded], np.int32
    )


def proxy_eligible(
    graded: Sequence[GradedCompletion],
    has_signal_P: Bool[np.ndarray, " P"],
    *,
    groups: str,
) -> Bool[np.ndarray, " B"]:
    """Returns which completions may earn a proxy advantage.

    They are in groups whose rewards show no preference; `has_signal_P` is
    `learn.has_signal` of the rewards, and `groups` is `train.rfgo.proxy_groups`.
    Malformed completions earn none: they were cut off, are unverified, have no answer,
    or repeat themselves.
    """
    outcome_PG = outcome_codes(graded).reshape(len(has_signal_P), -1)
    group_P = ~has_signal_P
    if groups == "all_incorrect":
        group_P &= (outcome_PG == Outcome.incorrect).all(axis=1)
    well_formed_B = np.array([_is_well_formed(completion) for completion in graded])
    return np.repeat(group_P, outcome_PG.shape[1]) & well_formed_B


def _is_well_formed(completion: GradedCompletion) -> bool:
    verdict = completion.verdict
    has_answer = verdict.answer is not None and verdict.status != "unverified"
    return completion.finished and has_answer and "repetition" not in completion.flags


def rfgo_summary(state: RFGOState | None, *, num_features: int = 0) -> dict[str, Any]:
    """Returns the entry `rfgo` of summary.json; also without a probe (None).

    Without features RFGO is off, regardless of its settings.
    """
    correlation = state.correlation if state else None
    return {
        "num_features": num_features,
        "proxy_groups": state.num_proxy_groups if state else 0,
        "proxy_steps": state.num_proxy_steps if state else 0,
        "corr_reward": correlation.value if correlation else None,
        "corr_reward_interval": (
            [correlation.low, correlation.high] if correlation else None
        ),
    }
