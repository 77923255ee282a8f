"""What guides from step to step: who may earn a proxy, how strong it is, its end."""

import dataclasses
import json

import numpy as np
import pytest

from rlvr_jax import guidance
from rlvr_jax.config import RFGOConfig
from rlvr_jax.evaluate import Judged
from rlvr_jax.selection import Selection
from rlvr_jax.types import BANDS, GuideSums, Problem, Verdict

R, Q = 2, len(BANDS)
PROBLEM = Problem(id="p", prompt="", gold="1", kind="exact", source="s")
SELECTION = Selection(
    latents=(3, 7),
    weights=(0.5, -0.5),
    sigma=(2.0, 3.0),
    score=(1.0, -1.0),
    stability=None,
    method="list",
    arm="features",
    layer=0,
    dead=(),
    unstable=0,
    completions=4,
)


def sums(**changes):
    """Sums of 10 tokens whose mean squares are 16 and 9, of quality that agrees."""
    zero = np.float32(0)
    given = {
        "tokens": np.zeros(Q, np.float32),
        "sums": np.zeros((Q, R), np.float32),
        "level_tokens": np.float32(10),
        "squares": np.float32([160, 90]),
        "outcome_tokens": np.zeros(2, np.float32),
        "outcome_sums": np.zeros((2, R), np.float32),
        "covariance": np.float32(1),
        "quality_square": np.float32(2),
        "outcome_square": np.float32(2),
        "proxied_groups": np.float32(3),
        "proxied_rows": zero,
        "weight_deviation": zero,
        "weighed_tokens": np.float32(12),
    }
    return GuideSums(**(given | changes))


def after(*steps, **settings):
    """The state after steps with these sums, and the config."""
    config = RFGOConfig(**({"lambda_p": 0.1, "correlation_steps": 2} | settings))
    state = guidance.new_state(SELECTION)
    for step, each in enumerate(steps):
        state = guidance.updated(state, each, step, config)
        assert json.loads(json.dumps(state)) == state
    return state, config


# Scales


def test_a_scale_is_a_running_root_mean_square():
    # 0.9 * 4 + 0.1 * 16 over the ten tokens that have a level; 9 stays 9.
    state, _ = after(sums())
    np.testing.assert_allclose(guidance.scale(state), [5.2**0.5, 3.0])


def test_a_feature_that_fell_silent_keeps_its_scale():
    state, _ = after(sums(squares=np.float32([0, 90])))
    np.testing.assert_allclose(guidance.scale(state), [2.0, 3.0])


def test_a_step_without_levels_changes_no_scale():
    """No completion of two tokens: nothing was measured, nothing divided by 0."""
    nothing = sums(
        level_tokens=np.float32(0),
        squares=np.zeros(R, np.float32),
        covariance=np.float32(0),
        quality_square=np.float32(0),
        outcome_square=np.float32(0),
    )
    state, _ = after(nothing)
    assert guidance.scale(state) == list(SELECTION.sigma)
    found = guidance.metrics(state, nothing, SELECTION, groups=4, strength=0.1)
    assert np.isfinite(list(found.values())).all()
    assert "rfgo/corr_reward" not in found


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["squares", "covariance"])
def test_a_step_that_overflowed_leaves_no_trace(name, bad):
    broken = sums(**{name: vars(sums())[name] * np.float32(bad)})
    assert after(sums(), broken) == after(sums())


# The proxy's strength


def test_the_proxy_is_annealed_linearly_to_nothing():
    config = RFGOConfig(lambda_p=0.4, anneal_steps=4)
    state = guidance.new_state(SELECTION)
    found = [guidance.proxy_strength(state, step, config) for step in range(6)]
    np.testing.assert_allclose(found, [0.4, 0.3, 0.2, 0.1, 0.0, 0.0], atol=1e-12)
    assert guidance.proxy_strength(state, 10**6, RFGOConfig(lambda_p=0.4)) == 0.4


def test_a_proxy_that_lost_the_reward_turns_itself_off_for_good():
    against = sums(covariance=np.float32(-1.5))
    # One step is not a window; two correlate by (1 - 1.5) / 4 < 0.
    assert after(against)[0]["off_at"] is None
    state, config = after(sums(), against)
    assert guidance.correlation(state["moments"]) == -0.125
    assert state["off_at"] == 1
    assert guidance.proxy_strength(state, 2, config) == 0
    state, config = after(sums(), against, sums(), sums(), sums())
    assert guidance.correlation(state["moments"]) == 0.5
    assert (state["off_at"], guidance.proxy_strength(state, 5, config)) == (1, 0)
    assert guidance.summary(state)["proxy_off_at"] == 1


