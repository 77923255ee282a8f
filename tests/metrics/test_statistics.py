"""Properties of pass@k, maj@k and the evaluation summary."""

import collections
import itertools
import json
import math

import numpy as np
import pytest

from rlvr_jax.metrics.statistics import (
    ProblemResult,
    majority_at_k,
    pass_at_k,
    summarize_results,
)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (1, 0, 1, 0.0),
        (1, 1, 1, 1.0),
        (8, 3, 1, 3 / 8),
        (8, 3, 2, 1 - (5 * 4) / (8 * 7)),
        (8, 3, 6, 1.0),  # 5 wrong samples cannot fill 6 draws
        (8, 0, 8, 0.0),
        (8, 8, 3, 1.0),
        (4, 1, 4, 1.0),
    ],
)
def test_pass_at_k_by_hand(n, c, k, expected):
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-15)


def test_pass_at_k_equals_the_binomials_for_every_small_case():
    for n in range(1, 11):
        for c, k in itertools.product(range(n + 1), range(1, n + 1)):
            exact = 1 - math.comb(n - c, k) / math.comb(n, k)
            assert pass_at_k(n, c, k) == pytest.approx(exact, abs=1e-14)


def test_pass_at_k_does_not_overflow():
    # C(100000, 50000) has 30,000 digits. Half of the samples contain one of two correct
    # ones except with probability 1/4, slightly less without replacement.
    expected = 1 - (50_000 * 49_999) / (100_000 * 99_999)
    assert pass_at_k(100_000, 2, 50_000) == pytest.approx(expected, rel=1e-9)


def test_pass_at_k_broadcasts():
    curve = pass_at_k(np.array([[4], [4]]), np.array([[1], [2]]), np.array([1, 2, 4]))
    np.testing.assert_allclose(curve, [[1 / 4, 1 / 2, 1], [1 / 2, 5 / 6, 1]])
    assert isinstance(pass_at_k(4, 1, 2), float)
    assert pass_at_k([4, 8], 1, 1).tolist() == [0.25, 0.125]


def test_counts_may_be_whole_floats():
    rewards = np.float32([[1, 0, 0, 0], [1, 1, 0, 0]])
    found = pass_at_k(4.0, rewards.sum(axis=1), 2)
    np.testing.assert_allclose(found, [1 / 2, 5 / 6])
    assert pass_at_k(4.0, np.float64(1), 2.0) == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("n", "c", "k", "message"),
    [
        (4, 1, 5, "k must be in 1..n, got n=4, c=1, k=5"),
        (4, 1, 0, "k must be in 1..n, got n=4, c=1, k=0"),
        (4, 5, 1, "c must be in 0..n, got n=4, c=5, k=1"),
        (4, -1, 1, "c must be in 0..n, got n=4, c=-1, k=1"),
        ([4, 4], [1, 9], 1, "c must be in 0..n, got n=4, c=9, k=1"),
        (4, 0.5, 1, "c=0.5 must be whole numbers"),
        (4, 1, [1.0, np.nan], "must be whole numbers"),
        (4, "1", 1, "c=1 must be whole numbers"),
    ],
)
def test_pass_at_k_names_impossible_counts(n, c, k, message):
    with pytest.raises(ValueError, match=message):
        pass_at_k(n, c, k)


def vote(drawn):
    """Returns the index of the winning sample in an ordered draw, None if nobody wins.

    This is the definition, spelled out: most votes win, ties go to the first to occur.
    """
    counts = collections.Counter(answer for answer, _ in drawn if answer is not None)
    best = max(counts.values(), default=0)
    return next((right for answer, right in drawn if counts[answer] == best > 0), False)


ANSWERS = [
    (["a", "a", "b", "b", "c"], "a"),
    (["a", "b", "b", "b", "c"], "a"),
    ([None, None, None, "a", "b"], "a"),
    ([None, "a", "a", "a", None], "a"),
    (["a", "b", "c", "d", "e"], "c"),
    (["b", "b", "b", "b", "b"], "a"),
    ([None] * 5, "a"),
]


@pytest.mark.parametrize(("answers", "gold"), ANSWERS)
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_majority_is_the_mean_vote_over_every_ordered_draw(answers, gold, k):
    samples = [(answer, answer == gold) for answer in answers]
    votes = [vote(drawn) for drawn in itertools.permutations(samples, k)]
    rights = [right for _, right in samples]
    expected = sum(votes) / len(votes)
    assert majority_at_k(answers, rights, k) == pytest.approx(expected, abs=1e-12)


