"""The task `arithmetic`: questions that a small pretrained model can learn."""

import dataclasses
import random
from typing import Annotated, ClassVar

from job_jax.schema import Constraint, PositiveInt
from rlvr_jax.config.task import Stage
from rlvr_jax.tasks.arithmetic.questions import LEVELS, Question, draw_question
from rlvr_jax.tasks.prompted import PromptedTask
from rlvr_jax.types import Problem

_EVAL_SEED = 0  # every run has the same held-out set, so runs can be compared
_MAX_DRAWS = 200  # draws in a row without a new question: the level is exhausted

Levels = Annotated[
    tuple[int, ...],
    Constraint(
        f"hold different levels among {', '.join(map(str, LEVELS))}",
        lambda levels: (
            0 < len(levels) == len(set(levels)) and set(levels) <= set(LEVELS)
        ),
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ArithmeticTask(PromptedTask):
    """Arithmetic in plain English; the numbers in a question decide if it is held out.

    The levels are listed in `rlvr_jax.tasks.arithmetic.questions`. The verifier
    `numeric` grades the answer.
    """

    checks_golds: ClassVar[bool] = False

    levels: Levels = LEVELS  # equally many questions of each, until one runs out
    train_size: PositiveInt = 2048  # questions, all different
    eval_size: PositiveInt = 512  # held-out questions, all different

    def problems(self, stage: Stage, *, seed: int) -> "QuestionSource":
        """Returns the stage's questions; in `eval` they are the same for every seed."""
        if stage == "eval":
            return QuestionSource(self, seed=_EVAL_SEED, held_out=True)
        return QuestionSource(self, seed=seed, held_out=False)

    def describe(self) -> str:
        """Returns a phrase that names the levels."""
        return f"arithmetic of levels {', '.join(map(str, self.levels))}"


class QuestionSource:
    """The distinct questions on one side of the split, taking the levels in turn."""

    def __init__(self, task: ArithmeticTask, *, seed: int, held_out: bool):
        """Draws all questions; each prompt is written only when its problem is read."""
        self._side = "eval" if held_out else "train"
        self._formatter = task.formatter()
        size = task.eval_size if held_out else task.train_size
        rng = random.Random(f"arithmetic-{self._side}-{seed}")
        # Problems of other levels have other ids.
        levels = "" if task.levels == LEVELS else f"{'.'.join(map(str, task.levels))}-"
        self._id = f"arithmetic-{levels}{self._side}-{seed}"
        self._questions = _draw_distinct(rng, task.levels, size, held_out=held_out)
        self._name = f"{self._side}-{seed}, {task!r}"

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        return f"QuestionSource({self._name})"

    def __len__(self) -> int:
        """Returns the number of questions."""
        return len(self._questions)

    def __getitem__(self, index: int, /) -> Problem:
        """Returns problem `index`; raises IndexError outside 0 .. len - 1."""
        level, question = self._questions[index]
        prompt, literal = self._formatter.write_prompt(question.text)
        return Problem(
            id=f"{self._id}-{index}",
            prompt=prompt,
            literal=literal,
            gold=str(question.answer),
            verifier="numeric",
            source="arithmetic",
            level=level,
            solution=f"{question.calculation} = {question.answer}",
        )


def _draw_distinct(
    rng: random.Random, levels: tuple[int, ...], size: int, *, held_out: bool
) -> list[tuple[int, Question]]:
    """Returns up to `size` distinct questions with their levels, the levels in turn.

    A level drops out when drawing from it gives no new question.
    """
    open_levels, drawn = list(levels), dict[str, tuple[int, Question]]()
    while open_levels and len(drawn) < size:
        for level in tuple(open_levels):
            question = _draw_new(rng, level, drawn, held_out=held_out)
            if question is None:
                open_levels.remove(level)
            elif len(drawn) < size:
                drawn[question.text] = level, question
    return list(drawn.values())


def _draw_new(
    rng: random.Random, level: int, drawn: dict, *, held_out: bool
) -> Question | None:
    """Returns a question of the level that was not drawn before, None if none comes."""
    for _ in range(_MAX_DRAWS):
        question = draw_question(rng, level)
        if question.is_held_out == held_out and question.text not in drawn:
            return question
    return None
