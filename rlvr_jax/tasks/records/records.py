"""Word problems from records: reads the fields and writes the prompts.

Files and Hugging Face data sets load their records elsewhere. This module turns the
records of both into problems.
"""

import dataclasses
import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.tasks.records.conversation import Turn, read_question
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.prompts import PromptFormatter
from rlvr_jax.tasks.records.values import (
    MissingFieldError,
    get_value,
    read_extra_fields,
    read_optional_text,
    read_text,
    read_texts,
)
from rlvr_jax.types import Fields, Problem
from rlvr_jax.types.fields import NO_FIELDS
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import state_any_confidence

# GSM8K's prose contains annotations like "<<48/2=24>>24" for a calculator. The policy
# only has one in the environment `calculator`.
_CALCULATOR_ANNOTATION = re.compile(r"<<[^<>=]*=[^<>=]*>>")
_CALCULATION = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")
_CALL = r"<calc>\1</calc> <result> \2 </result> "
_LAST_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordFields:
    """The content of a record, before a prompt is written. Made by `parse_record`.

    `solution` is the worked solution from the data with its calculator annotations, or
    "" without one. `earlier` are the turns of a conversation before its question, and
    `other_golds` are further answers that count as correct.
    """

    question: str
    gold: str
    solution: str
    id: str
    parent: str | None
    level: int
    type: str
    level_name: str = ""
    earlier: tuple[Turn, ...] = ()
    other_golds: tuple[str, ...] = ()
    extra: Fields = NO_FIELDS


class RecordSource(Sequence[Problem]):
    """The problems of one file or split in order, all read and checked when opened.

    `records` yields (place, record). Messages about a record begin with its place, and
    the last word of the place is a number that serves as id if the record has none.
    """

    def __init__(
        self,
        config: RecordConfig,
        records: Iterable[tuple[str, object]],
        *,
        source: str,
    ):
        writer = PromptFormatter(config)
        self._problems = [
            _make_problem(fields, source, config=config, writer=writer)
            for fields in parse_records(records, config, source=source)
        ]
        content = "".join(map(repr, self._problems))
        # Only if there are any, because sources of older runs are named without
        content += "".join(repr(p.fields) for p in self._problems if p.fields)
        content += "".join(repr(p.other_golds) for p in self._problems if p.other_golds)
        digest = hashlib.sha256(content.encode()).hexdigest()
        self._name = f"{source}, sha256 {digest[:12]}"

    def __repr__(self) -> str:
        """Returns the text that grain compares before it resumes from a position."""
        return f"RecordSource({self._name})"

    def __len__(self) -> int:
        """Returns the number of problems."""
        return len(self._problems)

    def __getitem__(self, index: Any) -> Any:
        """Returns problem `index`."""
        return self._problems[index]


def parse_records(
    records: Iterable[tuple[str, object]], config: RecordConfig, *, source: str
) -> list[RecordFields]:
    """Returns the content of every record. ConfigError names the place and the fix."""
    parsed: list[RecordFields] = []
    places: dict[str, str] = {}
    records = list(records)
    for place, record in records:
        try:
            fields = parse_record(
                record, config, name=f"{source}:{place.rpartition(' ')[2]}"
            )
            if earlier := places.get(fields.id):
                raise ConfigError(
                    f"id {fields.id!r} is already used by {earlier}; set "
                    "task.record.id_field to a field with unique values, or to ''"
                )
        except MissingFieldError as error:
            have = sum(
                isinstance(other, Mapping) and get_value(other, error.field) is not None
                for _, other in records
            )
            told = error.describe(have=have, total=len(records))
            raise ConfigError(f"{place}: {told}") from error
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
        places[fields.id] = place
        parsed.append(fields)
    return parsed


def parse_record(record: object, config: RecordConfig, *, name: str) -> RecordFields:
    """Returns the content of a record; `name` becomes its id if no field holds one.

    The gold is the text after the last `answer_prefix`. The text before it is the
    worked solution, unless `solution_field` is set or a conversation ends in a reply.
    Raises ConfigError.
    """
    if not isinstance(record, Mapping):
        raise ConfigError(
            f"{record!r:.40} is not a JSON object; write each problem as "
            '{"question": ..., "answer": ...}'
        )
    question = read_question(record, config)
    answers = [
        _split_answer(text, config)
        for text in read_texts(record, config.answer_field, "answer_field")
    ]
    (solution, gold), *others = answers
    if config.solution_field:
        solution = (
            read_optional_text(record, config.solution_field, "solution_field") or ""
        )
    level, level_name = _read_level(record, config)
    return RecordFields(
        question=question.text,
        earlier=question.earlier,
        gold=gold,
        other_golds=tuple(other for _, other in others),
        solution=solution or question.reply.strip(),
        id=read_text(record, config.id_field, "id_field") if config.id_field else name,
        parent=read_optional_text(record, config.parent_field, "parent_field"),
        level=level,
        level_name=level_name,
        type=read_optional_text(record, config.type_field, "type_field") or "",
        extra=read_extra_fields(record, config),
    )


