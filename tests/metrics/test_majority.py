"""maj@k with missing verdicts, with ties, and with two verdicts on one answer."""

import itertools

import pytest

from rlvr_jax.metrics.statistics import (
    ProblemResult,
    majority_at_k,
    summarize_results,
)

STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}


def maj(answers, verdicts, k):
    """Returns maj@k of one problem among two, as in summary.json.

    The other problem is never right.
    """
    results = [
        ProblemResult(
            id=name,
            level=0,
            type="",
            statuses=tuple(STATUS[letter] for letter in letters),
            answers=tuple(answer if answer != "-" else None for answer in told),
            lengths=(1,) * len(told),
            finished=(True,) * len(told),
        )
        for name, told, letters in (
            ("asked", answers, verdicts),
            ("other", "-" * len(answers), "w" * len(answers)),
        )
    ]
    summary = summarize_results(results, k=(k,), resamples=10, seed=0)
    return 2 * summary["maj@k"][str(k)]["mean"]


@pytest.mark.parametrize(
    ("answers", "verdicts", "expected"),
    [
        ("aab", "rrw", 1.0),
        ("baa", "wrr", 1.0),
        ("aab", "wwr", 0.0),  # the last sample is right, but outvoted
        ("baa", "rww", 0.0),  # here the first one is
        ("ab", "rw", 1 / 2),  # a tie: either may win
        ("abc", "rww", 1 / 3),
        ("abc", "rrw", 2 / 3),
        ("aabb", "rrww", 1 / 2),
        ("aabbc", "rrwwr", 1 / 2),
        ("-a-b-", "wruwu", 1 / 2),  # a sample without an answer has no vote
        ("----a", "uuuur", 1.0),
        ("-----", "uuwww", 0.0),
        ("aau", "uur", 0.0),  # two unverified samples outvote a correct one
        ("aab", "uuw", 0.0),
        ("abb", "urr", 1.0),
    ],
)
def test_the_answer_with_most_votes_gives_the_verdict(answers, verdicts, expected):
    assert maj(answers, verdicts, len(answers)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("verdicts", "expected"), [("rw", 1.0), ("wr", 0.0), ("ur", 0.0), ("ru", 1.0)]
)
def test_an_answer_judged_twice_has_its_first_verdict(verdicts, expected):
    """A judge may change its mind, and a verifier may hit its time limit."""
    assert maj("aa", verdicts, 2) == expected
    assert maj("aab", verdicts + "w", 3) == expected
    # At k = 1 each sample has one vote, and the answer's first verdict still counts.
    assert maj("aa", verdicts, 1) == expected


def test_a_tie_is_split_evenly_in_any_order_of_the_samples():
    for order in set(itertools.permutations(["a", "a", "b", "b", "c"])):
        rights = [answer == "a" for answer in order]
        assert majority_at_k(order, rights, 5) == pytest.approx(1 / 2)
        assert majority_at_k(order, rights, 1) == pytest.approx(2 / 5)
