"""Word problems from records: which field holds what, and how a prompt is written.

Files and Hugging Face data sets differ in where their records come from; what a record
becomes is the same for all, and stands here.
"""

import dataclasses
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import RecordConfig
from rlvr_jax.tasks.prompts import PromptWriter
from rlvr_jax.types import Problem

# GSM8K interleaves its prose with "<<48/2=24>>24", meant for a calculator that the
# policy does not have.
_CALCULATOR = re.compile(r"<<[^<>]*>>")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot
_LAST_NUMBER = re.compile(r"([0-9]+)\s*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fields:
    """What a record says, before a prompt is written. Made by `read_fields`.

    `worked` is the worked solution as the data has it, calculator annotations
    included, "" where there is none.
    """

    question: str
    gold: str
    worked: str
    id: str
    parent: str | None
    level: int
    type: str


class RecordSource:
    """The problems of one file or split, all read and checked at once, in its order.

    `records` yields (place, record): the place begins a message about the record, and
    its last word is the number by which a record without an id is known.
    """

    def __init__(
        self, config: RecordConfig, records: Iterable[tuple[str, Any]], *, source: str
    ):
        writer = PromptWriter(config)
        self._problems = [
            _problem(fields, source, config=config, writer=writer)
            for fields in read_all(records, config, source=source)
        ]
        content = "".join(map(repr, self._problems)).encode()
        self._name = f"{source}, sha256 {hashlib.sha256(content).hexdigest()[:12]}"

    def __repr__(self) -> str:
        """Returns what grain compares before it resumes from a saved position."""
        return f"RecordSource({self._name})"

    def __len__(self) -> int:
        """Returns the number of problems."""
        return len(self._problems)

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`."""
        return self._problems[index]


def read_all(
    records: Iterable[tuple[str, Any]], config: RecordConfig, *, source: str
) -> list[Fields]:
    """Returns what every record says. ConfigError names the place and the mend."""
    found: list[Fields] = []
    places: dict[str, str] = {}
    for place, record in records:
        try:
            fields = read_fields(
                record, config, name=f"{source}:{place.rpartition(' ')[2]}"
            )
            if earlier := places.get(fields.id):
                raise ConfigError(
                    f"id {fields.id!r} was given before, by {earlier}; set "
                    "task.record.id_field to a field that tells records apart, or to ''"
                )
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
        places[fields.id] = place
        found.append(fields)
    return found


def read_fields(record: Any, config: RecordConfig, *, name: str) -> Fields:
    """Returns what a record says; `name` is its id where no field holds one.

    The gold is what follows the last `answer_marker`; what stands before it is the
    worked solution, unless a field of its own holds that. Raises ConfigError.
    """
    if not isinstance(record, Mapping):
        raise ConfigError(f"{record!r:.40} is no JSON object")
    question = _text(record, config.prompt_field, "prompt_field")
    answer = _text(record, config.answer_field, "answer_field")
    worked, marker, gold = "", "", answer
    if config.answer_marker:
        worked, marker, gold = answer.rpartition(config.answer_marker)
    if marker != config.answer_marker:
        raise ConfigError(
            f"{config.answer_field!r} holds no {config.answer_marker!r} before the "
            "gold; set task.record.answer_marker (empty: the whole field is the gold)"
        )
    if not gold.strip():
        raise ConfigError(
            f"no gold in {config.answer_field!r}; complete or remove the record"
        )
    if config.solution_field:
        worked = _optional(record, config.solution_field, "solution_field") or ""
    return Fields(
        question=question,
        gold=gold.strip(),
        worked=worked.strip(),
        id=_text(record, config.id_field, "id_field") if config.id_field else name,
        parent=_optional(record, config.parent_field, "parent_field"),
        level=_level(record, config.level_field),
        type=_optional(record, config.type_field, "type_field") or "",
    )


def _problem(
    fields: Fields, source: str, *, config: RecordConfig, writer: PromptWriter
) -> Problem:
    return Problem(
        id=fields.id,
        prompt=writer.write(fields.question),
        gold=fields.gold,
        kind=config.verifier,
        answer_form=config.answer_form,
        source=source,
        parent=fields.parent,
        level=fields.level,
        type=fields.type,
        solution=_solution(fields, config),
    )


def _solution(fields: Fields, config: RecordConfig) -> str | None:
    """Returns the completion to learn from, None where the record works nothing out.

    It states the gold in the form that the verifier will look for. The `exact` verifier
    compares whole completions unless told where to look: there it is the gold alone.
    """
    stated = {
        "any": fields.gold if config.verifier == "exact" else f"#### {fields.gold}",
        "boxed": f"\\boxed{{{fields.gold}}}",
        "tagged": f"<answer>{fields.gold}</answer>",
    }[config.answer_form]
    if config.verifier == "exact" and config.answer_form == "any":
        return stated
    worked = _CALCULATOR.sub("", fields.worked).strip()
    if not worked:
        return None
    if config.solution_field and config.answer_form != "tagged":
        return worked  # a solution written as such says its answer itself
    return f"{worked}\n{stated}"


def _text(record: Mapping[str, Any], field: str, key: str) -> str:
    """Returns the text of a record's field, which task.record.`key` names."""
    if field not in record:
        raise ConfigError(
            f"no field {field!r}; set task.record.{key}{did_you_mean(field, record)}"
        )
    value = record[field]
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ConfigError(
            f"{field!r} is {value!r:.40}, neither text nor a whole number; put it in "
            "quotes"
        )
    if not value.strip():
        raise ConfigError(f"{field!r} is empty; complete or remove the record")
    if half := _HALF_CHARACTER.search(value):
        raise ConfigError(f"{field!r} holds half a character, {half[0]!r}; remove it")
    return value


def _optional(record: Mapping[str, Any], field: str, key: str) -> str | None:
    """Returns the text of a field, None where no field is asked for or it is empty."""
    if not field or (field in record and record[field] in (None, "")):
        return None
    return _text(record, field, key)


def _level(record: Mapping[str, Any], field: str) -> int:
    """Returns the difficulty grade, 0 for none; MATH has a few "Level ?"."""
    value = _optional(record, field, "level_field")
    if value is None or value.rstrip().endswith("?"):
        return 0
    if number := _LAST_NUMBER.search(value):
        return int(number[1])
    raise ConfigError(
        f"{field!r} is {value!r:.40} and ends in no number; mend it, or set "
        "task.record.level_field to ''"
    )
