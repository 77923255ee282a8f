"""The task `word_problems`: generated stories, solved with or without a calculator."""

import contextlib
import dataclasses
import hashlib
import random
from collections.abc import Sequence
from typing import Annotated, ClassVar

from job_jax.config import NON_EMPTY
from job_jax.schema import ConfigError, Constraint, UnitInterval, check
from rlvr_jax.config.task import AUTO, Behavior, ChatTask, Stage
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.prompts import PromptFormatter
from rlvr_jax.tasks.word_problems.stories import (
    VERBS,
    Story,
    draw_story,
    story_words,
    write_answer,
    write_question,
    write_solution,
)
from rlvr_jax.types import Problem

_EVAL_SEED = 0  # every run has the same held-out set, so runs can be compared
_HELDOUT_MODULUS = 8  # one story in 8 is held out
_MAX_DRAWS = 200  # of which one in 8 is held out
_NUM_GENERATED = 2**31 - 1

NumSteps = Annotated[
    tuple[int, ...],
    Constraint(
        "hold at least one number of steps, each within 1..8",
        lambda steps: bool(steps) and all(1 <= n <= 8 for n in steps),
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordProblemsTask(ChatTask):
    """Stories with a few steps of arithmetic, in a closed vocabulary.

    Each number is one word. So to add two numbers, a policy must know the sum by heart
    or call the calculator (`environment.name=calculator`). With a chat template, a
    request follows the story: to put the answer in the tags where the verifier looks.
    """

    checks_golds: ClassVar[bool] = False
    strategies: ClassVar[tuple[str, ...]] = ("calls", "no_calls")

    largest: Annotated[
        int, Constraint("lie within 20..999", lambda n: 20 <= n <= 999)
    ] = 199  # the largest number
    # In stories
    operations: Annotated[tuple[str, ...], NON_EMPTY] = ("+", "-", "*", "/")
    sft_steps: NumSteps = (1, 2, 3)  # steps per story, each equally often
    train_steps: NumSteps = (2, 3)  # likewise, in RL
    eval_steps: NumSteps = (2, 3)  # likewise, held out
    # Share of worked solutions that call the calculator; others only state the answer
    tool_fraction: UnitInterval = 0.5

    def __post_init__(self) -> None:
        """Refuses operations that stories do not have."""
        super().__post_init__()
        check(
            set(self.operations) <= VERBS.keys(),
            f"operations={self.operations}; choose among {', '.join(VERBS)}",
        )

    def problems(self, stage: Stage, *, seed: int) -> "StorySource":
        """Returns the stage's problems; in `eval` they are the same for every seed."""
        steps = {
            "sft": self.sft_steps,
            "train": self.train_steps,
            "eval": self.eval_steps,
        }[stage]
        is_eval = stage == "eval"
        return StorySource(
            self, steps, held_out=is_eval, seed=_EVAL_SEED if is_eval else seed
        )

    def describe(self) -> str:
        """Returns a phrase with the largest number."""
        return f"word problems with numbers up to {self.largest}"

    def vocabulary(self) -> tuple[str, ...]:
        """Returns every word of prompts and solutions."""
        return ("<pad>", "<eos>", *story_words(self.largest))

    def behavior(
        self, problem: Problem, completion: str, *, is_correct: bool
    ) -> Behavior:
        """Returns whether the calculator was called."""
        called = "<calc>" in completion
        return Behavior(
            strategy="calls" if called else "no_calls",
            flags={"bare_answer": not called and "<answer>" in completion},
        )


class StorySource:
    """Stories on one side of the split; a grain random-access source.

    Every problem is a function of the options, the seed and its index. A hash of the
    start and the operations decides the side; names, things and verbs do not matter.
    """

    def __init__(
        self,
        task: WordProblemsTask,
        num_steps: Sequence[int],
        *,
        held_out: bool,
        seed: int,
    ):
        self._task = task
        self._num_steps = tuple(num_steps)
        self._held_out = held_out
        self._formatter = PromptFormatter(
            RecordConfig(
                prompt_template=AUTO if task.applies_chat_template else "{prompt}",
                chat_template=task.chat_template,
                answer_format="tagged",
            ),
            chat_template_field=task.chat_template_field,
        )
        drawn_from = (task.largest, task.operations, self._num_steps)
        tag = hashlib.blake2b(repr(drawn_from).encode(), digest_size=4).hexdigest()
        split = "heldout" if held_out else "train"
        self._id = f"words-{tag}-{split}-{seed}"
        for length in self._num_steps:
            self._draw(random.Random(0), length)

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        return f"StorySource({self._id}, tool_fraction={self._task.tool_fraction})"

    def __len__(self) -> int:
        """Returns how many problems there are: more than any run reads."""
        return _NUM_GENERATED

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`; IndexError outside 0 .. len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"problem {index} lies outside 0..{len(self) - 1}")
        name = f"{self._id}-{index}"
        rng = random.Random(name)
        num_steps = rng.choice(self._num_steps)
        story = self._draw(rng, num_steps)
        # Drawn last, so that the question does not depend on it.
        by_tool = rng.random() < self._task.tool_fraction
        answer = story.values[-1]
        return Problem(
            id=name,
            prompt=self._formatter.format_prompt(write_question(story)),
            gold=str(answer),
            verifier="exact",
            answer_format="tagged",
            source="word_problems",
            level=num_steps,
            type="story",
            solution=write_solution(story) if by_tool else write_answer(answer),
        )

    def _draw(self, rng: random.Random, num_steps: int) -> Story:
        """Returns a story on this side. Raises ConfigError if there are too few."""
        task = self._task
        for _ in range(_MAX_DRAWS):
            with contextlib.suppress(ValueError):  # no story came
                story = draw_story(
                    rng, num_steps=num_steps, largest=task.largest, ops=task.operations
                )
                if _is_held_out(story) == self._held_out:
                    return story
        side = "held-out" if self._held_out else "train"
        raise ConfigError(
            f"too few {side} stories of {num_steps} steps with operations="
            f"{','.join(task.operations)} within 0..{task.largest}; use fewer steps, "
            "more operations or a larger task.largest"
        )


def _is_held_out(story: Story) -> bool:
    content = repr((story.values[0], [(s.op, s.operand) for s in story.steps]))
    digest = hashlib.blake2b(content.encode(), digest_size=1).digest()
    return digest[0] % _HELDOUT_MODULUS == 0