def test_majority_of_one_is_pass_at_one_and_of_all_is_the_usual_vote():
    answers = ["5", "5", "5", "3", "3", None, "1", "2"]
    rights = [answer == "5" for answer in answers]
    assert majority_at_k(answers, rights, 1) == pytest.approx(3 / 8)
    assert majority_at_k(answers, rights, 8) == 1.0


def test_two_spellings_of_a_right_answer_both_win():
    # 1/2 and 0.5 are different strings, both judged right: either may win.
    assert majority_at_k(["1/2", "0.5", "3"], [True, True, False], 3) == pytest.approx(
        2 / 3
    )


@pytest.mark.parametrize("k", [0, 4])
def test_majority_refuses_more_votes_than_samples(k):
    with pytest.raises(ValueError, match=f"got n=3, k={k}"):
        majority_at_k(["a", "b", "c"], [True, False, False], k)


def result(id, level, type, statuses, strategies=()):
    n = len(statuses)
    return ProblemResult(
        id=id,
        level=level,
        type=type,
        statuses=statuses,
        answers=tuple("7" if s == "correct" else None for s in statuses),
        lengths=tuple(range(10, 10 + n)),
        finished=tuple(s != "unverified" for s in statuses),
        states_gold=tuple(s != "incorrect" for s in statuses),
        strategies=strategies,
    )


R, W, U = "correct", "incorrect", "unverified"
RESULTS = [
    result("a", 2, "evaluation", (R, R, R, R), ("f", "f", "f", "b")),
    result("b", 10, "evaluation", (R, W, W, U), ("f", "b", "b", "b")),
    result("c", 2, "inversion", (R, R, W, W), ("b", "b", "f", "f")),
]


def test_summary_by_hand():
    summary = summarize_results(RESULTS, k=(1, 4), resamples=200, seed=0)
    assert (summary["problems"], summary["samples"]) == (3, 12)
    assert summary["pass@k"]["1"]["mean"] == pytest.approx(7 / 12)
    assert summary["pass@k"]["4"]["mean"] == pytest.approx(1.0)
    # Seven correct ones, and the one that could not be judged.
    assert summary["lenient"]["mean"] == pytest.approx(8 / 12)
    # The one correct sample of b wins its vote, because the others abstain.
    assert summary["maj@k"]["4"]["mean"] == pytest.approx(1.0)
    assert summary["length_mean"] == 11.5
    assert summary["truncated"] == summary["unverified"] == pytest.approx(1 / 12)
    assert list(summary["by_level"]) == ["2", "10"]
    assert summary["by_level"]["2"]["pass@k"]["1"]["mean"] == pytest.approx(6 / 8)
    assert summary["by_level"]["10"]["problems"] == 1
    # One problem has no interval.
    ten = summary["by_level"]["10"]["pass@k"]["1"]
    assert ten == {"mean": 0.25, "low": None, "high": None}
    inversion = summary["by_level_type"]["2"]["inversion"]
    assert inversion == summary["by_type"]["inversion"]
    assert inversion["pass@k"]["1"]["mean"] == pytest.approx(1 / 2)


def test_summary_of_strategies_by_hand():
    summary = summarize_results(RESULTS, k=(1,), resamples=200, seed=0)
    forward = summary["strategies"]["evaluation"]["f"]
    backward = summary["strategies"]["evaluation"]["b"]
    assert (forward["n"], backward["n"]) == (4, 4)
    assert forward["share"]["mean"] == pytest.approx(4 / 8)
    assert forward["pass"]["mean"] == pytest.approx(4 / 4)
    assert backward["pass"]["mean"] == pytest.approx(1 / 4)
    assert summary["strategies"]["inversion"]["f"]["pass"]["mean"] == 0.0


def test_summary_without_strategies_has_none():
    plain = [result("a", 0, "", (R, W)), result("b", 0, "", (W, W))]
    summary = summarize_results(plain, k=(1, 2), resamples=50, seed=0)
    assert summary["strategies"] == {}
    assert summary["pass@k"]["2"]["mean"] == 0.5


def test_summary_is_plain_json():
    summary = summarize_results(RESULTS, k=(1, 2), resamples=50, seed=0)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_summary_refuses_one_problem_twice():
    with pytest.raises(ValueError, match="2 results, 1 ids"):
        summarize_results([RESULTS[0], RESULTS[0]], k=(1,), resamples=10, seed=0)


def test_result_refuses_fields_of_different_sizes():
    with pytest.raises(ValueError, match=r"problem x: 2 statuses, .* 1 strategies"):
        result("x", 1, "t", (R, W), ("f",))
