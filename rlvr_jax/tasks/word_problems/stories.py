"""Stories about numbers: someone has some things, and they become more or fewer.

A story is a start and steps. Each step is an operation with an operand, expressed by
one of several verbs. Every value lies within 0 .. the largest number, and divisions
leave no remainder. Grammar and examples: docs/use/environments.md.
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import NamedTuple

NAMES = ("ann", "bob", "eve", "tom", "zoe")
THINGS = ("apples", "books", "coins", "eggs", "pens")
# The operand follows the verb. Verbs like "triples" are left out: they imply it.
VERBS = {
    "+": ("buys", "finds", "gets"),
    "-": ("eats", "gives", "loses"),
    "*": ("multiplies by", "repeats by"),
    "/": ("divides by", "shares by"),
}
_WORDS = ("has", ",", ".", "how", "many", "?")
_MAX_FACTOR = 5  # in a multiplication or division
_MAX_DRAWS = 1000


class StoryStep(NamedTuple):
    """One step: `buys 7` is StoryStep("+", "buys", 7)."""

    op: str
    verb: str
    operand: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Story:
    """The content of a prompt. `values` are the start and the value after each step."""

    name: str
    thing: str
    steps: tuple[StoryStep, ...]
    values: tuple[int, ...]


def story_words(largest: int) -> tuple[str, ...]:
    """Returns every word of prompts and answers, numbers last."""
    verbs = (word for told in VERBS.values() for verb in told for word in verb.split())
    words = (*_WORDS, *VERBS, *NAMES, *THINGS, *verbs, "<answer>", "</answer>")
    return (*dict.fromkeys(words), *map(str, range(largest + 1)))


def draw_story(
    rng: random.Random, *, num_steps: int, largest: int, ops: Sequence[str]
) -> Story:
    """Returns a story with `num_steps` steps. Raises ValueError if none is found."""
    for _ in range(_MAX_DRAWS):
        values, steps = [rng.randint(2, largest)], []
        for op in rng.choices(ops, k=num_steps):
            operand = _draw_operand(rng, op, values[-1], largest)
            if operand is None:
                break
            steps.append(StoryStep(op, rng.choice(VERBS[op]), operand))
            values.append(_apply(op, values[-1], operand))
        if len(steps) == num_steps:
            return Story(
                name=rng.choice(NAMES),
                thing=rng.choice(THINGS),
                steps=tuple(steps),
                values=tuple(values),
            )
    raise ValueError(f"no story of {num_steps} steps within 0..{largest}")


def write_question(story: Story) -> str:
    """Returns the prompt.

    Worked example: `tom has 48 apples , buys 7 , shares by 5 . how many ?` (gold 11).
    """
    told = [f"{story.name} has {story.values[0]} {story.thing}"]
    told += [f"{step.verb} {step.operand}" for step in story.steps]
    return f"{' , '.join(told)} . how many ?"


def write_answer(value: int) -> str:
    """Returns an answer in its tags."""
    return f"<answer> {value} </answer>"


def write_solution(story: Story) -> str:
    """Returns the worked solution as calculator calls with their results.

    For the example above: `<calc> 48 + 7 </calc> <result> 55 </result> <calc> 55 / 5
    </calc> <result> 11 </result> <answer> 11 </answer>`.
    """
    calls = [
        f"<calc> {before} {step.op} {step.operand} </calc> <result> {after} </result>"
        for step, before, after in zip(
            story.steps, story.values[:-1], story.values[1:], strict=True
        )
    ]
    return " ".join([*calls, write_answer(story.values[-1])])


def _draw_operand(rng: random.Random, op: str, value: int, largest: int) -> int | None:
    """Returns an operand that keeps the value in range, None without one."""
    choices: Sequence[int] = ()
    if op == "+":
        choices = range(2, largest - value + 1)
    elif op == "-":
        choices = range(2, value + 1)
    elif op == "*":
        choices = range(2, min(_MAX_FACTOR, largest // max(value, 1)) + 1)
    elif op == "/":
        choices = [n for n in range(2, _MAX_FACTOR + 1) if value and value % n == 0]
    return rng.choice(choices) if choices else None


def _apply(op: str, value: int, operand: int) -> int:
    return {
        "+": value + operand,
        "-": value - operand,
        "*": value * operand,
        "/": value // operand,
    }[op]
