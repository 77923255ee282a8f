"""Memorization's ratio: which seen and fresh problems are paired, and its null value.

Each problem has a given surprise, so no policy is needed.
"""

import types

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.metrics import memorization
from rlvr_jax.metrics.memorization import summarize_memorization
from rlvr_jax.types import Problem

PAIRS = 30


def problems(kind, number=PAIRS):
    """Returns problems whose solutions differ in length by ten tokens each."""
    return [
        Problem(
            id=f"{kind}{i}",
            prompt="",
            gold="",
            verifier="",
            source="",
            solution="x" * (100 * (i + 1)),
        )
        for i in range(number)
    ]


@pytest.fixture
def summarize(monkeypatch):
    """Returns a function from the surprise of each problem id to the summary."""
    monkeypatch.setattr(
        memorization, "encode_episode", lambda p, *_: ([0] * len(p.solution), [])
    )
    setup = types.SimpleNamespace(
        config=types.SimpleNamespace(environment=None), tokenizer=None
    )

    def of(nll, *, seen=None, fresh=None):
        monkeypatch.setattr(
            memorization,
            "gold_nll",
            lambda setup, params, asked: np.array([nll[p.id] for p in asked]),
        )
        return summarize_memorization(
            setup, None, seen or problems("seen"), fresh or problems("fresh")
        )

    return of


def drawn(seed, *, gain=0.0):
    """Returns each problem's surprise: mostly its length, and a little chance."""
    rng = np.random.default_rng(seed)
    common = rng.normal(1.0, 0.5, size=PAIRS)
    return {
        f"{kind}{i}": common[i] + shift + 0.1 * rng.normal()
        for kind, shift in (("seen", -gain), ("fresh", 0.0))
        for i in range(PAIRS)
    }


def test_the_ratio_is_fresh_over_seen_with_students_interval_of_the_pairs(summarize):
    nll = drawn(0, gain=0.3)
    found = summarize(nll)
    seen, fresh = (
        [nll[f"{kind}{i}"] for i in range(PAIRS)] for kind in ("seen", "fresh")
    )
    ends = stats.ttest_rel(fresh, seen).confidence_interval(0.95)
    assert found["problems"] == PAIRS
    assert found["perplexity_seen"] == pytest.approx(np.exp(np.mean(seen)))
    assert found["perplexity_fresh"] == pytest.approx(np.exp(np.mean(fresh)))
    assert found["ratio"] == pytest.approx(
        {
            "mean": np.exp(np.mean(fresh) - np.mean(seen)),
            "low": np.exp(ends.low),
            "high": np.exp(ends.high),
        }
    )
    assert found["ratio"]["low"] > 1.2


def test_pairs_do_not_depend_on_the_order_of_the_fresh_problems(summarize):
    nll = drawn(1, gain=0.1)
    turned = summarize(nll, fresh=problems("fresh")[::-1])
    assert turned["ratio"] == pytest.approx(summarize(nll)["ratio"])


def test_a_policy_that_knows_no_problem_has_a_ratio_of_one_as_often_as_it_says(
    summarize,
):
    """Of 400 policies the interval misses 1 in 20, half of them on each side."""
    ratios = [summarize(drawn(seed))["ratio"] for seed in range(400)]
    above = np.mean([ratio["low"] > 1 for ratio in ratios])
    below = np.mean([ratio["high"] < 1 for ratio in ratios])
    assert 0.007 <= above <= 0.045
    assert 0.007 <= below <= 0.045


def test_swapping_seen_and_fresh_inverts_the_ratio(summarize):
    nll = drawn(2, gain=0.3)
    swapped = {
        name.replace("seen", "S").replace("fresh", "seen").replace("S", "fresh"): value
        for name, value in nll.items()
    }
    one, other = summarize(nll)["ratio"], summarize(swapped)["ratio"]
    assert one["mean"] * other["mean"] == pytest.approx(1)
