"""Effects of interventions beyond their controls, with intervals and verdicts.

Any two latents do different things, and enough problems will show it. So the unit is
the latent: a target is compared with `num_controls` draws of random latents and as many
draws of random directions. A target has a specific effect on an outcome if

1. the interval of its change from clean, over problems, excludes 0;
2. for both kinds of control, it is farther from clean than the mean of the draws, in
   the same direction;
3. q < 0.05: of three p-values (for the change in 1, and by Student's t between draws of
   each kind of control) the largest is corrected by Benjamini-Hochberg over all
   contrasts of the command;
4. rank p <= 0.05: for each kind of control, at most this share of the target and its
   draws is as far out in any outcome at any strength (`max_rank_p_values`).

(4) alone bounds the share of targets that get a claim by luck, for any distribution of
the draws. (3) limits false discoveries among many targets. The rule and the thresholds
are ours.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from job_jax.resampling import resample_counts
from rlvr_jax.metrics.bootstrap import (
    Difference,
    RatioStatistic,
    draw_difference,
    max_rank_p_values,
    mcnemar,
    ratio_difference,
)
from rlvr_jax.probe.intervene import CONTROLS, ArmResult, Kind
from sae_jax.stats.significance import benjamini_hochberg

SPECIFIC, NONSPECIFIC, NO_EFFECT = "specific", "nonspecific", "none"
_MAX_Q = _MAX_RANK_P = 0.05
MIN_DRAWS = round(1 / _MAX_RANK_P) - 1  # with fewer, rank p cannot reach 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contrast:
    """One outcome under one strength of one set of latents.

    Made by `compute_contrasts`. `effect` is the change from clean, with an interval
    over problems. `beyond_controls` is the effect minus the mean of each kind of
    control, with an interval over draws; `control_effects` has the effect of each draw.
    The module's docstring defines `q` and `rank_p`.
    """

    latents: tuple[int, ...]
    strength: float
    outcome: str
    clean_mean: float
    effect: Difference
    beyond_controls: dict[Kind, Difference]
    control_effects: dict[Kind, list[float]]
    q: float = 1.0
    rank_p: float = 1.0

    @property
    def p(self) -> float:
        """Returns the largest p of the change from clean and of both comparisons."""
        return max(each.p for each in (self.effect, *self.beyond_controls.values()))

    @property
    def is_farther(self) -> bool:
        """Returns whether the effect goes beyond the mean of both kinds of control."""
        return all(
            self.effect.mean * beyond.mean > 0
            for beyond in self.beyond_controls.values()
        )

    @property
    def verdict(self) -> str:
        """Returns NO_EFFECT if the interval includes 0, else (NON)SPECIFIC."""
        if not (self.effect.low > 0 or self.effect.high < 0):
            return NO_EFFECT
        is_rare = self.q < _MAX_Q and self.rank_p <= _MAX_RANK_P
        return SPECIFIC if is_rare and self.is_farther else NONSPECIFIC


def compute_contrasts(
    clean: ArmResult,
    edited_arms: Sequence[ArmResult],
    *,
    resamples: int,
    seed: int,
    outcomes: Sequence[str] = (),
) -> list[Contrast]:
    """Returns a contrast for each set of latents, strength and outcome.

    Arms are in the order of `make_arms`: each target, then its controls. An outcome has
    no contrast if it is the same in all arms of a strength. With `outcomes`, only these
    are compared and corrected for; name them before you see any.
    """
    clean = dataclasses.replace(
        clean, metrics={name: clean.metrics[name] for name in outcomes or clean.metrics}
    )
    counts_RN = resample_counts(len(clean.correct), resamples=resamples, seed=seed)
    contrasts = [
        contrast
        for at, target in enumerate(edited_arms)
        if target.arm.kind == "target"
        for contrast in _contrast_strength(
            clean, _arms_of_strength(edited_arms, at), counts_RN
        )
    ]
    q_values = benjamini_hochberg(np.array([contrast.p for contrast in contrasts]))
    rank_p = _rank_p_values(contrasts)
    return [
        dataclasses.replace(contrast, q=float(q), rank_p=rank)
        for contrast, q, rank in zip(contrasts, q_values, rank_p, strict=True)
    ]


def _contrast_strength(
    clean: ArmResult, arms: Sequence[ArmResult], counts_RN: np.ndarray
) -> list[Contrast]:
    """Returns the contrasts of a target, the first of the arms, and its controls."""
    zeros = np.zeros(len(clean.correct))
    no_cases = RatioStatistic(numerator=zeros, denominator=zeros)
    target, contrasts = arms[0], []
    for outcome, before in clean.metrics.items():
        ratios = [arm.metrics.get(outcome, no_cases) for arm in arms]
        if all(_same_ratio(before, ratio) for ratio in ratios):
            continue
        effect = ratio_difference(ratios[0], before, counts_RN)
        clean_mean = before.mean()
        controls = {
            kind: [
                ratio.mean() - clean_mean
                for arm, ratio in zip(arms, ratios, strict=True)
                if arm.arm.kind == kind
            ]
            for kind in CONTROLS
        }
        contrasts.append(
            Contrast(
                latents=target.arm.latents,
                strength=target.arm.strength,
                outcome=outcome,
                clean_mean=clean_mean,
                effect=effect,
                beyond_controls={
                    kind: draw_difference(effect.mean, effects)
                    for kind, effects in controls.items()
                },
                control_effects=controls,
            )
        )
    return contrasts


def _rank_p_values(contrasts: Sequence[Contrast]) -> list[float]:
    """Returns each contrast's rank p, the larger one of the two kinds of control.

    It ranks over all outcomes and strengths of a target, which share the same draws.
    """
    rank_p = np.zeros(len(contrasts))
    for latents in {contrast.latents for contrast in contrasts}:
        at = [i for i, contrast in enumerate(contrasts) if contrast.latents == latents]
        for kind in CONTROLS:
            effects_MA = [
                [contrasts[i].effect.mean, *contrasts[i].control_effects[kind]]
                for i in at
            ]
            of_kind = max_rank_p_values(np.transpose(effects_MA))
            rank_p[at] = np.maximum(rank_p[at], of_kind)
    return rank_p.tolist()


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
    """Returns an arm as JSON: the intervention, all outcomes, McNemar on pass@1."""
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
        "is_farther": contrast.is_farther,
        "verdict": contrast.verdict,
    }
