"""What guides from step to step: who may earn a proxy, how strong it is, its end."""

import json

import numpy as np
import pytest

from rlvr_jax.config import RFGOConfig
from rlvr_jax.probe import Probe
from rlvr_jax.probe.rfgo_state import (
    RFGOState,
    proxy_eligible,
    rfgo_summary,
    step_metrics,
)
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import BANDS, FeatureSums, Problem, Verdict

R, Q = 2, len(BANDS)
PROBLEM = Problem(id="p", prompt="", gold="1", verifier="exact", source="s")
PROBE = Probe(
    layer=0,
    feature_names=("3", "7"),
    weights=(0.5, -0.5),
    rms=(2.0, 3.0),
    reader=None,
)
START = RFGOState.init(PROBE.rms)


def sums(**changes):
    """Sums of 10 tokens whose mean squares are 16 and 9, of quality that agrees."""
    zero = np.float32(0)
    given = {
        "tokens_by_band": np.zeros(Q, np.float32),
        "sums_by_band": np.zeros((Q, R), np.float32),
        "num_tokens": np.float32(10),
        "sum_squares": np.float32([160, 90]),
        "tokens_by_outcome": np.zeros(2, np.float32),
        "sums_by_outcome": np.zeros((2, R), np.float32),
        "covariance": np.float32(1),
        "quality_sum_squares": np.float32(2),
        "outcome_sum_squares": np.float32(2),
        "proxy_groups": np.float32(3),
        "proxy_completions": zero,
        "weight_sq_deviation": zero,
        "num_weighted_tokens": np.float32(12),
    }
    return FeatureSums(**(given | changes))


def after(*steps, **settings):
    """The state after steps with these sums, and the config."""
    config = RFGOConfig(**({"lambda_p": 0.1, "correlation_window": 2} | settings))
    state = START
    for step, step_sums in enumerate(steps):
        state = state.update(step_sums, step, config)
        written = json.loads(json.dumps(state.to_json()))
        assert RFGOState.from_json(written) == state
    return state, config


# Scales


def test_a_scale_is_a_running_root_mean_square():
    # 0.9 * 4 + 0.1 * 16 over the ten tokens that have a level; 9 stays 9.
    state, _ = after(sums())
    np.testing.assert_allclose(state.scale, [5.2**0.5, 3.0])


def test_a_feature_that_fell_silent_keeps_its_scale():
    state, _ = after(sums(sum_squares=np.float32([0, 90])))
    np.testing.assert_allclose(state.scale, [2.0, 3.0])


def test_a_step_without_levels_changes_no_scale():
    """No completion of two tokens: nothing was measured, nothing divided by 0."""
    nothing = sums(
        num_tokens=np.float32(0),
        sum_squares=np.zeros(R, np.float32),
        covariance=np.float32(0),
        quality_sum_squares=np.float32(0),
        outcome_sum_squares=np.float32(0),
    )
    state, _ = after(nothing)
    assert state.scale == list(PROBE.rms)
    found = step_metrics(state, nothing, PROBE, num_groups=4, proxy_strength=0.1)
    assert np.isfinite(list(found.values())).all()
    assert "rfgo/corr_reward" not in found


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["sum_squares", "covariance"])
def test_a_step_that_overflowed_leaves_no_trace(name, bad):
    broken = sums(**{name: vars(sums())[name] * np.float32(bad)})
    assert after(sums(), broken) == after(sums())


# The proxy's strength


def test_the_proxy_is_annealed_linearly_to_nothing():
    config = RFGOConfig(lambda_p=0.4, anneal_steps=4)
    state = START
    found = [state.proxy_strength(step, config) for step in range(6)]
    np.testing.assert_allclose(found, [0.4, 0.3, 0.2, 0.1, 0.0, 0.0], atol=1e-12)
    assert state.proxy_strength(10**6, RFGOConfig(lambda_p=0.4)) == 0.4