def _split_answer(answer: str, config: RecordConfig) -> tuple[str, str]:
    """Returns the worked solution and the gold in an answer. Raises ConfigError."""
    solution, marker, gold = "", "", answer
    if config.answer_prefix:
        solution, marker, gold = answer.rpartition(config.answer_prefix)
    if marker != config.answer_prefix:
        raise ConfigError(
            f"{config.answer_field!r} has no {config.answer_prefix!r} before the gold; "
            "set task.record.answer_prefix, to nothing if the whole field is the gold "
            "(--config.task.record.answer_prefix=)"
        )
    if not gold.strip():
        raise ConfigError(
            f"no gold in {config.answer_field!r}; complete or remove the record"
        )
    return solution.strip(), gold.strip()


def _make_problem(
    fields: RecordFields, source: str, *, config: RecordConfig, writer: PromptFormatter
) -> Problem:
    prompt, literal = writer.write_prompt(fields.question, fields.earlier)
    return Problem(
        id=fields.id,
        prompt=prompt,
        literal=literal,
        gold=fields.gold,
        other_golds=fields.other_golds,
        verifier=config.verifier,
        answer_format=config.answer_format,
        source=source,
        parent=fields.parent,
        level=fields.level,
        level_name=fields.level_name,
        type=fields.type,
        solution=_make_solution(fields, config),
        fields=fields.extra,
    )


def _make_solution(fields: RecordFields, config: RecordConfig) -> str | None:
    """Returns the completion to learn from, None if the record has no worked solution.

    With `ask_confidence` it ends in a confidence, drawn from the record's id.
    """
    worked = _make_worked_answer(fields, config)
    if worked is None or not config.ask_confidence:
        return worked
    return f"{worked}\n{state_any_confidence(fields.id)}"


def _make_worked_answer(fields: RecordFields, config: RecordConfig) -> str | None:
    """Returns the worked solution with its answer, None without one.

    It states the gold where the verifier will look for it. For a verifier that reads
    whole completions, such as `exact` with answer_format "any", it is only the gold.
    """
    is_whole_text = get_verifier(config.verifier).reads_whole_text
    stated_gold = {
        "any": fields.gold if is_whole_text else f"#### {fields.gold}",
        "boxed": f"\\boxed{{{fields.gold}}}",
        "tagged": f"<answer>{fields.gold}</answer>",
    }[config.answer_format]
    if is_whole_text and config.answer_format == "any":
        return stated_gold
    worked = fields.solution
    if config.calculator_calls:
        worked = _CALCULATION.sub(_CALL, worked)
    if config.verifier != "code":  # a program may shift bits
        worked = _CALCULATOR_ANNOTATION.sub("", worked)
    worked = worked.strip()
    if not worked:
        return None
    if config.solution_field and config.answer_format != "tagged":
        return worked  # a separate solution field already states its answer
    return f"{worked}\n{stated_gold}"


def _read_level(record: Mapping[str, object], config: RecordConfig) -> tuple[int, str]:
    """Returns the level of difficulty and its name, 0 and "" without them.

    The level of a name is its position in `level_order`, from 1. MATH has a few
    "Level ?", which count as none.
    """
    field, order = config.level_field, config.level_order
    value = read_optional_text(record, field, "level_field")
    if value is None or value.rstrip().endswith("?"):
        return 0, ""
    if order:
        if (name := value.strip()) in order:
            return 1 + order.index(name), name
        close = difflib.get_close_matches(name, order, n=1)
        near = did_you_mean(name, close) if close else ""
        raise ConfigError(
            f"{field!r} is {value!r:.40}, which is not in "
            f"task.record.level_order={','.join(order)}; add it there, easiest first, "
            f"or fix the record{near}"
        )
    number = _LAST_NUMBER.search(value)
    if number and float(number[1]).is_integer():
        return int(float(number[1])), ""
    what = "is a fraction" if number else "does not end in a number"
    example = "1,1.5,2" if number else "easy,medium,hard"
    raise ConfigError(
        f"{field!r} is {value!r:.40}, which {what}; list the levels, easiest first "
        f"(task.record.level_order={example}), or set task.record.level_field to ''"
    )
