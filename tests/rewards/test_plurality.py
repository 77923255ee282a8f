"""The reward `plurality`: the group's most frequent answer counts as right."""

import functools

import pytest

from job_jax.calls import CallLimits
from rlvr_jax.algorithms.reward import CompletionTexts
from rlvr_jax.config import RewardConfig, VerifierConfig
from rlvr_jax.rewards.built_in.plurality import score_agreement
from rlvr_jax.rewards.parts import load_reward
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.grader import Grader


@pytest.mark.parametrize(
    ("answers", "scores"),
    [
        (["3", "5", "3", "7"], [1, 0, 1, 0]),
        (["5", "3", "7", "3"], [0, 1, 0, 1]),
        (["3", "3", "3", "3"], [1, 1, 1, 1]),
        # A tie pays all of the tied answers, in any order.
        (["3", "5", "5", "3", "7"], [1, 1, 1, 1, 0]),
        (["3", "5"], [1, 1]),
        # Missing answers do not vote, however many there are.
        ([None, "5", None, None], [0, 1, 0, 0]),
        ([None, None], [0, 0]),
        # A group of one.
        (["3"], [1]),
        ([None], [0]),
    ],
)
def test_the_most_frequent_answers_earn_1(answers, scores):
    assert score_agreement(answers) == scores


WRONG = "rlvr_jax.rewards.built_in.plurality:WrongPlurality"


@pytest.fixture(scope="module")
def score():
    """Returns a function: texts of one problem -> their rewards, with one grader."""
    with Grader(VerifierConfig(workers=1)) as grader:
        yield functools.partial(_score, grader)


def _score(
    grader,
    texts,
    *,
    group_size,
    verifier="numeric",
    gold="1",
    cut=(),
    form="any",
    name="plurality",
):
    one = Problem(
        id="a",
        prompt="",
        gold=gold,
        verifier=verifier,
        source="test",
        answer_format=form,
    )
    made = CompletionTexts(
        problems=[one] * len(texts),
        texts=texts,
        was_cut=[row in cut for row in range(len(texts))],
        group_size=group_size,
        seed=0,
        grader=grader,
        limits=CallLimits(timeout_s=1.0),
    )
    return load_reward(name).score(made).values


def test_the_gold_changes_nothing(score):
    texts = ["#### 3", "#### 4", "#### 3", "#### 5"]
    for gold in ("3", "4", "5", "9"):
        assert score(texts, group_size=4, gold=gold) == [1, 0, 1, 0]


def test_each_group_has_its_own_plurality(score):
    texts = ["#### 3", "#### 3", "#### 4", "#### 4", "#### 4", "#### 3"]
    assert score(texts, group_size=3) == [1, 1, 0, 1, 1, 0]
    assert score(texts, group_size=1) == [1] * 6


def test_answers_of_one_value_are_one_answer(score):
    texts = ["#### 0.5", "#### 3", "#### 0.50", "#### 4"]
    assert score(texts, group_size=4) == [1, 0, 1, 0]


def test_an_answer_that_is_cut_or_malformed_does_not_vote(score):
    texts = ["#### 3", "#### 4", "#### 4", "it is 4"]
    assert score(texts, group_size=4, cut=(2,)) == [1, 1, 0, 0]
    worlds = ["answer e3", "answer e4 e4", "answer e4 ,", "answer e3"]
    assert score(worlds, group_size=4, verifier="finite_field", gold="e4") == [
        *(1, 0, 0, 1)
    ]


def test_a_stated_confidence_is_no_part_of_the_answer(score):
    texts = ["answer e3 <confidence>0.2</confidence>", "answer e3", "answer e4"]
    found = score(texts, group_size=3, verifier="finite_field", gold="e4")
    assert found == [1, 1, 0]


def test_a_completion_whose_verifier_failed_has_no_opinion(score, monkeypatch):
    """It does not vote either: without it, 3 and 4 are tied."""
    verdicts = [
        Verdict(status="unverified", failure="time_limit", answer="4"),
        Verdict(status="incorrect", answer="4"),
        Verdict(status="correct", answer="3"),
    ]
    monkeypatch.setattr(Grader, "__call__", lambda *_: verdicts)
    assert score(["#### 4", "#### 4", "#### 3"], group_size=3) == [None, 1, 1]


def test_the_most_frequent_wrong_answers_earn_1_whatever_is_right(score):
    texts = ["#### 3", "#### 4", "#### 3", "#### 3", "#### 4", "#### 5"]
    for gold, expected in {
        "3": [0, 1, 0, 0, 1, 0],  # the right answer is the plurality
        "4": [1, 0, 1, 1, 0, 0],
        "9": [1, 0, 1, 1, 0, 0],  # everything is wrong
    }.items():
        assert score(texts, group_size=6, gold=gold, name=WRONG) == expected
    assert score(["#### 3"] * 2, group_size=2, gold="3", name=WRONG) == [0, 0]


def test_each_group_has_its_own_wrong_plurality(score):
    texts = ["#### 3", "#### 4", "#### 5", "#### 4"]
    assert score(texts, group_size=2, gold="4", name=WRONG) == [1, 0, 1, 0]


def test_a_config_names_it():
    assert RewardConfig(names=("plurality",)).names == ("plurality",)
