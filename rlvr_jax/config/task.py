"""The base class of tasks, and the settings of the tokenizer.

A task provides problems and knowledge about them. It is a frozen dataclass whose fields
are its options; ours are in `rlvr_jax.tasks`.

Example of a custom task with a custom verifier (`mine.py` next to the recipe,
`--config.task.source=mine:Sums`):

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

Stage = Literal["sft", "train", "eval"]  # the stages that use problems

AUTO = "auto"  # as a template: chosen by the checkpoint that the run starts from

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
    """A completion's behavior, as its task sees it. Read by `rollouts.behavior`.

    `strategy` is one of the task's `strategies`, or None. `flags` says which signs of
    `rollouts.behavior.FLAGS` the completion shows, among those that the task looks for.
    """

    strategy: str | None
    flags: Mapping[str, bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(OpenSection, abc.ABC):
    """Provides problems and knowledge about them. Subclass it for your own.

    Only `problems` is required. The other methods make logs more detailed.
    """

    registry: ClassVar[Registry] = TASKS
    tag: ClassVar[str] = "source"

    # True: the run first drops problems whose gold the verifier cannot grade by. False:
    # golds are correct by construction.
    checks_golds: ClassVar[bool] = True
    strategies: ClassVar[tuple[str, ...]] = ()  # ways to solve, for `behavior`
    factors: ClassVar[tuple[str, ...]] = ()  # the labels of `token_factors`
    chat_template_field: ClassVar[str] = "task.chat_template"  # for messages

    @abc.abstractmethod
    def problems(self, stage: Stage, *, seed: int) -> ProblemSource:
        """Returns a stage's problems, the same at every call.

        Raises ConfigError if a stage has no problems. A source of more than 100,000
        counts as generated unless it is a Sequence, such as a list: only the problems
        in use are read, never the whole source.
        """

    def describe(self) -> str:
        """Returns a name of the problems that fits into "rewards on ..."."""
        return f"problems of {self.tags()[self.tag]}"

    def vocabulary(self) -> tuple[str, ...]:
        """Returns every word of prompts and solutions, () if they are free text."""
        return ()

    @property
    def applies_chat_template(self) -> bool:
        """Returns whether prompts already have the model's special tokens."""
        return False

    @property
    def template_text(self) -> str:
        """Returns the chat template around prompts, "" without one."""
        return ""

    @property
    def needs_tokenizer_template(self) -> bool:
        """Returns whether prompts need the tokenizer's own chat template."""
        return False

    def with_chat_template(self, template: str) -> Self:
        """Returns the task with the tokenizer's template, if it needs that."""
        return self

    def automatic_values(self, *, tokenizer_has_template: bool) -> dict[str, str]:
        """Returns the values of fields left at "auto", by their config path.

        `tokenizer_has_template`: the run starts from weights whose tokenizer has a
        chat template.
        """
        return {}

    def behavior(
        self, problem: Problem, completion: str, *, is_correct: bool
    ) -> Behavior | None:
        """Returns the completion's behavior, or None: it is then read as free text."""
        return None

    def step_correctness(
        self, problem: Problem, completion: str
    ) -> list[tuple[str, bool]]:
        """Returns (kind, whether it is correct) of each step that was written."""
        return []

    def token_factors(
        self, problem: Problem, words: Sequence[str]
    ) -> dict[str, list[int]]:
        """Returns a label of every word of a completion, for each of `factors`.

        The label -1 means that the factor does not apply to the word.
        """
        return {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChatTask(Task):
    """Base of tasks that can put a chat template around their prompts."""

    earlier_values: ClassVar[Mapping[str, Any]] = {"chat_template": ""}

    # Jinja around the prompt; tokenizer: the tokenizer's template; "": none; auto: the
    # tokenizer's if the run starts from weights and their tokenizer has one, else none
    chat_template: str = AUTO

    @property
    def applies_chat_template(self) -> bool:
        """Returns whether a chat template is put around each prompt."""
        return self.chat_template not in ("", AUTO)

    @property
    def template_text(self) -> str:
        """Returns the chat template, or the word "tokenizer" for the tokenizer's."""
        return self.chat_template

    @property
    def needs_tokenizer_template(self) -> bool:
        """Returns whether `chat_template` means the tokenizer's."""
        return self.chat_template == "tokenizer"

    def with_chat_template(self, template: str) -> Self:
        """Returns the task with the template instead of the word "tokenizer"."""
        if not self.needs_tokenizer_template:
            return self
        return dataclasses.replace(self, chat_template=template)

    def automatic_values(self, *, tokenizer_has_template: bool) -> dict[str, str]:
        """Returns the chat template that "auto" means: the tokenizer's, or none."""
        if self.chat_template != AUTO:
            return {}
        template = "tokenizer" if tokenizer_has_template else ""
        return {self.chat_template_field: template}


def default_task() -> Task:
    """Returns the task `finite_field` with its defaults."""
    return TASKS.load("finite_field")()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig(ConfigSection):
    """Text to ids, and what ends a completion (docs/models/huggingface.md).

    | kind          | tokens                                                       |
    |---------------|--------------------------------------------------------------|
    | word_level    | the words of a task that lists its vocabulary                |
    | sentencepiece | a model at `path`, else one trained on the train split       |
    | huggingface   | tokenizer.json in the directory `path`, or `pretrained.path` |
    """

    earlier_values: ClassVar[Mapping[str, Any]] = {"thinking": "off"}

    # A closed vocabulary, a SentencePiece model, or a checkpoint's tokenizer.json
    kind: Literal["word_level", "sentencepiece", "huggingface"] = "word_level"
    path: str = ""  # sentencepiece: a .model file; huggingface: a directory
    vocab_size: PositiveInt = 512  # of a sentencepiece model that the run trains
    stop_strings: tuple[str, ...] = ()  # more texts that end a completion
    # Grade only the text after </think>; auto: if the chat template has <think>
    thinking: Literal["auto", "on", "off"] = "auto"

    def __post_init__(self) -> None:
        """Refuses a path that nothing reads, and an empty stop string."""
        super().__post_init__()
        check(
            self.kind != "word_level" or self.path == "",
            f"path={self.path!r} does nothing with kind=word_level; leave it",
        )
        check(
            "" not in self.stop_strings,
            f"stop_strings={self.stop_strings} holds an empty text, which ends every "
            "completion at once; remove it",
        )

    @property
    def trained_in_run(self) -> bool:
        """Returns whether the run itself trains the tokenizer."""
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
