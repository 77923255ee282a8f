"""What RFGO remembers from step to step: feature scales, and whether the proxy is off.

The state is written after every step, read before the next, and kept in checkpoints.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from jaxtyping import Bool, Int

from rlvr_jax.config import RFGOConfig
from rlvr_jax.probe.protocol import Probe
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import BANDS, FeatureSums, Outcome


@dataclasses.dataclass(frozen=True, kw_only=True)
class RFGOState:
    """What RFGO carries between steps. Made by `init`, replaced by `update`.

    `mean_square` is each feature's running mean square. `moments` holds, for each of
    the last steps, the covariance of quality and outcome within groups and the sums of
    squares of both. `proxy_off_step` is the step after which the proxy was turned off.
    """

    mean_square: tuple[float, ...]
    moments: tuple[tuple[float, float, float], ...] = ()
    num_proxy_groups: int = 0
    proxy_off_step: int | None = None

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
        moments = tuple((x, y, z) for x, y, z in values["moments"])
        mean_square = tuple(values["mean_square"])
        return cls(**{**values, "mean_square": mean_square, "moments": moments})

    @property
    def scale(self) -> list[float]:
        """Returns sigma, each feature's running root mean square."""
        return [mean_square**0.5 for mean_square in self.mean_square]

    @property
    def correlation(self) -> float | None:
        """Returns the correlation of quality and outcome within groups, last steps.

        None where one of the two did not vary, or before the first step.
        """
        if not self.moments:
            return None
        covariance, quality, outcome = np.sum(self.moments, axis=0)
        if quality <= 0 or outcome <= 0:
            return None
        return float(covariance / np.sqrt(quality * outcome))

    def proxy_strength(self, step: int, config: RFGOConfig) -> float:
        """Returns lambda_p of a step: annealed linearly; 0 once the proxy is off."""
        if self.proxy_off_step is not None:
            return 0.0
        if config.anneal_steps == 0:
            return config.lambda_p
        return config.lambda_p * max(0.0, 1.0 - step / config.anneal_steps)

    def update(self, sums: FeatureSums, step: int, config: RFGOConfig) -> Self:
        """Returns the state after a step; sums that are not finite change nothing.

        The proxy is turned off for good when, over `correlation_window` steps, its
        correlation with the outcome within groups is below `min_correlation`.
        """
        moment = (
            float(sums.covariance),
            float(sums.quality_sum_squares),
            float(sums.outcome_sum_squares),
        )
        if not np.isfinite([*moment, *sums.sum_squares.tolist()]).all():
            return self
        mean_square_R = np.asarray(self.mean_square)
        if num_tokens := float(sums.num_tokens):
            rate = config.scale_update_rate
            step_R = np.asarray(sums.sum_squares, np.float64) / num_tokens
            mixed_R = (1 - rate) * mean_square_R + rate * step_R
            # A feature that did not fire in this step keeps its scale.
            mean_square_R = np.where(step_R > 0, mixed_R, mean_square_R)
        state = dataclasses.replace(
            self,
            mean_square=tuple(mean_square_R.tolist()),
            moments=(*self.moments, moment)[-config.correlation_window :],
            num_proxy_groups=self.num_proxy_groups + int(sums.proxy_groups),
        )
        watched = config.lambda_p > 0 and self.proxy_off_step is None
        if watched and len(state.moments) == config.correlation_window:
            correlation = state.correlation
            if correlation is not None and correlation < config.min_correlation:
                return dataclasses.replace(state, proxy_off_step=step)
        return state


def step_metrics(
    state: RFGOState,
    sums: FeatureSums,
    probe: Probe,
    *,
    num_groups: int,
    proxy_strength: float,
) -> dict[str, float]:
    """Returns a step's metrics of the features; `state` is that after the step.

    `band_NAME/feature_activation` is the mean over the tokens of that band.
    """
    num_tokens = max(float(sums.num_weighted_tokens), 1.0)
    unit_R = np.asarray(probe.weights) / np.asarray(state.scale)
    metrics = {
        "rfgo/proxy_groups": float(sums.proxy_groups) / num_groups,
        "rfgo/proxy_strength": proxy_strength,
        "rfgo/weight_std": float(np.sqrt(sums.weight_sq_deviation / num_tokens)),
    }
    if (correlation := state.correlation) is not None:
        metrics["rfgo/corr_reward"] = correlation
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

    Those of groups whose rewards show no preference; `has_signal_P` is
    `learn.has_signal` of the rewards, and `groups` is `train.rfgo.proxy_groups`.
    Malformed completions earn none: those that were cut off, are unverified, have no
    answer, or repeat themselves.
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


def rfgo_summary(state: RFGOState | None) -> dict[str, Any]:
    """Returns what stands in summary.json under `rfgo`; also without a probe (None)."""
    if state is None:
        return {"proxy_groups": 0, "corr_reward": None, "proxy_off_step": None}
    return {
        "proxy_groups": state.num_proxy_groups,
        "corr_reward": state.correlation,
        "proxy_off_step": state.proxy_off_step,
    }
