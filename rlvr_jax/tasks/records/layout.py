"""How a record of a data set becomes a problem."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from job_jax.schema import ConfigSection, check
from rlvr_jax.config.task import AUTO
from rlvr_jax.types import AnswerFormat
from rlvr_jax.verifiers.base import get_verifier

RECORD_CHAT_TEMPLATE = "task.record.chat_template"  # where a config has a record's
RECORD_PROMPT_TEMPLATE = "task.record.prompt_template"
PLAIN_PROMPT = "Question: {prompt}\nAnswer:"  # a text for a model to continue

# The request that follows the problem in a chat, so that the model writes its answer
# where the verifier looks. The words are ours.
ANSWER_REQUESTS: Mapping[AnswerFormat, str] = {
    "any": "",
    "boxed": "Reason step by step, and put the final answer within \\boxed{}.",
    "tagged": (
        "Reason step by step, and put the final answer within <answer> and </answer>."
    ),
}
_WHOLE_TEXT_REQUEST = "Reply with the answer alone."


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordConfig(ConfigSection):
    """How a record of a data set becomes a problem (GSM8K's layout by default)."""

    earlier_values: ClassVar[Mapping[str, Any]] = {
        "chat_template": "",
        "prompt_template": PLAIN_PROMPT,
    }

    prompt_field: str = "question"
    answer_field: str = "answer"
    answer_prefix: str = "####"  # the gold follows its last occurrence; "": whole field
    solution_field: str = ""  # worked solution; "": what stands before answer_prefix
    level_field: str = ""  # a whole number, or text that ends in one; "": level 0
    level_order: tuple[
        str, ...
    ] = ()  # names of levels, easiest first: they count from 1
    type_field: str = ""  # what telemetry is cut by, such as the subject; "": none
    id_field: str = ""  # "": the record's number in its file or split
    parent_field: str = ""  # id of the problem that this one was made from; "": none
    # The text that asks, with {prompt} where the question goes; auto: in a chat the
    # question and the answer_format, else "Question: {prompt}\\nAnswer:"
    prompt_template: str = AUTO
    # Jinja around the prompt; tokenizer: its own; "": none; auto: the tokenizer's if
    # the run starts from weights and their tokenizer has one, else none
    chat_template: str = AUTO
    system_prompt: str = ""  # first message of a chat_template; "": none
    verifier: str = "math"  # numeric, exact, or your own: package.module:Class
    answer_format: AnswerFormat = "any"  # where completions must state their answer
    # GSM8K's annotations <<48/2=24>> in worked solutions: calls of the environment
    # `calculator`; false: left out
    calculator_calls: bool = False
    ask_confidence: bool = False  # prompts ask for <confidence>q</confidence> (RLCR)

    def __post_init__(self) -> None:
        """Refuses an unknown verifier, and templates that leave a text out."""
        super().__post_init__()
        get_verifier(self.verifier)
        check(
            self.prompt_template == AUTO or "{prompt}" in self.prompt_template,
            f"prompt_template={self.prompt_template!r} has no place for the question; "
            "write {prompt} in it",
        )
        check(
            bool(self.level_field) or not self.level_order,
            f"level_order={','.join(self.level_order)} orders nothing without a "
            "level_field; name the field that holds the levels",
        )
        check(
            len(set(self.level_order)) == len(self.level_order),
            f"level_order={','.join(self.level_order)} names a level twice; leave one",
        )
        check(
            bool(self.chat_template) or not self.system_prompt,
            f"system_prompt={self.system_prompt!r} has no chat_template to stand in; "
            "set one, or write it into prompt_template",
        )

    @property
    def is_chat(self) -> bool:
        """Returns whether a chat template is filled in around each prompt."""
        return self.chat_template not in ("", AUTO)

    @property
    def default_prompt_template(self) -> str:
        """Returns what `prompt_template` is where it is left at "auto"."""
        if not self.is_chat:
            return PLAIN_PROMPT
        request = ANSWER_REQUESTS[self.answer_format]
        if self.answer_format == "any" and self.verifier == "exact":
            request = _WHOLE_TEXT_REQUEST
        return f"{{prompt}}\n{request}" if request else "{prompt}"


# What the records of MATH are, in the layout of MATH-500.
MATH_RECORD = RecordConfig(
    prompt_field="problem",
    answer_prefix="",
    solution_field="solution",
    level_field="level",
    type_field="subject",
    id_field="unique_id",
    answer_format="boxed",
)

# What `python -m rlvr_jax.data prepare` writes.
PREPARED_RECORD = RecordConfig(
    prompt_field="problem",
    answer_field="answer",
    answer_prefix="",
    solution_field="solution",
    level_field="level",
    type_field="type",
    id_field="id",
    answer_format="boxed",
)