@pytest.mark.parametrize(
    ("covariance", "limit", "off"), [(1, 0.4, None), (1, 0.6, 1), (-1, -1.0, None)]
)
def test_the_limit_is_that_of_the_config(covariance, limit, off):
    step = sums(covariance=np.float32(covariance))
    assert after(step, step, min_correlation=limit)[0]["off_at"] == off


def test_without_an_informative_group_nothing_is_concluded():
    silent = sums(
        covariance=np.float32(0),
        quality_square=np.float32(0),
        outcome_square=np.float32(0),
    )
    state, _ = after(silent, silent, silent)
    assert guidance.correlation(state["moments"]) is None
    assert state["off_at"] is None


def test_proxied_groups_add_up():
    state, _ = after(sums(), sums())
    assert guidance.summary(state) == {
        "proxy_groups": 6,
        "corr_reward": 0.5,
        "proxy_off_at": None,
    }


# Who may earn a proxy


def judged(status="wrong", *, answer="2", finished=True, flags=()):
    return Judged(
        problem=PROBLEM,
        completion="",
        verdict=Verdict(status=status, answer=answer),
        length=3,
        finished=finished,
        strategy=None,
        weight_version=0,
        flags=flags,
    )


MALFORMED = [
    judged(finished=False),
    judged(answer=None),
    judged(flags=("repetition",)),
]


def test_all_wrong_groups_without_a_preference_are_asked():
    groups = [
        [judged(), judged()],  # all wrong
        [judged("right"), judged("right")],  # all right
        [judged("right"), judged()],  # split
        [judged(), judged()],  # all wrong, but rewards differ: a length penalty
        [judged(), judged("unjudged")],  # who knows
    ]
    flat = [one for group in groups for one in group]
    split = np.array([False, False, True, True, False])
    found = guidance.proxied(flat, split, groups="all_wrong").reshape(5, 2)
    assert found.tolist() == [[True] * 2, *[[False] * 2] * 4]
    found = guidance.proxied(flat, split, groups="zero_variance").reshape(5, 2)
    expected = [[True] * 2, [True] * 2, [False] * 2, [False] * 2, [True, False]]
    assert found.tolist() == expected


@pytest.mark.parametrize("one", MALFORMED, ids=["cut off", "no answer", "repeating"])
def test_a_malformed_completion_earns_none_and_its_siblings_do(one):
    group = [judged(), one, judged()]
    found = guidance.proxied(group, np.array([False]), groups="all_wrong")
    assert found.tolist() == [True, False, True]


def test_metrics_tell_of_bands_and_features_by_name():
    tokens = np.zeros(Q, np.float32)
    tokens[BANDS.index("hard")] = 4
    seen = np.zeros((Q, R), np.float32)
    seen[BANDS.index("hard")] = [8, 12]  # means 2 and 3: levels 1/2 and -1/2
    step = sums(
        tokens=tokens,
        sums=seen,
        outcome_tokens=np.float32([2, 2]),
        outcome_sums=np.float32([[2, 0], [6, 12]]),
        weight_deviation=np.float32(3),
    )
    state = guidance.new_state(SELECTION)
    found = guidance.metrics(state, step, SELECTION, groups=6, strength=0.05)
    assert found == pytest.approx(
        {
            "rfgo/proxy_groups": 0.5,
            "rfgo/proxy_strength": 0.05,
            "rfgo/weight_std": 0.5,
            "band_hard/level": 0.0,
            "feature_3/mean": 2.0,
            "feature_3/right_minus_wrong": 2.0,
            "feature_7/mean": 3.0,
            "feature_7/right_minus_wrong": 6.0,
        },
        abs=1e-7,
    )
    raw = dataclasses.replace(SELECTION, direction=(1.0,), centre=(0.0,))
    raw = dataclasses.replace(raw, weights=(1.0,), sigma=(1.0,))
    one = sums(
        squares=np.ones(1, np.float32),
        sums=np.zeros((Q, 1), np.float32),
        outcome_sums=np.zeros((2, 1), np.float32),
    )
    told = guidance.metrics(guidance.new_state(raw), one, raw, groups=1, strength=0.0)
    assert "feature_direction/mean" in told
