"""Luck earns nothing: a right answer is paid only if its steps lead to it."""

import pytest

from rlvr_jax.config import RewardConfig
from rlvr_jax.tasks.finite_field.rewards import worked_answer
from rlvr_jax.types import Problem

NAME = "rlvr_jax.tasks.finite_field.rewards:worked_answer"
EVALUATION = Problem(
    id="p",
    prompt="evaluate : e3 k + e2 l * e4 = ?",  # 3, 5, 20 = 6
    gold="e6",
    verifier="finite_field",
    source="finite_field/GF(7)",
)


@pytest.mark.parametrize(
    ("completion", "paid"),
    [
        ("forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e6", 1.0),
        # All others except the last four answer e6.
        ("forward : k e3 + e2 = e4 l e4 * e4 = e6 answer e6", 0.0),  # 3 + 2 = 5
        ("forward : k e3 + e2 = e4 l e5 * e4 = e6 answer e6", 0.0),  # two slips
        ("forward : k e2 + e2 = e4 l e4 * e4 = e2 answer e6", 0.0),  # another start
        ("forward : l e5 * e4 = e6 answer e6", 0.0),  # a step is missing
        ("forward : k e3 + e2 = e5 answer e6", 0.0),
        ("answer e6", 0.0),
        # Worked backward, it begins with the value in question: a guess.
        ("backward : l e6 / e4 = e5 k e5 - e2 = e3 answer e6", 0.0),
        ("forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e5", 0.0),
        ("forward : k e3 + e2 = e5 l e5 * e4 = e6 answer", 0.0),
        ("forward : k e3 + e2 = e5 l e5 * e4 = e6", 0.0),
        ("", 0.0),
    ],
)
def test_steps_must_lead_to_the_answer(completion, paid):
    assert worked_answer(EVALUATION, completion) == paid


def test_a_stated_confidence_is_no_part_of_the_answer():
    worked = "forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e6"
    assert worked_answer(EVALUATION, f"{worked} <confidence>0.2</confidence>") == 1
    bare = "answer e6 <confidence>1.0</confidence>"
    assert worked_answer(EVALUATION, bare) == 0


def test_a_problem_of_another_task_is_refused_and_the_name_is_a_reward():
    other = Problem(
        id="q", prompt="1 + 1 = ?", gold="2", verifier="math", source="records/x.jsonl"
    )
    with pytest.raises(ValueError, match=r"problem q is of records/x\.jsonl"):
        worked_answer(other, "answer e2")
    assert RewardConfig(names=(NAME,), weights=(1.0,)).names == (NAME,)
