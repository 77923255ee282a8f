"""What a probed run carries from step to step: scales, proxy strength, agreement.

Plain JSON, fit for a checkpoint. Written after every step, read before the next.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from rlvr_jax.config import RFGOConfig
from rlvr_jax.evaluate import Judged
from rlvr_jax.selection import Selection
from rlvr_jax.types import BANDS, GuideSums

OUTCOMES = {"wrong": 0, "right": 1, "unjudged": 2}


def new_state(selection: Selection) -> dict[str, Any]:
    """Returns the state before the first step.

    `square` is each feature's running mean square, `moments` covariance and squares of
    the last steps, `proxied` and `off_at` what became of the proxy.
    """
    return {
        "square": [sigma**2 for sigma in selection.sigma],
        "moments": [],
        "proxied_groups": 0,
        "off_at": None,
    }


def scale(state: Mapping[str, Any]) -> list[float]:
    """Returns sigma, the features' running root mean squares."""
    return [square**0.5 for square in state["square"]]


def proxy_strength(state: Mapping[str, Any], step: int, config: RFGOConfig) -> float:
    """Returns lambda_p of a step: annealed linearly, and 0 once turned off."""
    if state["off_at"] is not None:
        return 0.0
    if config.anneal_steps == 0:
        return config.lambda_p
    return config.lambda_p * max(0.0, 1.0 - step / config.anneal_steps)


def updated(
    state: Mapping[str, Any], sums: GuideSums, step: int, config: RFGOConfig
) -> dict[str, Any]:
    """Returns the state after a step; one whose activations overflowed tells nothing.

    The proxy turns itself off for good when, over `correlation_steps` steps, its
    correlation with the outcome within groups is below `min_correlation`.
    """
    square_R = np.asarray(state["square"])
    moment = [
        float(sums.covariance),
        float(sums.quality_square),
        float(sums.outcome_square),
    ]
    if not np.isfinite([*moment, *sums.squares.tolist()]).all():
        return dict(state)
    if tokens := float(sums.level_tokens):
        seen_R = np.asarray(sums.squares, np.float64) / tokens
        mixed_R = (1 - config.scale_decay) * square_R + config.scale_decay * seen_R
        # A feature that fell silent keeps the scale that it had.
        square_R = np.where(seen_R > 0, mixed_R, square_R)
    moments = [*state["moments"], moment][-config.correlation_steps :]
    off_at = state["off_at"]
    least, full = config.min_correlation, len(moments) == config.correlation_steps
    if config.lambda_p > 0 and off_at is None and full:
        found = correlation(moments)
        if found is not None and found < least:
            off_at = step
    return {
        "square": square_R.tolist(),
        "moments": moments,
        "proxied_groups": state["proxied_groups"] + int(sums.proxied_groups),
        "off_at": off_at,
    }


def correlation(moments: Sequence[Sequence[float]]) -> float | None:
    """Returns the correlation within groups; None where one side did not vary."""
    if not moments:
        return None
    covariance, quality, outcome = np.sum(moments, axis=0)
    if quality <= 0 or outcome <= 0:
        return None
    return float(covariance / np.sqrt(quality * outcome))


def metrics(
    state: Mapping[str, Any],
    sums: GuideSums,
    selection: Selection,
    *,
    groups: int,
    strength: float,
) -> dict[str, float]:
    """Returns a step's metrics of the features, from the state after it.

    `band_NAME/level` is the mean feature level of its tokens.
    """
    tokens = max(float(sums.weighed_tokens), 1.0)
    unit_R = np.asarray(selection.weights) / np.asarray(scale(state))
    found = {
        "rfgo/proxy_groups": float(sums.proxied_groups) / groups,
        "rfgo/proxy_strength": strength,
        "rfgo/weight_std": float(np.sqrt(sums.weight_deviation / tokens)),
    }
    if (corr := correlation(state["moments"])) is not None:
        found["rfgo/corr_reward"] = corr
    for q, band in enumerate(BANDS):
        if sums.tokens[q] > 0:
            mean_R = sums.sums[q] / sums.tokens[q]
            found[f"band_{band}/level"] = float((mean_R * unit_R).sum())
    mean_OR = sums.outcome_sums / np.maximum(sums.outcome_tokens, 1)[:, None]
    gap_R = mean_OR[1] - mean_OR[0]
    total = max(float(sums.outcome_tokens.sum()), 1.0)
    mean_R = sums.outcome_sums.sum(axis=0) / total
    for r in range(len(unit_R)):
        name = "direction" if selection.direction else str(selection.latents[r])
        found[f"feature_{name}/mean"] = float(mean_R[r])
        found[f"feature_{name}/right_minus_wrong"] = float(gap_R[r])
    return found


def outcomes(judged: Sequence[Judged]) -> Int[np.ndarray, " B"]:
    """Returns 0 wrong, 1 right, 2 unjudged."""
    return np.array([OUTCOMES[one.verdict.status] for one in judged], np.int32)


def proxied(
    judged: Sequence[Judged], split_P: Bool[np.ndarray, " P"], *, groups: str
) -> Bool[np.ndarray, " B"]:
    """Returns which completions may earn a proxy: of groups without a preference.

    `split_P` is `learn.is_split` of the rewards. `groups` says whether all-wrong groups
    alone or every such group. Malformed completions never do: cut off, unjudged,
    without an answer, or repeating themselves.
    """
    outcome_PG = outcomes(judged).reshape(len(split_P), -1)
    asked_P = ~split_P
    if groups == "all_wrong":
        asked_P &= (outcome_PG == 0).all(axis=1)
    sound_B = np.array([_is_sound(one) for one in judged])
    return np.repeat(asked_P, outcome_PG.shape[1]) & sound_B


def _is_sound(one: Judged) -> bool:
    has_answer = one.verdict.answer is not None and one.verdict.status != "unjudged"
    return one.finished and has_answer and "repetition" not in one.flags


def summary(state: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns what summary.json says under `rfgo`, also of a run without a probe."""
    if state is None:
        return {"proxy_groups": 0, "corr_reward": None, "proxy_off_at": None}
    return {
        "proxy_groups": state["proxied_groups"],
        "corr_reward": correlation(state["moments"]),
        "proxy_off_at": state["off_at"],
    }
