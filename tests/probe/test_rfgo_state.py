"""RFGO's state from step to step: who may earn a proxy, its strength and its end."""

import json

import numpy as np
import pytest
import scipy.stats

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
# For each group: covariance, sum of squares of quality, sum of squares of the outcome.
AGREEING = np.array([[0.6, 1.0, 1.0], [0.4, 1.0, 1.0]])


def group_sums(groups):
    """Returns the number of groups, their moments' sums, and sums of pair products."""
    return len(groups), groups.sum(axis=0), groups.T @ groups


def with_groups(groups):
    number, moments, products = group_sums(np.asarray(groups))
    return sums(
        num_informative_groups=np.float32(number),
        moments=np.float32(moments),
        moment_products=np.float32(products),
    )


SILENT = np.zeros((0, 3))


def sums(**changes):
    """Returns sums of 10 tokens with mean squares 16 and 9, and agreeing quality."""
    zero = np.float32(0)
    number, moments, products = group_sums(AGREEING)
    given = {
        "tokens_by_band": np.zeros(Q, np.float32),
        "sums_by_band": np.zeros((Q, R), np.float32),
        "num_tokens": np.float32(10),
        "sum_squares": np.float32([160, 90]),
        "tokens_by_outcome": np.zeros(2, np.float32),
        "sums_by_outcome": np.zeros((2, R), np.float32),
        "num_informative_groups": np.float32(number),
        "moments": np.float32(moments),
        "moment_products": np.float32(products),
        "proxy_groups": np.float32(3),
        "proxy_completions": zero,
        "weight_sq_deviation": zero,
        "num_weighted_tokens": np.float32(12),
    }
    return FeatureSums(**(given | changes))


def after(*steps, **settings):
    """Returns the state after steps with these sums, and the config."""
    config = RFGOConfig(**({"lambda_p": 0.1, "correlation_window": 2} | settings))
    state = START
    for step, step_sums in enumerate(steps):
        strength = state.proxy_strength(step, config)
        state = state.update(step_sums, config, proxy_strength=strength)
        written = json.loads(json.dumps(state.to_json()))
        assert RFGOState.from_json(written) == state
    return state, config


# Scales


def test_a_scale_is_a_running_root_mean_square():
    # 0.9 * 4 + 0.1 * 16 over the ten tokens that have a level; 9 is unchanged.
    state, _ = after(sums())
    np.testing.assert_allclose(state.scale, [5.2**0.5, 3.0])


def test_a_feature_that_fell_silent_keeps_its_scale():
    state, _ = after(sums(sum_squares=np.float32([0, 90])))
    np.testing.assert_allclose(state.scale, [2.0, 3.0])


def test_a_step_without_levels_changes_no_scale():
    """Without a completion of two tokens nothing is measured, or divided by 0."""
    nothing = sums(
        num_tokens=np.float32(0),
        sum_squares=np.zeros(R, np.float32),
        num_informative_groups=np.float32(0),
        moments=np.zeros(3, np.float32),
        moment_products=np.zeros((3, 3), np.float32),
    )
    state, _ = after(nothing)
    assert state.scale == list(PROBE.rms)
    found = step_metrics(state, nothing, PROBE, num_groups=4, proxy_strength=0.1)
    assert np.isfinite(list(found.values())).all()
    assert "rfgo/corr_reward" not in found


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["sum_squares", "moments"])
def test_a_step_that_overflowed_leaves_no_trace(name, bad):
    broken = sums(**{name: vars(sums())[name] * np.float32(bad)})
    assert after(sums(), broken) == after(sums())


# The proxy's strength


def test_the_proxy_is_annealed_linearly_to_nothing():
    config = RFGOConfig(lambda_p=0.4, anneal_steps=4, min_correlation=-1.0)
    state = START
    found = [state.proxy_strength(step, config) for step in range(6)]
    np.testing.assert_allclose(found, [0.4, 0.3, 0.2, 0.1, 0.0, 0.0], atol=1e-12)
    forever = RFGOConfig(lambda_p=0.4, min_correlation=-1.0)
    assert state.proxy_strength(10**6, forever) == 0.4


