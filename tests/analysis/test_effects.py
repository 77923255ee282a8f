"""Verdicts follow the rule that is stated."""

import pytest

from rlvr_jax.analysis.effects import NULL, OWN, SHARED, Contrast, table, words
from rlvr_jax.paired import Difference


def contrast(effect, draws, q=0.001, spread=0.05):
    told = Difference(mean=effect, low=effect - spread, high=effect + spread, p=q)
    return Contrast(
        latents=(1,),
        dose=1.0,
        outcome="pass@1",
        clean=0.9,
        effect=told,
        beyond={"random latents": told, "random direction": told},
        drawn={"random latents": draws, "random direction": [0.0] * len(draws)},
        q=q,
    )


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (contrast(-0.5, [-0.1, 0.6]), OWN),  # 0.6 is the other way
        (contrast(-0.5, [-0.1, -0.6]), SHARED),  # one control goes farther
        (contrast(-0.5, [-0.1, -0.2], q=0.06), SHARED),
        (contrast(-0.04, [0.0, 0.0], q=0.06), NULL),
        (contrast(-0.04, [0.0, 0.0]), NULL),  # the controls moved, not the target
        (contrast(0.5, [0.1, -0.6]), OWN),
    ],
)
def test_verdicts_follow_the_rule(given, verdict):
    assert given.verdict == verdict
    assert table([given]).endswith(verdict)
    assert "pass@1" in words([given])[0] or verdict == NULL
