"""Problems with several golds, any of which counts."""

import dataclasses
from typing import ClassVar

import pytest

from rlvr_jax.config import Config, EvalConfig, VerifierConfig
from rlvr_jax.config.judge import JudgeConfig
from rlvr_jax.metrics.lenient import has_lenient_accuracy
from rlvr_jax.metrics.scores import summarize_completions
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import VERIFIERS, Verifier
from rlvr_jax.verifiers.controls import corrupt_gold
from rlvr_jax.verifiers.grader import Grader
from rlvr_jax.verifiers.judge import request_body

PROBLEM = Problem(
    id="p",
    prompt="Which?",
    gold="3",
    other_golds=("7", "x^2"),
    verifier="math",
    source="test",
)
STATUSES = ("incorrect", "unverified", "correct")


class Scripted(Verifier):
    """Gives the verdict that a completion lists for the gold; remembers its calls."""

    calls: ClassVar[list[tuple[str, tuple[str, ...]]]] = []

    def grade(self, problem, completion):
        self.calls.append((problem.gold, problem.other_golds))
        status = dict(pair.split("=") for pair in completion.split())[problem.gold]
        return Verdict(status=status, answer=problem.gold)


class ReadsAll(Scripted):
    reads_other_golds = True


@pytest.fixture
def grader(monkeypatch):
    monkeypatch.setattr(Scripted, "calls", [])
    with Grader(VerifierConfig(workers=1, timeout_s=60.0)) as grader:
        yield grader


def problem(verifier, *golds):
    name = f"{__name__}:{verifier.__name__}"
    return dataclasses.replace(
        PROBLEM, verifier=name, gold=golds[0], other_golds=golds[1:]
    )


def test_any_gold_counts(grader):
    texts = ["#### 7", "so 3", r"\boxed{x \cdot x}", "#### 8", ""]
    verdicts = grader([PROBLEM] * 5, texts)
    assert [v.status for v in verdicts] == ["correct"] * 3 + ["incorrect"] * 2
    alone = grader([dataclasses.replace(PROBLEM, other_golds=())] * 5, texts)
    assert [v.status for v in alone].count("correct") == 1


def test_each_problem_of_a_batch_has_its_own_golds(grader):
    one = dataclasses.replace(PROBLEM, other_golds=())
    two = dataclasses.replace(PROBLEM, gold="5", other_golds=("3",))
    verdicts = grader([one, two, PROBLEM, one], ["7", "3", "7", "3"])
    assert [v.status for v in verdicts] == ["incorrect"] + ["correct"] * 3


@pytest.mark.parametrize("first", STATUSES)
@pytest.mark.parametrize("second", STATUSES)
def test_the_best_verdict_counts(grader, first, second):
    [verdict] = grader([problem(Scripted, "a", "b")], [f"a={first} b={second}"])
    assert verdict.status == max(first, second, key=STATUSES.index)
    assert verdict.answer == ("a" if first == verdict.status else "b")


def test_a_gold_is_graded_once_and_not_after_a_correct_one(grader):
    grader([problem(Scripted, "a", "b", "c")], ["a=incorrect b=correct c=correct"])
    assert Scripted.calls == [("a", ()), ("b", ())]


def test_a_verifier_may_read_all_golds_itself(grader):
    [verdict] = grader([problem(ReadsAll, "a", "b")], ["a=incorrect b=correct"])
    assert (verdict.status, Scripted.calls) == ("incorrect", [("a", ("b",))])


def test_each_gold_must_be_usable(grader):
    told = grader.invalid_golds(
        [
            PROBLEM,
            dataclasses.replace(PROBLEM, id="words", other_golds=("seven", "((")),
            dataclasses.replace(PROBLEM, id="alone", gold="((", other_golds=()),
        ]
    )
    assert set(told) == {"words", "alone"}
    assert told["words"].startswith("gold 'seven': ")
    assert not told["alone"].startswith("gold '")


def test_a_wrong_label_has_no_right_one_beside_it():
    assert corrupt_gold(PROBLEM).golds == ("4",)


def test_the_judge_is_told_all_golds_at_once():
    [_, asked] = request_body(JudgeConfig(), PROBLEM, "7")["messages"]
    assert "3\nor: 7\nor: x^2" in asked["content"]
    assert VERIFIERS.load("judge").reads_other_golds


@pytest.mark.parametrize(
    ("golds", "text", "share"),
    [
        (("3", "7"), "It is 7, or not.", 1.0),
        (("3", "7"), "It is 8.", 0.0),
        (("3",), "It is 7, or not.", 0.0),
    ],
)
def test_any_gold_anywhere_counts_as_lenient(golds, text, share):
    graded = GradedCompletion(
        problem=dataclasses.replace(PROBLEM, gold=golds[0], other_golds=golds[1:]),
        completion=text,
        verdict=Verdict(status="incorrect"),
        length=3,
        finished=True,
        strategy=None,
        weight_version=0,
    )
    config = Config(eval=EvalConfig(num_samples=1, k=(1,), bootstrap_resamples=2))
    assert summarize_completions(config, [graded])["lenient"]["mean"] == share


def test_one_gold_in_words_leaves_lenient_accuracy_out():
    assert not has_lenient_accuracy(PROBLEM.golds)
