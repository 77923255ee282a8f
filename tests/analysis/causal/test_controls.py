"""Both kinds of control count: a target that beats only one of them is not a cause.

The target has an effect of 1. One kind of control has effects close to 0, so the target
clearly beats it. The other kind fails the target in one of three ways. Each way breaks
exactly one part of the rule in `contrasts`. The verdict must be NONSPECIFIC, no matter
which kind fails the target.
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.analysis.causal.contrasts import (
    NONSPECIFIC,
    SPECIFIC,
    compute_contrasts,
)
from rlvr_jax.metrics.bootstrap import RatioStatistic
from rlvr_jax.probe.intervene import CONTROLS, ArmResult, EditArm

N, DRAWS, EFFECT = 40, 20, 1.0
CLEAN = np.random.default_rng(0).normal(size=N)
TIGHT = np.linspace(-0.05, 0.05, DRAWS)
# Effects of draws that an effect of 1 does not beat.
UNBEATEN = {
    # All of them have an effect of 2: the target is far away, but on the wrong side.
    "they do more": 2.0 + TIGHT,
    # All are smaller, but they vary so much that p is 0.07.
    "another draw might": np.linspace(-0.55, 0.85, DRAWS),
    # One of 20 is larger: p is 0.002, but the target is only second of 21.
    "one draw does more": np.append(np.zeros(DRAWS - 1), -1.3),
}


def result(kind, effect, index=0):
    """Returns an arm with one outcome: the clean arm's value plus an effect."""
    arm = EditArm(
        kind=kind,
        strength=1.0,
        control_index=index,
        latents=(7,) if kind == "target" else (),
    )
    numerator = CLEAN + effect
    metrics = {"outcome": RatioStatistic(numerator=numerator, denominator=np.ones(N))}
    nothing = np.zeros((N, 1))
    return ArmResult(arm=arm, metrics=metrics, correct=nothing > 0, tokens=nothing)


def contrast_of(effects):
    """Returns the contrast of the target with these effects of each kind's draws."""
    arms = [result("target", EFFECT)] + [
        result(kind, effect, index)
        for kind in CONTROLS
        for index, effect in enumerate(effects[kind])
    ]
    (contrast,) = compute_contrasts(result("clean", 0.0), arms, resamples=50, seed=0)
    return contrast


def test_a_target_that_beats_both_kinds_is_a_cause():
    contrast = contrast_of(dict.fromkeys(CONTROLS, TIGHT))
    assert contrast.verdict == SPECIFIC
    assert contrast.rank_p == pytest.approx(1 / 21)


@pytest.mark.parametrize("way", UNBEATEN)
@pytest.mark.parametrize("kind", CONTROLS)
def test_a_target_that_beats_only_one_kind_is_not_a_cause(kind, way):
    contrast = contrast_of(dict.fromkeys(CONTROLS, TIGHT) | {kind: UNBEATEN[way]})
    # Exactly one part of the rule is broken.
    parts = [contrast.is_farther, contrast.q < 0.05, contrast.rank_p <= 0.05]
    broken = [*UNBEATEN].index(way)
    assert parts == [part != broken for part in range(3)]
    assert contrast.verdict == NONSPECIFIC


def test_each_kind_of_control_has_its_own_draws_and_its_own_comparison():
    rng = np.random.default_rng(1)
    effects = {
        kind: center + rng.normal(size=DRAWS)
        for kind, center in zip(CONTROLS, (-3.0, 2.0), strict=True)
    }
    contrast = contrast_of(effects)
    for kind in CONTROLS:
        assert contrast.control_effects[kind] == pytest.approx(effects[kind])
        found = contrast.beyond_controls[kind]
        assert found.mean == pytest.approx(EFFECT - effects[kind].mean())
        expected = stats.ttest_ind([EFFECT], effects[kind]).pvalue
        assert found.p == pytest.approx(expected)
    assert contrast.p == max(each.p for each in contrast.beyond_controls.values())


def test_each_target_is_compared_with_its_own_controls_at_its_own_strength():
    """The first target beats its controls, the second does not."""
    first = [result("target", EFFECT)] + [
        result(kind, effect) for kind in CONTROLS for effect in TIGHT
    ]
    arm = EditArm(kind="target", strength=1.0, latents=(8,))
    second = [
        dataclasses.replace(result("target", EFFECT), arm=arm),
        *(result(kind, EFFECT + effect) for kind in CONTROLS for effect in TIGHT),
    ]
    for order in ((first, second), (second, first)):
        arms = [arm for part in order for arm in part]
        found = compute_contrasts(result("clean", 0.0), arms, resamples=50, seed=0)
        verdicts = {contrast.latents: contrast.verdict for contrast in found}
        assert verdicts == {(7,): SPECIFIC, (8,): NONSPECIFIC}
