"""Influences and rank correlations: exact numbers, and the right pairs."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy import stats

from job_jax.resampling import Interval
from rlvr_jax.analysis.influence.held_out import Outcome
from rlvr_jax.analysis.influence.measure import (
    LOGPROB,
    PASS_AT_1,
    Influence,
    ProblemInfluence,
    Result,
    compare_outcomes,
    correlate_estimates,
    rank_correlation,
)
from rlvr_jax.analysis.influence.tables import format_result

RNG = np.random.default_rng(0)


def problem(index, exact, *, has_signal=True, pass_at_1=0.0, **estimates):
    return ProblemInfluence(
        removed=f"problem {index}",
        outcomes={
            LOGPROB: Interval(exact, math.nan, math.nan),
            PASS_AT_1: Interval(pass_at_1, -1.0, 1.0),
        },
        index=index,
        problem=f"id-{index}",
        pass_rate=0.5 if has_signal else 1.0,
        has_signal=has_signal,
        estimates=estimates,
    )


def test_an_influence_is_as_it_was_minus_without_paired_by_problem():
    with_, without = RNG.normal(size=9), RNG.normal(size=9)
    rates = np.array([1.0, 0.5, 0.0, 0.25]), np.array([0.5, 0.5, 0.0, 0.5])
    found = compare_outcomes(
        Outcome(rates[0], with_), Outcome(rates[1], without), resamples=200, seed=0
    )
    ends = stats.ttest_rel(with_, without).confidence_interval(0.95)
    mean = (with_ - without).mean()
    assert found[LOGPROB] == pytest.approx((mean, ends.low, ends.high))
    assert found[PASS_AT_1].value == 0.25 / 4
    assert -1 <= found[PASS_AT_1].low < 0.0625 < found[PASS_AT_1].high <= 1


def test_an_outcome_that_was_not_measured_has_no_influence():
    one = Outcome(None, np.zeros(3))
    assert [*compare_outcomes(one, one, resamples=10, seed=0)] == [LOGPROB]
    other = Outcome(np.zeros(3), None)
    assert [*compare_outcomes(other, other, resamples=10, seed=0)] == [PASS_AT_1]


def test_a_rank_correlation_is_spearmans():
    x, y = RNG.normal(size=(2, 12))
    found = rank_correlation(x, y, resamples=500, seed=0)
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert -1 <= found.low < found.value < found.high <= 1
    shown = rank_correlation(np.exp(x), y, resamples=500, seed=0)
    assert shown == pytest.approx(found)  # ranks alone count


def test_the_interval_is_a_bootstrap_over_problems():
    """Pairs stay together: of equal ranks, every resample correlates fully."""
    x = RNG.normal(size=10)
    assert rank_correlation(x, 3 * x, resamples=100, seed=0) == pytest.approx((1, 1, 1))
    noise = [rank_correlation(*RNG.normal(size=(2, 40)), resamples=400, seed=0)]
    assert 0.4 < noise[0].high - noise[0].low < 0.9


def test_few_problems_have_no_interval():
    """With three unrelated problems it would exclude 0 in a third of cases."""
    for count, has_interval in ((3, False), (5, False), (6, True)):
        found = rank_correlation(*RNG.normal(size=(2, count)), resamples=99, seed=0)
        assert math.isnan(found.low) is not has_interval
        assert math.isnan(found.high) is not has_interval


def test_influences_that_differ_by_rounding_are_equal():
    gains = [0.3 - 0.1, 0.5 - 0.3, 0.7 - 0.5, 0.9 - 0.7, 1.2 - 1.0]
    assert len({*gains}) >= 3
    problems = [problem(i, gain, guess=i) for i, gain in enumerate(gains)]
    assert correlate_estimates(problems, resamples=10, seed=0) == {}


def test_a_side_that_does_not_vary_has_no_correlation():
    found = rank_correlation(np.ones(4), np.arange(4.0), resamples=50, seed=0)
    assert math.isnan(found.value)


def test_each_estimate_is_correlated_with_the_influence_of_the_same_problem():
    """A problem without a signal does not count, whatever its numbers are."""
    exact = [3.0, -1.0, 2.0, 0.5, -2.0]
    problems = [
        problem(i, value, same=value, opposite=-value, flat=1.0)
        for i, value in enumerate(exact)
    ]
    silent = problem(9, 0.0, has_signal=False, same=-99.0, opposite=-99.0, flat=1.0)
    found = correlate_estimates([silent, *problems], resamples=100, seed=0)
    assert [*found] == [LOGPROB]  # pass@1 never changed
    assert {n: c.value for n, c in found[LOGPROB].items()} == pytest.approx(
        {"same": 1, "opposite": -1}
    )


def test_two_different_influences_are_too_few():
    problems = [problem(i, float(i), pass_at_1=i % 2, e=float(i)) for i in range(6)]
    assert [*correlate_estimates(problems, resamples=50, seed=0)] == [LOGPROB]
    assert correlate_estimates(problems[:2], resamples=50, seed=0) == {}
    assert correlate_estimates([], resamples=50, seed=0) == {}


RESULT = Result(
    num_held_out=20,
    num_solutions=18,
    checks={"next_checkpoint": 0.0, "metric": ("", 0.0)},
    tracin_steps=[2, 4],
    parts=[
        Influence(
            removed="the whole batch", outcomes={LOGPROB: Interval(0.01, -0.02, 0.04)}
        )
    ],
    problems=[
        problem(0, -0.5, dot=0.1),
        problem(1, 0.0, has_signal=False, dot=0.0),
        problem(2, 0.25, dot=0.7),
        problem(3, 0.125, dot=0.6),
    ],
    correlations={LOGPROB: {"dot": Interval(0.875, 0.5, 1.0)}},
)


def test_the_tables_rank_problems_and_name_their_units():
    text = format_result(RESULT)
    places = [line.split()[0] for line in text.splitlines() if "id-" in line]
    assert places == ["2", "3", "1", "0"]
    assert "the whole batch  +0.01 [-0.02, +0.04]" in text
    assert "dot       +0.88 [+0.50, +1.00]" in text
    assert "1.00 -" in text
    assert "20 held-out problems, 18 with a worked solution" in text
    assert "summed over the checkpoints 2, 4" in text
    assert "bits of the run's own next checkpoint" in text
    assert "the whole batch: compared with no update" in text


@pytest.mark.parametrize(
    ("gap", "metric", "said"),
    [
        (1e-4, ("", 0.0), "WARNING: the replay differs from the run's own next"),
        (None, ("", 0.0), "has the metrics that the run recorded"),
        (None, None, "has no record of this step to compare"),
        (None, ("loss/total", 0.5), "most in loss/total (50 %)"),
    ],
)
def test_a_replay_that_differs_from_the_run_is_reported(gap, metric, said):
    checks = {"next_checkpoint": gap, "metric": metric}
    assert said in format_result(dataclasses.replace(RESULT, checks=checks))


def test_the_file_holds_every_number():
    found = json.loads(json.dumps(RESULT.to_json()))
    assert found["parts"][0]["influence"][LOGPROB]["high"] == 0.04
    assert found["problems"][2]["problem"] == "id-2"
    assert found["problems"][2]["influence"][LOGPROB]["mean"] == 0.25
    assert found["problems"][2]["estimates"] == {"dot": 0.7}
    assert found["correlations"][LOGPROB]["dot"]["low"] == 0.5
