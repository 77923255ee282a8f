"""What a task is, and the settings by which texts become token ids.

A task says where problems come from and what is known of them. It is a frozen dataclass
whose fields are its options; ours are in `rlvr_jax.tasks`.

Example of a task of your own, graded by a verifier of your own (`mine.py` beside the
recipe, `--config.task.source=mine:Sums`):

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Sums(Task):
        largest: PositiveInt = 9  # --config.task.largest=99

        def problems(self, stage, *, seed):
            return [
                Problem(
                    id=f"{a}+{b}",
                    prompt=f"{a} + {b} =",
                    gold=str(a + b),
                    verifier="mine:Rounded",  # a rlvr_jax.verifiers.base.Verifier
                    source="sums",
                )
                for a in range(self.largest)
                for b in range(self.largest)
            ]
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from job_jax.registry import OpenSection, Registry
from job_jax.schema import ConfigSection, PositiveInt, check
from rlvr_jax.types import Problem, ProblemSource

Stage = Literal["sft", "train", "eval"]  # the stages that ask problems

AUTO = "auto"  # of a template: what fits the checkpoint that the run starts from

TASKS = Registry(
    "task",
    {
        "finite_field": "rlvr_jax.tasks.finite_field.task:FiniteFieldTask",
        "arithmetic": "rlvr_jax.tasks.arithmetic.task:ArithmeticTask",
        "word_problems": "rlvr_jax.tasks.word_problems.task:WordProblemsTask",
        "verifiers": "rlvr_jax.environments.verifiers:VerifiersTask",
        "files": "rlvr_jax.tasks.records.task:FilesTask",
        "hub": "rlvr_jax.tasks.records.task:HubTask",
        "code": "rlvr_jax.tasks.code.task:CodeTask",
        "programs": "rlvr_jax.tasks.code.programs:ProgramsTask",
        "reasoning_gym": "rlvr_jax.tasks.reasoning_gym.task:ReasoningGymTask",
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Behavior:
    """What a completion did, as far as its task can tell. Read by `rollouts.behavior`.

    `strategy` is one of the task's `strategies`, None where it has none; `flags` says
    for each sign of `rollouts.behavior.FLAGS` that the task looks for whether the
    completion shows it.
    """

    strategy: str | None
    flags: Mapping[str, bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(OpenSection, abc.ABC):
    """Where problems come from, and what is known of them. Subclass it for your own.

    Only `problems` must be written. What else a task knows sharpens what is logged.
    """

    registry: ClassVar[Registry] = TASKS
    tag: ClassVar[str] = "source"

    # Whether golds are read before the run, and problems dropped whose gold the
    # verifier cannot grade by. False: golds are correct by construction.
    checks_golds: ClassVar[bool] = True
    strategies: ClassVar[
        tuple[str, ...]
    ] = ()  # ways to solve that `behavior` tells apart
    factors: ClassVar[tuple[str, ...]] = ()  # what `token_factors` labels tokens with
    chat_template_field: ClassVar[str] = "task.chat_template"  # for messages

    @abc.abstractmethod
    def problems(self, stage: Stage, *, seed: int) -> ProblemSource:
        """Returns a stage's problems, the same at every call.

        Raises ConfigError where there are none. Sources of more than 100,000 problems
        count as generated: they are read where asked, never as a whole.
        """

    def describe(self) -> str:
        """Returns what the problems are, as it stands in "rewards on ..."."""
        return f"problems of {self.tags()[self.tag]}"

    def vocabulary(self) -> tuple[str, ...]:
        """Returns every word of prompts and solutions, () where they are free text."""
        return ()

    @property
    def applies_chat_template(self) -> bool:
        """Returns whether prompts carry the model's special tokens already."""
        return False

    @property
    def template_text(self) -> str:
        """Returns the chat template around prompts, "" where there is none."""
        return ""

    @property
    def needs_tokenizer_template(self) -> bool:
        """Returns whether prompts are to be written by the tokenizer's own template."""
        return False

    def with_chat_template(self, template: str) -> Self:
        """Returns the task with the tokenizer's template, where it needs that."""
        return self

    def automatic_values(self, *, tokenizer_has_template: bool) -> dict[str, str]:
        """Returns what the fields that are left at "auto" mean, by their config path.

        `tokenizer_has_template`: the run starts from weights whose tokenizer brings a
        chat template.
        """
        return {}

    def behavior(
        self, problem: Problem, completion: str, *, is_correct: bool
    ) -> Behavior | None:
        """Returns what the completion did, None to have it read as free text."""
        return None

    def step_correctness(
        self, problem: Problem, completion: str
    ) -> list[tuple[str, bool]]:
        """Returns (what kind of step, whether it is correct) for the written steps."""
        return []

    def token_factors(
        self, problem: Problem, words: Sequence[str]
    ) -> dict[str, list[int]]:
        """Returns a label for every word of a completion by each of `factors`.

        -1 is a word of which a factor says nothing.
        """
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatTask(Task):
    """Base of the tasks around whose prompts a chat template may be filled in."""

    earlier_values: ClassVar[Mapping[str, Any]] = {"chat_template": ""}

    # Jinja around the prompt; tokenizer: its own; "": none; auto: the tokenizer's if
    # the run starts from weights and their tokenizer has one, else none
    chat_template: str = AUTO

    @property
    def applies_chat_template(self) -> bool:
        """Returns whether a chat template is filled in around each prompt."""
        return self.chat_template not in ("", AUTO)

    @property
    def template_text(self) -> str:
        """Returns the chat template, or the word "tokenizer" for its own."""
        return self.chat_template

    @property
    def needs_tokenizer_template(self) -> bool:
        """Returns whether `chat_template` asks for the tokenizer's own."""
        return self.chat_template == "tokenizer"

    def with_chat_template(self, template: str) -> Self:
        """Returns the task with the template in place of the word "tokenizer"."""
        if not self.needs_tokenizer_template:
            return self
        return dataclasses.replace(self, chat_template=template)

    def automatic_values(self, *, tokenizer_has_template: bool) -> dict[str, str]:
        """Returns which chat template "auto" is: the tokenizer's, or none."""
        if self.chat_template != AUTO:
            return {}
        template = "tokenizer" if tokenizer_has_template else ""
        return {self.chat_template_field: template}


