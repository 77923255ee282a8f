"""Verdicts on finite-field answers."""

import dataclasses

import pytest

from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.finite_field import judge

PROBLEM = Problem(
    id="p", prompt="invert : ? k + e2 = e0", gold="e5", kind="finite_field", source="s"
)


@pytest.mark.parametrize(
    ("completion", "status", "reason", "answer"),
    [
        ("answer e5", "right", "", "e5"),
        ("backward : k e0 - e2 = e5 answer e5", "right", "", "e5"),
        ("  answer\te5\n", "right", "", "e5"),
        ("answer e3 answer e5", "right", "", "e5"),
        ("answer e3", "wrong", "answered e3, gold is e5", "e3"),
        ("answer e5 answer e3", "wrong", "answered e3, gold is e5", "e3"),
        ("answer e55", "wrong", "answered e55, gold is e5", "e55"),
        ("answer e05", "wrong", "answered e05, gold is e5", "e05"),
        ("answer E5", "wrong", "answered E5, gold is e5", "E5"),
        ("answer e5 e5", "wrong", "text after the answer", "e5"),
        ("answer e5 .", "wrong", "text after the answer", "e5"),
        ("answer e5 answer", "wrong", "no answer", None),
        ("answer answer", "wrong", "no answer", None),
        ("answers e5", "wrong", "no answer", None),
        ("answer", "wrong", "no answer", None),
        ("e5", "wrong", "no answer", None),
        ("", "wrong", "no answer", None),
    ],
)
def test_the_last_answer_counts_and_must_end_the_text(
    completion, status, reason, answer
):
    assert judge(PROBLEM, completion) == Verdict(
        status=status, reason=reason, answer=answer
    )


@pytest.mark.parametrize("gold", ["", "5", "e", "e05", "e٣", "e5 ", "e1/2"])
def test_a_gold_that_is_no_numeral_is_unjudged_and_never_earned(gold):
    problem = dataclasses.replace(PROBLEM, gold=gold)
    for completion in (f"answer {gold}", "answer e5", ""):
        verdict = judge(problem, completion)
        assert verdict.status == "unjudged"
        assert repr(gold) in verdict.reason