def test_a_proxy_that_lost_the_reward_turns_itself_off_for_good():
    against = sums(covariance=np.float32(-1.5))
    # One step is not a window; two correlate by (1 - 1.5) / 4 < 0.
    assert after(against)[0].proxy_off_step is None
    state, config = after(sums(), against)
    assert state.correlation == -0.125
    assert state.proxy_off_step == 1
    assert state.proxy_strength(2, config) == 0
    state, config = after(sums(), against, sums(), sums(), sums())
    assert state.correlation == 0.5
    assert (state.proxy_off_step, state.proxy_strength(5, config)) == (
        1,
        0,
    )
    assert rfgo_summary(state)["proxy_off_step"] == 1


@pytest.mark.parametrize(
    ("covariance", "limit", "off"), [(1, 0.4, None), (1, 0.6, 1), (-1, -1.0, None)]
)
def test_the_limit_is_that_of_the_config(covariance, limit, off):
    step = sums(covariance=np.float32(covariance))
    assert after(step, step, min_correlation=limit)[0].proxy_off_step == off


def test_without_an_informative_group_nothing_is_concluded():
    silent = sums(
        covariance=np.float32(0),
        quality_sum_squares=np.float32(0),
        outcome_sum_squares=np.float32(0),
    )
    state, _ = after(silent, silent, silent)
    assert state.correlation is None
    assert state.proxy_off_step is None


def test_proxied_groups_add_up():
    state, _ = after(sums(), sums())
    assert rfgo_summary(state) == {
        "proxy_groups": 6,
        "corr_reward": 0.5,
        "proxy_off_step": None,
    }


# Who may earn a proxy


def judged(status="incorrect", *, answer="2", finished=True, flags=()):
    return GradedCompletion(
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
        [judged("correct"), judged("correct")],  # all right
        [judged("correct"), judged()],  # split
        [judged(), judged()],  # all wrong, but rewards differ: a length penalty
        [judged(), judged("unverified")],  # who knows
    ]
    flat = [one for group in groups for one in group]
    split = np.array([False, False, True, True, False])
    found = proxy_eligible(flat, split, groups="all_incorrect").reshape(5, 2)
    assert found.tolist() == [[True] * 2, *[[False] * 2] * 4]
    found = proxy_eligible(flat, split, groups="zero_variance").reshape(5, 2)
    expected = [[True] * 2, [True] * 2, [False] * 2, [False] * 2, [True, False]]
    assert found.tolist() == expected


@pytest.mark.parametrize("one", MALFORMED, ids=["cut off", "no answer", "repeating"])
def test_a_malformed_completion_earns_none_and_its_siblings_do(one):
    group = [judged(), one, judged()]
    found = proxy_eligible(group, np.array([False]), groups="all_incorrect")
    assert found.tolist() == [True, False, True]


def test_metrics_tell_of_bands_and_features_by_name():
    tokens = np.zeros(Q, np.float32)
    tokens[BANDS.index("hard")] = 4
    seen = np.zeros((Q, R), np.float32)
    seen[BANDS.index("hard")] = [8, 12]  # means 2 and 3: levels 1/2 and -1/2
    step = sums(
        tokens_by_band=tokens,
        sums_by_band=seen,
        tokens_by_outcome=np.float32([2, 2]),
        sums_by_outcome=np.float32([[2, 0], [6, 12]]),
        weight_sq_deviation=np.float32(3),
    )
    state = START
    found = step_metrics(state, step, PROBE, num_groups=6, proxy_strength=0.05)
    assert found == pytest.approx(
        {
            "rfgo/proxy_groups": 0.5,
            "rfgo/proxy_strength": 0.05,
            "rfgo/weight_std": 0.5,
            "band_hard/feature_activation": 0.0,
            "feature_3/mean": 2.0,
            "feature_3/correct_minus_incorrect": 2.0,
            "feature_7/mean": 3.0,
            "feature_7/correct_minus_incorrect": 6.0,
        },
        abs=1e-7,
    )