def default_task() -> Task:
    """Returns the task `finite_field` with its defaults."""
    return TASKS.load("finite_field")()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig(ConfigSection):
    """Text to ids, and what ends a completion (docs/huggingface.md).

    | kind          | tokens                                                       |
    |---------------|--------------------------------------------------------------|
    | word_level    | the finite-field world's own closed vocabulary               |
    | sentencepiece | a model at `path`, or learned on the spot on the train split  |
    | huggingface   | tokenizer.json in the directory `path`, or `pretrained.path` |
    """

    earlier_values: ClassVar[Mapping[str, Any]] = {"thinking": "off"}

    kind: Literal["word_level", "sentencepiece", "huggingface"] = "word_level"
    path: str = ""  # sentencepiece: a .model file; huggingface: a directory
    vocab_size: PositiveInt = 512  # of a sentencepiece model that is learned
    stop_strings: tuple[
        str, ...
    ] = ()  # texts that end a completion, beside end-of-sequence
    # Judge only the text after </think>; auto: where the chat template has <think>
    thinking: Literal["auto", "on", "off"] = "auto"

    def __post_init__(self) -> None:
        """Refuses a path that is not read, and a text that every completion holds."""
        super().__post_init__()
        check(
            self.kind != "word_level" or self.path == "",
            f"path={self.path!r} does nothing with kind=word_level; leave it",
        )
        check(
            "" not in self.stop_strings,
            f"stop_strings={self.stop_strings} holds an empty text, which ends "
            "everything at once; "
            "remove it",
        )

    @property
    def trained_in_run(self) -> bool:
        """Returns whether the tokenizer is made by the run itself."""
        return self.kind == "sentencepiece" and self.path == ""

    @property
    def thinks(self) -> bool:
        """Returns whether thinking is on; an opened run has resolved `auto`."""
        return self.thinking == "on"

    def resolve_thinking(self, *, template_has_it: bool) -> Self:
        """Returns the section with `auto` replaced by on or off."""
        if self.thinking != "auto":
            return self
        return dataclasses.replace(self, thinking="on" if template_has_it else "off")