# The evidence for a proxy


def drawn_groups(number, *, gain, seed, size=8):
    """Returns moments [N, 3] of groups with `gain` higher quality where correct."""
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < number:
        y = (rng.random(size) < rng.random()).astype(float)
        q = gain * y + rng.normal(size=size) + 3 * rng.normal()
        q, y = q - q.mean(), y - y.mean()
        if (y**2).sum() > 0:
            rows.append([q @ y, q @ q, y @ y])
    return np.array(rows)


def test_the_interval_is_a_jackknife_over_groups():
    groups = drawn_groups(60, gain=0.7, seed=0)

    def correlation(rows):
        c, q, y = rows.sum(axis=0)
        return c / np.sqrt(q * y)

    left_out = [correlation(np.delete(groups, i, axis=0)) for i in range(60)]
    jackknife = np.sqrt(59 * np.var(left_out))
    halves = [with_groups(groups[:25]), with_groups(groups[25:])]
    found = after(*halves)[0].correlation
    assert found.value == pytest.approx(correlation(groups), abs=1e-6)
    # On Fisher's z scale, whose slope is 1 / (1 - r^2).
    width = scipy.stats.t.ppf(0.975, 59) * jackknife / (1 - found.value**2)
    z, low, high = np.arctanh([found.value, found.low, found.high])
    assert (high - z, z - low) == pytest.approx((width, width), rel=0.05)


def test_the_error_of_few_groups_is_the_linearized_one():
    """With N = 5 groups it is sqrt(5 / 4) times the spread of their influences on r."""
    groups = drawn_groups(5, gain=0.7, seed=3)

    def correlation(moments):
        c, q, y = moments
        return c / np.sqrt(q * y)

    total, step = groups.sum(axis=0), 1e-6
    slope = [
        (correlation(total + step * axis) - correlation(total - step * axis)) / 2 / step
        for axis in np.eye(3)
    ]
    error = np.sqrt(5 / 4 * ((groups @ slope) ** 2).sum())
    found = after(with_groups(groups))[0].correlation
    width = scipy.stats.t.ppf(0.975, 4) * error / (1 - correlation(total) ** 2)
    z, low, high = np.arctanh([found.value, found.low, found.high])
    assert (high - z, z - low) == pytest.approx((width, width), rel=1e-3)


@pytest.mark.parametrize(("number", "gain"), [(12, 0.0), (40, 0.0), (40, 0.8)])
def test_the_interval_holds_the_truth_as_often_as_it_says(number, gain):
    c, q, y = drawn_groups(20_000, gain=gain, seed=1).sum(axis=0)
    truth = c / np.sqrt(q * y)
    below, above = 0, 0
    for seed in range(400):
        drawn = drawn_groups(number, gain=gain, seed=2 + seed)
        found = after(with_groups(drawn))[0].correlation
        below, above = below + (truth < found.low), above + (truth > found.high)
    assert 2 <= below <= 20
    assert 2 <= above <= 20


def test_the_proxy_is_on_only_while_the_lower_end_is_above_the_floor():
    """Evidence is missing, weak, strong, then lost: off, off, on, off."""
    weak, strong = (drawn_groups(n, gain=0.5, seed=3) for n in (4, 60))
    against = drawn_groups(60, gain=-0.5, seed=4)
    assert not START.is_proxy_on(RFGOConfig(lambda_p=0.1))
    state, config = after(with_groups(weak))
    assert state.correlation.value > 0 > state.correlation.low
    assert state.proxy_strength(1, config) == 0
    state, config = after(with_groups(weak), with_groups(strong))
    assert state.correlation.low > 0
    assert state.proxy_strength(2, config) == 0.1
    state, config = after(with_groups(strong), with_groups(against))
    assert state.proxy_strength(2, config) == 0
    assert state.num_proxy_steps == 1
    # Annealed to 0 after two steps: the third has a strength of 0.
    state, _ = after(*[with_groups(strong)] * 4, anneal_steps=2)
    assert state.num_proxy_steps == 1
    # The contrary evidence has left the window of two steps.
    state, config = after(*map(with_groups, (against, strong, strong)))
    assert state.is_proxy_on(config)
    assert not state.is_proxy_on(RFGOConfig())


