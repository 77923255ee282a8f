"""Arithmetic questions: their golds, their levels, and the held-out pairs."""

import dataclasses
import re

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks import ArithmeticTask
from rlvr_jax.verifiers.base import get_verifier

TASK = ArithmeticTask(train_size=600, eval_size=200)


def _problems(stage, *, seed=0, task=TASK):
    source = task.problems(stage, seed=seed)
    return [source[index] for index in range(len(source))]


def _numbers(problem):
    """Returns the numbers that a question names, sorted."""
    return tuple(sorted(map(int, re.findall(r"\d+", problem.prompt))))


def test_questions_of_other_levels_have_other_ids():
    low, high = (
        dataclasses.replace(TASK, levels=levels) for levels in ((2, 3), (4, 5))
    )
    ids = [{p.id for p in _problems("eval", task=task)} for task in (TASK, low, high)]
    assert "arithmetic-eval-0-0" in ids[0]
    assert "arithmetic-2.3-eval-0-0" in ids[1]
    assert not ids[1] & (ids[0] | ids[2])


# Words that name the operation, by the test's own rules.
_ADD = ("plus", "Add", "gets", "blue")
_SUBTRACT = ("minus", "less", "gives away", "took")
_MULTIPLY = ("times", "Multiply", "*")


def _solve(prompt):
    """Returns the answer to a question, worked out from its words."""
    if calculation := re.search(r"\d+(?: [+-] \d+){1,2}", prompt):
        total, sign = 0, "+"
        for word in calculation[0].split():
            if word in "+-":
                sign = word
            else:
                total += int(word) if sign == "+" else -int(word)
        return total
    first, second = map(int, re.findall(r"\d+", prompt))
    if any(word in prompt for word in _MULTIPLY):
        return first * second
    if any(word in prompt for word in _SUBTRACT):
        return first - second
    assert any(word in prompt for word in _ADD)
    return first + second


@pytest.mark.parametrize("stage", ["train", "eval"])
def test_the_gold_is_what_the_question_comes_to(stage):
    verifier = get_verifier("numeric")
    for problem in _problems(stage):
        assert problem.gold == str(_solve(problem.prompt))
        assert verifier.grade(problem, problem.solution).status == "correct"
        wrong = f"The answer is {int(problem.gold) + 1}."
        assert verifier.grade(problem, wrong).status == "incorrect"


def test_levels_are_as_large_as_they_say_and_come_in_turn():
    digits = {1: {(1, 1)}, 3: {(1, 2)}, 4: {(2, 2)}, 5: {(1, 1, 1)}}
    problems = _problems("train")
    for problem in problems:
        lengths = tuple(len(str(n)) for n in _numbers(problem))
        assert lengths in digits.get(problem.level, {(1, 1), (1, 2)})
    assert [p.level for p in problems[:10]] == [1, 2, 3, 4, 5] * 2
    only = _problems("train", task=ArithmeticTask(levels=(4, 2), train_size=5))
    assert [p.level for p in only] == [4, 2, 4, 2, 4]


def test_no_numbers_of_a_held_out_question_are_in_training_at_any_seed():
    held_out = {_numbers(p) for p in _problems("eval")}
    for seed in (0, 7):
        assert not held_out & {_numbers(p) for p in _problems("train", seed=seed)}
        assert not held_out & {_numbers(p) for p in _problems("sft", seed=seed)}


def test_the_seed_moves_what_is_trained_on_and_not_what_is_held_out():
    assert _problems("eval", seed=1) == _problems("eval", seed=2)
    assert _problems("train", seed=1) == _problems("train", seed=1)
    first, second = ({p.prompt for p in _problems("train", seed=s)} for s in (1, 2))
    assert len(first - second) > len(first) / 2
    ids = [{p.id for p in _problems("train", seed=s)} for s in (1, 2)]
    assert not ids[0] & ids[1]


def test_no_question_repeats_and_an_exhausted_level_ends():
    problems = _problems("train")
    assert len({p.prompt for p in problems}) == len(problems) == 600
    all_of_level_1 = _problems("train", task=ArithmeticTask(levels=(1,)))
    # 45 pairs of digits, about three quarters of them for training, with two orders,
    # two operations and three wordings each.
    assert 200 < len(all_of_level_1) < 45 * 12
    assert len({p.prompt for p in all_of_level_1}) == len(all_of_level_1)


def test_the_chat_template_stands_around_the_question():
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
    bare = _problems("eval", task=ArithmeticTask(eval_size=3, chat_template=""))
    task = ArithmeticTask(
        eval_size=3, chat_template=template, system_prompt="Be brief."
    )
    chat = _problems("eval", task=task)
    assert [p.prompt for p in chat] == [
        f"<system>Be brief.<user>{p.prompt}" for p in bare
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"levels": ()}, "different levels among 1, 2, 3, 4, 5"),
        ({"levels": (1, 6)}, "different levels among 1, 2, 3, 4, 5"),
        ({"levels": (1, 1)}, "different levels among 1, 2, 3, 4, 5"),
        ({"prompt_template": "Go."}, "no place for the question"),
        (
            {"system_prompt": "Be brief.", "chat_template": ""},
            "needs a chat_template; set one",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        ArithmeticTask(**options)
