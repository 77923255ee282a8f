"""What interventions did beyond their controls: effects, intervals, verdicts.

A target has a specific effect on an outcome where (1) the interval of its change from
clean excludes 0; (2) it differs from the mean of the random latents and from that of
the random directions, the larger of the two p below 0.05 after Benjamini-Hochberg
over all contrasts of the command; and (3) no single control went as far in the same
direction. Rule and thresholds are ours.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from job_jax.resampling import resample_counts
from rlvr_jax.metrics.bootstrap import (
    Difference,
    RatioStatistic,
    mcnemar,
    ratio_difference,
)
from rlvr_jax.probe.intervene import CONTROLS, ArmResult, Kind
from sae_jax.stats.significance import benjamini_hochberg

SPECIFIC, NONSPECIFIC, NO_EFFECT = "specific", "nonspecific", "none"
_MAX_Q = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """One outcome under one strength of one set of latents.

    Made by `compute_contrasts`. `effect` is against clean, `beyond_controls` against
    the mean of each kind of control, whose single effects are in `control_effects`.
    `q` is p after Benjamini-Hochberg over all contrasts.
    """

    latents: tuple[int, ...]
    strength: float
    outcome: str
    clean_mean: float
    effect: Difference
    beyond_controls: dict[Kind, Difference]
    control_effects: dict[Kind, list[float]]
    q: float = 1.0

    @property
    def p(self) -> float:
        """Returns the larger p of the two comparisons with controls."""
        return max(difference.p for difference in self.beyond_controls.values())

    @property
    def exceeds_every_control(self) -> bool:
        """Returns whether no control went as far in the same direction."""
        sign = np.sign(self.effect.mean)
        effects = np.concatenate([self.control_effects[kind] for kind in CONTROLS])
        return bool((sign * effects < abs(self.effect.mean)).all())

    @property
    def verdict(self) -> str:
        """Returns NO_EFFECT if the interval holds 0, else SPECIFIC or NONSPECIFIC."""
        if self.effect.low <= 0 <= self.effect.high:
            return NO_EFFECT
        is_specific = self.q < _MAX_Q and self.exceeds_every_control
        return SPECIFIC if is_specific else NONSPECIFIC


def compute_contrasts(
    clean: ArmResult, edited_arms: Sequence[ArmResult], *, resamples: int, seed: int
) -> list[Contrast]:
    """Returns a contrast for each set of latents, strength and outcome.

    Arms are in the order of `make_arms`: each target, then its controls. Outcomes that
    are the same in all arms of a strength have no contrast.
    """
    counts_RN = resample_counts(len(clean.correct), resamples=resamples, seed=seed)
    zeros = np.zeros(len(clean.correct))
    no_cases = RatioStatistic(numerator=zeros, denominator=zeros)
    contrasts = []
    for at, target in enumerate(edited_arms):
        if target.arm.kind != "target":
            continue
        arms = _arms_of_strength(edited_arms, at)
        for outcome, before in clean.metrics.items():
            after = target.metrics.get(outcome, no_cases)
            controls = {
                kind: [
                    arm.metrics.get(outcome, no_cases)
                    for arm in arms
                    if arm.arm.kind == kind
                ]
                for kind in CONTROLS
            }
            ratios = [after, *(ratio for group in controls.values() for ratio in group)]
            if all(_same_ratio(before, ratio) for ratio in ratios):
                continue
            contrasts.append(
                Contrast(
                    latents=target.arm.latents,
                    strength=target.arm.strength,
                    outcome=outcome,
                    clean_mean=before.mean(),
                    effect=ratio_difference(after, [before], counts_RN),
                    beyond_controls={
                        kind: ratio_difference(after, group, counts_RN)
                        for kind, group in controls.items()
                    },
                    control_effects={
                        kind: [ratio.mean() - before.mean() for ratio in group]
                        for kind, group in controls.items()
                    },
                )
            )
    q_values = benjamini_hochberg(np.array([contrast.p for contrast in contrasts]))
    return [
        dataclasses.replace(contrast, q=float(q))
        for contrast, q in zip(contrasts, q_values, strict=True)
    ]


def _arms_of_strength(edited_arms: Sequence[ArmResult], at: int) -> list[ArmResult]:
    """Returns the target at index `at` and its controls, up to the next target."""
    end = at + 1
    while end < len(edited_arms) and edited_arms[end].arm.kind != "target":
        end += 1
    return list(edited_arms[at:end])


def _same_ratio(ratio: RatioStatistic, other: RatioStatistic) -> bool:
    return np.array_equal(ratio.numerator, other.numerator) and np.array_equal(
        ratio.denominator, other.denominator
    )


def arm_row(result: ArmResult, clean: ArmResult) -> dict[str, Any]:
    """Returns an arm as JSON: the intervention, every outcome, McNemar of pass@1."""
    arm = result.arm
    return {
        "kind": arm.kind,
        "strength": arm.strength,
        "draw": arm.control_index,
        "latents": list(arm.latents),
        "gain": float(arm.edit.scale) if arm.edit is not None else 0.0,
        "mean_shift": arm.mean_shift,
        "fraction_unchanged": result.token_match_rate(clean),
        "outcomes": {name: ratio.mean() for name, ratio in result.metrics.items()},
        "mcnemar": mcnemar(result.correct, clean.correct),
    }


def contrast_row(contrast: Contrast) -> dict[str, Any]:
    """Returns a contrast as JSON."""
    return dataclasses.asdict(contrast) | {
        "p": contrast.p,
        "exceeds_every_control": contrast.exceeds_every_control,
        "verdict": contrast.verdict,
    }
