"""Stories: their arithmetic, their split, and the text of their solutions."""

import dataclasses
import re

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.environments import Calculator, Message
from rlvr_jax.tasks import WordProblemsTask
from rlvr_jax.tasks.word_problems.stories import VERBS
from rlvr_jax.verifiers.answers.arithmetic import evaluate_expression
from rlvr_jax.verifiers.base import get_verifier

TASK = WordProblemsTask(largest=60, tool_fraction=1.0)
OPS = {verb: op for op, verbs in VERBS.items() for verb in verbs}


def _first(stage, count=60, task=TASK, seed=0):
    source = task.problems(stage, seed=seed)
    return [source[index] for index in range(count)]


def _work(prompt):
    """Returns start and steps, read from the prompt by the test's own rules."""
    told, question = prompt.split(" . ")
    assert question == "how many ?"
    first, *rest = told.split(" , ")
    start = int(re.fullmatch(r"\w+ has (\d+) \w+", first)[1])
    steps = [part.rsplit(" ", 1) for part in rest]
    return start, [(OPS[verb], int(operand)) for verb, operand in steps]


def test_the_gold_is_what_the_story_comes_to_and_all_numbers_are_words():
    words = set(TASK.vocabulary()) | set(Calculator().vocabulary())
    ops = set()
    for problem in _first("train"):
        value, steps = _work(problem.prompt)
        assert len(steps) == problem.level
        for op, operand in steps:
            exact = evaluate_expression(f"{value} {op} {operand}")
            assert exact.denominator == 1
            value = int(exact)
            assert 0 <= value <= 60
            assert operand >= 2
            ops.add(op)
        assert problem.gold == str(value)
        assert set(problem.prompt.split()) <= words
        assert set(problem.solution.split()) <= words
    assert ops == set("+-*/")


@pytest.mark.parametrize(
    ("stage", "fields"),
    [
        ("train", {"largest": 20, "operations": ("/",), "train_steps": (4,)}),
        ("train", {"operations": ("/",), "train_steps": (8,)}),
        ("eval", {"largest": 20, "operations": ("*",), "eval_steps": (4,)}),
    ],
)
def test_a_side_without_stories_is_refused_at_once(stage, fields):
    with pytest.raises(ConfigError, match=r"too few (train|held-out) stories of \d"):
        WordProblemsTask(**fields).problems(stage, seed=0)


def test_a_chat_model_is_asked_for_the_tags_that_the_answer_is_read_from():
    chat = dataclasses.replace(TASK, chat_template="<user>{{ messages[0].content }}")
    for plain, asked in zip(_first("eval"), _first("eval", task=chat), strict=True):
        assert asked.prompt == (
            f"<user>{plain.prompt}\nReason step by step, and put the final answer "
            "within <answer> and </answer>."
        )
        assert dataclasses.replace(asked, prompt=plain.prompt) == plain


def test_solutions_are_episodes_that_the_calculator_confirms():
    environment = Calculator(largest_result=60)
    for problem in _first("sft", 20):
        messages = environment.demonstrate(problem)
        for at in range(0, len(messages) - 1, 2):
            reply = environment.respond(problem, messages[: at + 1])
            assert messages[at + 1] == Message(role="environment", text=reply.text)
        assert environment.respond(problem, messages).done
        text = environment.completion(problem, messages)
        assert get_verifier("exact").grade(problem, text).status == "correct"


def test_a_fraction_of_the_solutions_calls_and_the_question_is_the_same():
    half = dataclasses.replace(TASK, tool_fraction=0.5)
    called = 0
    for own, other in zip(_first("sft"), _first("sft", task=half), strict=True):
        assert (own.prompt, own.gold) == (other.prompt, other.gold)
        called += "<calc>" in other.solution
        if "<calc>" not in other.solution:
            assert other.solution == f"<answer> {other.gold} </answer>"
    assert 15 < called < 45


def test_seeds_differ_but_for_held_out_stories_which_no_other_stage_asks():
    assert _first("train") != _first("train", seed=1)
    assert _first("eval") == _first("eval", seed=1)
    seen = {_key(p) for seed in (0, 1) for p in _first("train", 200, seed=seed)}
    assert not seen & {_key(p) for p in _first("eval", 200)}
    assert len({p.id for p in _first("train")}) == 60


def _key(problem):
    start, steps = _work(problem.prompt)
    return start, tuple(steps)


@pytest.mark.parametrize("held_out", ["train", "eval"])
def test_problems_are_functions_of_their_index(held_out):
    source = TASK.problems(held_out, seed=3)
    assert source[7] == TASK.problems(held_out, seed=3)[7]
    with pytest.raises(IndexError):
        source[-1]
    with pytest.raises(IndexError):
        source[len(source)]


def test_the_way_to_an_answer_is_reported():
    problem = _first("train", 1)[0]
    ways = {
        "<calc> 1 + 1 </calc>\n<answer> 2 </answer>": ("calls", False),
        "<answer> 2 </answer>": ("no_calls", True),
        "ann": ("no_calls", False),
    }
    for text, (strategy, bare) in ways.items():
        found = TASK.behavior(problem, text, is_correct=False)
        assert (found.strategy, found.flags["bare_answer"]) == (strategy, bare)


def test_operations_without_a_story_are_refused():
    with pytest.raises(ConfigError, match=r"operations=\('%',\)"):
        WordProblemsTask(operations=("%",))
