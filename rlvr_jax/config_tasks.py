"""The settings of problems: where they come from, and how their texts become ids."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NOT_EMPTY, PositiveShare
from job_jax.schema import Bound, Count, Section, Share, require
from rlvr_jax.types import AnswerForm

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)

Prime = Annotated[int, Bound(f"be one of {_PRIMES}", lambda n: n in _PRIMES)]
ProblemType = Literal["evaluation", "inversion", "composition"]
Strategy = Literal["forward", "backward"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainMix(Section):
    """Which finite-field problems a stage sees."""

    types: Annotated[tuple[ProblemType, ...], NOT_EMPTY] = ("evaluation", "inversion")
    steps: Annotated[
        tuple[int, ...],
        Bound(
            "hold at least one chain length, each within 1..20",
            lambda steps: bool(steps) and all(1 <= n <= 20 for n in steps),
        ),
    ] = (2, 3, 4, 5)
    step_weights: tuple[float, ...] = ()  # share of each length; () is uniform
    operand_decay: PositiveShare = (
        1.0  # operand n+1 is this often drawn for one n; 1: alike
    )
    strategies: Annotated[tuple[Strategy, ...], NOT_EMPTY] = ("forward", "backward")
    backward_share: Share = 0.0  # of problems asked the other way round

    def __post_init__(self) -> None:
        """Refuses weights that do not fit the lengths, and too short compositions."""
        super().__post_init__()
        weights = self.step_weights
        require(
            "composition" not in self.types or min(self.steps) > 1,
            f"steps={self.steps} with types={self.types}; a composition splits its "
            "steps between two chains, give lengths within 2..20",
        )
        require(
            len(weights) in (0, len(self.steps)),
            f"step_weights has {len(weights)} entries for {len(self.steps)} steps; "
            "give one weight a length, or none",
        )
        require(
            not weights or (min(weights) >= 0 and sum(weights) > 0),
            f"step_weights={weights}; weights are >= 0 and not all 0",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiniteFieldConfig(Section):
    """Arithmetic in GF(modulus): generated, exact, graded (arXiv 2606.13125)."""

    kind: Literal["finite_field"] = "finite_field"
    modulus: Prime = 7
    symbols: Literal["fixed", "permuted"] = "fixed"  # permuted: map given in the prompt
    warmup: ChainMix = ChainMix()
    train: ChainMix = ChainMix(steps=(4, 5, 6))
    eval: ChainMix = ChainMix(steps=(2, 3, 4, 5, 6))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordConfig(Section):
    """How a record of a data set becomes a problem (GSM8K's layout by default)."""

    prompt_field: str = "question"
    answer_field: str = "answer"
    answer_marker: str = "####"  # the gold follows its last occurrence; "": whole field
    solution_field: str = ""  # worked solution; "": what stands before answer_marker
    level_field: str = ""  # a whole number, or text that ends in one; "": level 0
    type_field: str = ""  # what telemetry is cut by, such as the subject; "": none
    id_field: str = ""  # "": the record's number in its file or split
    parent_field: str = ""  # id of the problem that this one was made from; "": none
    prompt_template: str = "Question: {prompt}\nAnswer:"
    chat_template: str = ""  # Jinja around the prompt; tokenizer: its own; "": none
    system_prompt: str = ""  # first message of a chat_template; "": none
    verifier: Literal["math", "numeric", "exact"] = "math"
    answer_form: AnswerForm = "any"  # where completions must state their answer

    def __post_init__(self) -> None:
        """Refuses a template that would drop the question, and an unused message."""
        super().__post_init__()
        require(
            "{prompt}" in self.prompt_template,
            f"prompt_template={self.prompt_template!r} has no place for the question; "
            "write {prompt} in it",
        )
        require(
            bool(self.chat_template) or not self.system_prompt,
            f"system_prompt={self.system_prompt!r} has no chat_template to stand in; "
            "set one, or write it into prompt_template",
        )


# What the records of MATH are, in the layout of MATH-500.
MATH_RECORD = RecordConfig(
    prompt_field="problem",
    answer_marker="",
    solution_field="solution",
    level_field="level",
    type_field="subject",
    id_field="unique_id",
    answer_form="boxed",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesConfig(Section):
    """Word problems from files: JSON lines (.jsonl, .json) or .parquet."""

    kind: Literal["files"] = "files"
    train_path: str = ""  # also the source of worked solutions for the warm start
    eval_path: str = ""
    record: RecordConfig = RecordConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubConfig(Section):
    """Word problems from Hugging Face `datasets`, from the hub or a local folder."""

    kind: Literal["hub"] = "hub"
    path: str = ""  # name on the hub, or a folder
    subset: str = ""  # the configuration of a data set that has several; "": its only
    revision: str = ""  # commit or tag of the hub's repository; "": the newest
    train_split: str = "train"  # also the source of worked solutions
    eval_split: str = "test"
    record: RecordConfig = RecordConfig()


TaskConfig = FiniteFieldConfig | FilesConfig | HubConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Section):
    """Text to ids, and what ends a completion (docs/huggingface.md).

    | kind          | tokens                                                       |
    |---------------|--------------------------------------------------------------|
    | symbols       | the finite-field world's own closed vocabulary               |
    | sentencepiece | a model at `path`, or learnt on the spot on the train split  |
    | huggingface   | tokenizer.json in the directory `path`, or `pretrained.path` |
    """

    kind: Literal["symbols", "sentencepiece", "huggingface"] = "symbols"
    path: str = ""  # sentencepiece: a .model file; huggingface: a directory
    vocab_size: Count = 512  # of a sentencepiece model that is learnt
    stop: tuple[str, ...] = ()  # texts that end a completion, beside end-of-sequence

    def __post_init__(self) -> None:
        """Refuses a path that is not read, and a text that every completion holds."""
        super().__post_init__()
        require(
            self.kind != "symbols" or self.path == "",
            f"path={self.path!r} does nothing with kind=symbols; leave it",
        )
        require(
            "" not in self.stop,
            f"stop={self.stop} holds an empty text, which ends everything at once; "
            "remove it",
        )

    @property
    def learnt(self) -> bool:
        """Returns whether the tokenizer is made by the run itself."""
        return self.kind == "sentencepiece" and self.path == ""
