"""The library's scores as verdicts: only the full score is correct."""

import dataclasses

import pytest

from job_jax.calls import CallLimits
from rlvr_jax.config import VerifierConfig
from rlvr_jax.tasks import ReasoningGymTask
from rlvr_jax.tasks.reasoning_gym import verifier as verifier_module
from rlvr_jax.tasks.reasoning_gym.entries import parse_id
from rlvr_jax.tasks.reasoning_gym.library import make_item
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.controls import corrupt_gold
from rlvr_jax.verifiers.grader import Grader

pytestmark = pytest.mark.usefixtures("stand_in")


def _problem(generator, index=0, **fields):
    task = ReasoningGymTask(generators=(generator,), **fields)
    return task.problems("train", seed=0)[index]


def _grade(problem, answer):
    completion = f"I think <answer>{answer}</answer>"
    return get_verifier("reasoning_gym").grade(problem, completion)


def test_the_gold_is_correct_and_what_is_near_it_is_not():
    problem, other = (_problem("sums max_value=900", index) for index in (0, 1))
    gold = problem.gold
    assert gold != other.gold
    assert _grade(problem, gold).status == "correct"
    assert _grade(problem, f"  {gold}\n").status == "correct"
    for answer in (
        *(other.gold, f"{gold} or so", f"the answer is {gold}", f"{gold}{gold}"),
        *(f"{gold} or {other.gold}", f"{gold}.", "", " ", "?"),
    ):
        assert _grade(problem, answer).status == "incorrect", answer
    assert "score 0." in _grade(problem, f"{gold} or so").reason
    verdict = get_verifier("reasoning_gym").grade(problem, gold)
    assert (verdict.status, verdict.reason) == ("incorrect", "no final answer")


@pytest.mark.parametrize(
    ("answer_format", "completion"),
    [
        ("boxed", "\\boxed{%s}"),
        ("any", "so the answer is %s"),
        ("tagged", "<answer>%s</answer>"),
    ],
)
def test_the_answer_is_read_where_the_problem_requests_it(answer_format, completion):
    problem = _problem("sums", answer_format=answer_format)
    graded = get_verifier("reasoning_gym").grade(problem, completion % problem.gold)
    assert graded.status == "correct"


def test_a_score_above_one_is_not_a_full_score():
    problem = _problem("above")
    assert _grade(problem, problem.gold).status == "correct"
    verdict = _grade(problem, str(2 * int(problem.gold)))
    assert (verdict.status, verdict.reason) == ("incorrect", "score 2")


def test_an_answer_on_which_the_scorer_fails_or_hangs_is_incorrect(monkeypatch):
    verdict = _grade(_problem("unstated"), "many")
    assert verdict.status == "incorrect"
    assert verdict.reason.startswith("the scorer of unstated: ValueError")
    problem = _problem("slow")
    monkeypatch.setattr(verifier_module, "_LIMITS", CallLimits(timeout_s=0.05))
    verdict = _grade(problem, "slow")
    assert (verdict.status, verdict.failure) == ("incorrect", "time_limit")
    assert _grade(problem, problem.gold).status == "correct"


def test_a_scorer_that_writes_into_the_problem_changes_nothing():
    problem = _problem("unstated")
    item = make_item(*parse_id(problem.id))
    before = dict(item.entry["metadata"])
    for _ in range(2):
        assert _grade(problem, "4").status == "correct"
        assert _grade(problem, "5").status == "incorrect"
    assert item.entry["metadata"] == before != {"index": -1}


def test_a_problem_of_another_version_is_unverified():
    problem = dataclasses.replace(_problem("sums"), prompt="Another question?")
    verdict = _grade(problem, problem.gold)
    assert verdict.status == "unverified"
    assert "reasoning-gym 9.9 makes another problem" in verdict.reason


def test_a_false_gold_is_what_a_control_reward_grades_by():
    problem = _problem("sums")
    false = corrupt_gold(problem)
    assert false.gold != problem.gold
    assert _grade(false, false.gold).status == "correct"
    assert _grade(false, problem.gold).status == "incorrect"


def test_a_scorer_that_evaluates_the_answer_sees_formulas_alone(tmp_path):
    problem = _problem("countdown")
    a, _, b, *_ = problem.prompt.split()
    assert _grade(problem, f"({b} + {a}) * 1").status == "correct"
    canary = tmp_path / "canary"
    for answer in (
        f"open({str(canary)!r}, 'w').write('') or {problem.gold}",
        f"__import__('pathlib').Path({str(canary)!r}).touch() or {problem.gold}",
        f"[{problem.gold} for _ in 'a'][0]",
        "9**9**9**9",
    ):
        verdict = _grade(problem, answer)
        assert verdict.status == "incorrect"
        assert verdict.reason.startswith("not a formula")
    assert not canary.exists()


def test_a_batch_is_graded_by_the_grader_of_a_run():
    problems = [_problem("sums", 0), _problem("differences", 1)]
    answers = [f"<answer>{p.gold}</answer>" for p in problems]
    with Grader(VerifierConfig()) as grader:
        assert {v.status for v in grader(problems, answers)} == {"correct"}
        swapped = grader(problems, answers[::-1])
    assert {v.status for v in swapped} == {"incorrect"}