@pytest.mark.parametrize("window", [1, 2, 3])
def test_the_guard_reads_only_the_steps_of_its_window(window):
    """After three steps with different groups, only the last ones count."""
    steps = [
        drawn_groups(30, gain=gain, seed=9 + i) for i, gain in enumerate((-2, 0, 2))
    ]
    state, _ = after(*map(with_groups, steps), correlation_window=window)
    c, q, y = np.concatenate(steps[-window:]).sum(axis=0)
    assert state.correlation.value == pytest.approx(c / np.sqrt(q * y), abs=1e-5)
    fresh, _ = after(*map(with_groups, steps[-window:]), correlation_window=window)
    assert state.correlation == fresh.correlation
    assert state.moments == fresh.moments


def test_evidence_is_forgotten_as_it_leaves_the_window():
    """The window is two steps. Evidence: for, for, against, for, for."""
    steps = {
        name: with_groups(drawn_groups(60, gain=gain, seed=7))
        for name, gain in (("for", 0.6), ("against", -3.0))
    }
    order = ("for", "for", "against", "for", "for")
    is_on = []
    for number in range(1, len(order) + 1):
        state, config = after(*(steps[name] for name in order[:number]))
        is_on.append(state.is_proxy_on(config))
    assert is_on == [True, True, False, False, True]


@pytest.mark.parametrize(("floor", "is_on"), [(0.1, True), (0.6, False), (-1.0, True)])
def test_the_floor_comes_from_the_config(floor, is_on):
    groups = with_groups(drawn_groups(200, gain=0.8, seed=5))
    state, config = after(groups, min_correlation=floor)
    assert 0.1 < state.correlation.low < state.correlation.value < 0.6
    assert state.is_proxy_on(config) == is_on


def test_a_floor_of_minus_one_needs_no_evidence():
    assert START.is_proxy_on(RFGOConfig(lambda_p=0.1, min_correlation=-1.0))
    against = with_groups(drawn_groups(200, gain=-3.0, seed=6))
    assert after(against, min_correlation=-1.0)[0].correlation.high < -0.5
    assert after(against, min_correlation=-1.0)[0].is_proxy_on(
        RFGOConfig(lambda_p=0.1, min_correlation=-1.0)
    )


@pytest.mark.parametrize("groups", [SILENT, AGREEING[:1], [[0.0, 0.0, 1.0]] * 3])
def test_without_two_informative_groups_nothing_is_concluded(groups):
    state, config = after(with_groups(groups))
    assert state.correlation is None
    assert not state.is_proxy_on(config)


def test_what_the_summary_tells():
    state, _ = after(sums(), sums())
    found = rfgo_summary(state, num_features=2)
    low, high = found.pop("corr_reward_interval")
    assert low < 0.5 < high
    assert found == {
        "num_features": 2,
        "proxy_groups": 6,
        "proxy_steps": 0,
        "corr_reward": pytest.approx(0.5),
    }
    assert rfgo_summary(None) == {
        "num_features": 0,
        "proxy_groups": 0,
        "proxy_steps": 0,
        "corr_reward": None,
        "corr_reward_interval": None,
    }


# Completions that may earn a proxy


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


def test_all_wrong_groups_without_a_preference_may_earn_a_proxy():
    groups = [
        [judged(), judged()],  # all wrong
        [judged("correct"), judged("correct")],  # all right
        [judged("correct"), judged()],  # split
        [judged(), judged()],  # all wrong, but a length penalty makes rewards differ
        [judged(), judged("unverified")],  # unverified
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


def test_metrics_report_bands_and_features_by_name():
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
            "rfgo/num_features": 2.0,
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
