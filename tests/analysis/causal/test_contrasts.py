"""Verdicts follow the stated rule."""

import dataclasses

import pytest

from rlvr_jax.analysis.causal.contrasts import (
    NO_EFFECT,
    NONSPECIFIC,
    SPECIFIC,
    Contrast,
)
from rlvr_jax.analysis.causal.summary import describe_effects, format_table
from rlvr_jax.metrics.bootstrap import Difference


def contrast(effect, draws, q=0.001, rank_p=1 / 21, spread=0.05):
    told = Difference(mean=effect, low=effect - spread, high=effect + spread, p=q)
    beyond = dataclasses.replace(told, mean=effect - sum(draws) / len(draws))
    return Contrast(
        latents=(1,),
        strength=1.0,
        outcome="pass@1",
        clean_mean=0.9,
        effect=told,
        beyond_controls={"random latents": beyond, "random direction": told},
        control_effects={
            "random latents": draws,
            "random direction": [0.0] * len(draws),
        },
        q=q,
        rank_p=rank_p,
    )


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (contrast(-0.5, [-0.1, 0.2]), SPECIFIC),
        (contrast(-0.5, [-0.1, 0.2], rank_p=2 / 21), NONSPECIFIC),  # a draw is farther
        (contrast(-0.5, [-0.8, -0.9]), NONSPECIFIC),  # less than the controls
        (contrast(-0.5, [-0.1, -0.2], q=0.06), NONSPECIFIC),
        (contrast(-0.04, [0.0, 0.0], q=0.06), NO_EFFECT),
        (contrast(-0.04, [0.0, 0.0]), NO_EFFECT),  # the controls moved, not the target
        (contrast(0.5, [0.1, -0.6]), SPECIFIC),
    ],
)
def test_verdicts_follow_the_rule(given, verdict):
    assert given.verdict == verdict
    assert format_table([given]).endswith(verdict)
    assert "pass@1" in describe_effects([given])[0] or verdict == NO_EFFECT
