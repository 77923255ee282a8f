"""The options that turn a record of a data set into a problem."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from job_jax.schema import ConfigSection, check, read_other_names
from rlvr_jax.config.task import AUTO
from rlvr_jax.types import AnswerFormat
from rlvr_jax.verifiers.base import get_verifier

RECORD_CHAT_TEMPLATE = "task.record.chat_template"  # its config field
RECORD_PROMPT_TEMPLATE = "task.record.prompt_template"
PLAIN_PROMPT = "Question: {prompt}\nAnswer:"  # a text for a model to continue

ALL_FIELDS = "*"  # in extra_fields

# The request after the problem in a chat. It makes the model write its answer where the
# verifier looks. The wording is ours.
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
    """The fields and templates that make problems of records (default: GSM8K's)."""

    earlier_values: ClassVar[Mapping[str, Any]] = {
        "chat_template": "",
        "extra_fields": (),
        "prompt_template": PLAIN_PROMPT,
    }

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        prompt_field="messages prompt question prompt_key input_key prompt_column",
        answer_field="gold answer label_key ground_truth response_key answer_key",
    )

    # A text or a list of messages. Dots lead into objects and lists, in all names of
    # fields here: reward_model.ground_truth, messages.-1.content
    prompt_field: str = "question"
    answer_field: str = "answer"  # a text, a number, or a list of which any counts
    answer_prefix: str = "####"  # the gold follows its last occurrence; "": whole field
    solution_field: str = ""  # worked solution; "": the text before answer_prefix
    level_field: str = ""  # an integer, or text that ends in one; "": level 0
    level_order: tuple[str, ...] = ()  # names or fractions, easiest (level 1) first
    type_field: str = ""  # groups telemetry, for example the subject; "": none
    id_field: str = ""  # "": the record's number in its file or split
    parent_field: str = ""  # id of the problem that this one was made from; "": none
    # Fields that rewards and others find in problem.fields; *: all that are not read by
    # the settings above; empty: none
    extra_fields: tuple[str, ...] = (ALL_FIELDS,)
    # The prompt's text, with {prompt} where the question goes; auto: in a chat the
    # question and a request for answer_format, else "Question: {prompt}\\nAnswer:"
    prompt_template: str = AUTO
    # Jinja text around the prompt; tokenizer: the tokenizer's own; "": none; auto: the
    # tokenizer's if the run starts from weights and their tokenizer has one, else none
    chat_template: str = AUTO
    system_prompt: str = ""  # first message of a chat; "": none
    verifier: str = "math"  # numeric, exact, or your own: package.module:Class
    answer_format: AnswerFormat = "any"  # where completions must state their answer
    # Turns GSM8K's annotations <<48/2=24>> in worked solutions into calls of the
    # environment `calculator`; false: removes them
    calculator_calls: bool = False
    ask_confidence: bool = False  # prompts want <confidence>q</confidence> too (RLCR)

    def __post_init__(self) -> None:
        """Refuses an unknown verifier, and templates that would drop a text."""
        super().__post_init__()
        get_verifier(self.verifier)
        check(
            self.prompt_template == AUTO or "{prompt}" in self.prompt_template,
            f"prompt_template={self.prompt_template!r} has no place for the question; "
            "write {prompt} in it",
        )
        check(
            bool(self.level_field) or not self.level_order,
            f"level_order={','.join(self.level_order)} needs a level_field; name the "
            "field that holds the levels",
        )
        check(
            len(set(self.level_order)) == len(self.level_order),
            f"level_order={','.join(self.level_order)} names a level twice; remove one",
        )
        check(
            len(set(self.extra_fields)) == len(self.extra_fields)
            and all(self.extra_fields),
            f"extra_fields={','.join(self.extra_fields)} names a field twice, or an "
            "empty one; name each field once",
        )
        check(
            bool(self.chat_template) or not self.system_prompt,
            f"system_prompt={self.system_prompt!r} needs a chat_template; set one, or "
            "put this text into prompt_template",
        )

    @property
    def is_chat(self) -> bool:
        """Returns whether a chat template goes around each prompt."""
        return self.chat_template not in ("", AUTO)

    @property
    def read_fields(self) -> tuple[str, ...]:
        """Returns the fields from which a problem's own attributes are made."""
        names = (
            *(self.prompt_field, self.answer_field, self.solution_field),
            *(self.level_field, self.type_field, self.id_field, self.parent_field),
        )
        return tuple(name for name in names if name)

    @property
    def default_prompt_template(self) -> str:
        """Returns the `prompt_template` that "auto" means."""
        if not self.is_chat:
            return PLAIN_PROMPT
        request = ANSWER_REQUESTS[self.answer_format]
        if self.answer_format == "any" and self.verifier == "exact":
            request = _WHOLE_TEXT_REQUEST
        return f"{{prompt}}\n{request}" if request else "{prompt}"


# MATH's records, in the layout of MATH-500.
MATH_RECORD = RecordConfig(
    prompt_field="problem",
    answer_prefix="",
    solution_field="solution",
    level_field="level",
    type_field="subject",
    id_field="unique_id",
    answer_format="boxed",
)

# The records that `python -m rlvr_jax.data prepare` writes.
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
