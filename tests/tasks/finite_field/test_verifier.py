"""Verdicts on finite-field answers."""

import dataclasses

import pytest

from rlvr_jax.tasks.finite_field.verifier import FiniteFieldVerifier
from rlvr_jax.types import Problem, Verdict

PROBLEM = Problem(
    id="p",
    prompt="invert : ? k + e2 = e0",
    gold="e5",
    verifier="finite_field",
    source="s",
)


@pytest.mark.parametrize(
    ("completion", "status", "reason", "answer"),
    [
        ("answer e5", "correct", "", "e5"),
        ("backward : k e0 - e2 = e5 answer e5", "correct", "", "e5"),
        ("  answer\te5\n", "correct", "", "e5"),
        ("answer e3 answer e5", "correct", "", "e5"),
        ("answer e3", "incorrect", "answered e3, gold is e5", "e3"),
        ("answer e5 answer e3", "incorrect", "answered e3, gold is e5", "e3"),
        ("answer e55", "incorrect", "answered e55, gold is e5", "e55"),
        ("answer e05", "incorrect", "answered e05, gold is e5", "e05"),
        ("answer E5", "incorrect", "answered E5, gold is e5", "E5"),
        ("answer e5 e5", "incorrect", "text after the answer", "e5"),
        ("answer e5 .", "incorrect", "text after the answer", "e5"),
        ("answer e5 answer", "incorrect", "no answer", None),
        ("answer answer", "incorrect", "no answer", None),
        ("answers e5", "incorrect", "no answer", None),
        ("answer", "incorrect", "no answer", None),
        ("e5", "incorrect", "no answer", None),
        ("", "incorrect", "no answer", None),
    ],
)
def test_the_last_answer_counts_and_must_end_the_text(
    completion, status, reason, answer
):
    assert FiniteFieldVerifier().grade(PROBLEM, completion) == Verdict(
        status=status, reason=reason, answer=answer
    )


@pytest.mark.parametrize("gold", ["", "5", "e", "e05", "e٣", "e5 ", "e1/2"])
def test_a_gold_that_is_no_numeral_is_unverified_and_never_earned(gold):
    problem = dataclasses.replace(PROBLEM, gold=gold)
    for completion in (f"answer {gold}", "answer e5", ""):
        verdict = FiniteFieldVerifier().grade(problem, completion)
        assert verdict.status == "unverified"
        assert repr(gold) in verdict.reason
