"""Reads the values of a record's fields. ConfigError names the fault and the fix."""

import decimal
import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.tasks.records.layout import ALL_FIELDS, RecordConfig
from rlvr_jax.tasks.records.paths import ABSENT, find_value, list_paths
from rlvr_jax.types import Fields
from rlvr_jax.types.fields import describe_json_fault

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot
# Names that data sets often give to a setting's field, to suggest one.
_USUAL_FIELDS: Mapping[str, tuple[str, ...]] = {
    "prompt_field": (
        "question",
        "prompt",
        "problem",
        "query",
        "messages",
        "conversations",
        "instruction",
        "input",
        "task",
    ),
    "answer_field": (
        "answer",
        "reward_model.ground_truth",
        "ground_truth",
        "gold",
        "final_answer",
        "expected_answer",
        "target",
        "label",
        "solution",
    ),
}


class MissingFieldError(ConfigError):
    """A record lacks a field, or it is null; the setting task.record.`key` names it."""

    def __init__(self, field: str, key: str, record: Mapping[str, object]):
        self.field, self.key, self.record = field, key, record
        super().__init__(self.describe(have=0, total=0))

    def describe(self, *, have: int, total: int) -> str:
        """Returns the problem and its fix, if `have` of `total` records have the field.

        If others have the field, the record is wrong and not the setting.
        """
        absent = not has_field(self.record, self.field)
        what = f"no field {self.field!r}" if absent else f"{self.field!r} is null"
        if have:
            return (
                f"{what}, which {have} of {total} records have; complete or remove "
                "the record"
            )
        if not absent:
            return f"{what}; complete or remove the record"
        paths = list(list_paths(self.record))
        usual = [name for name in _USUAL_FIELDS.get(self.key, ()) if name in paths]
        near = difflib.get_close_matches(self.field, paths, n=1) or usual
        return (
            f"{what}; set task.record.{self.key} to one of "
            f"{', '.join(map(repr, paths)) or 'its fields: it has none'}"
            + (f"; did you mean {near[0]!r}?" if near else "")
        )


def get_value(record: Mapping[str, object], field: str) -> Any:
    """Returns a field's value, None if the record lacks the field or has NaN there."""
    value = find_value(record, field)
    return None if value is ABSENT else _nan_to_null(value)


def has_field(record: Mapping[str, object], field: str) -> bool:
    """Returns whether a record has a field, even if it is null."""
    return find_value(record, field) is not ABSENT


def read_text(record: Mapping[str, object], field: str, key: str) -> str:
    """Returns the text of a record's field, which task.record.`key` names."""
    value = get_value(record, field)
    if value is None:
        raise MissingFieldError(field, key, record)
    if isinstance(value, Mapping) and value:
        inside = ", ".join(repr(f"{field}.{name}") for name in value)
        raise ConfigError(
            f"{field!r} is an object; write it as text, or set task.record.{key} to a "
            f"field inside it: {inside:.200}"
        )
    return to_text(value, field)


def read_texts(record: Mapping[str, object], field: str, key: str) -> list[str]:
    """Returns the texts of a field that holds one, or a list of them."""
    value = get_value(record, field)
    if not isinstance(value, list):
        return [read_text(record, field, key)]
    if not value:
        raise ConfigError(f"{field!r} is an empty list; complete or remove the record")
    return list(dict.fromkeys(to_text(item, field) for item in value))


def to_text(value: object, field: str) -> str:
    """Returns a text or a number as text. Raises ConfigError, which names the field.

    72.0 is "72", because tables turn whole numbers into such floats.
    """
    if isinstance(value, float) and math.isfinite(value):
        whole = int(value) if value.is_integer() else None
        value = format(decimal.Decimal(repr(value)), "f") if whole is None else whole
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise ConfigError(
            f"{field!r} is {value!r:.40}, which is neither a text nor a number; write "
            "it as text"
        )
    if not value.strip():
        raise ConfigError(f"{field!r} is empty; complete or remove the record")
    if half := _LONE_SURROGATE.search(value):
        raise ConfigError(f"{field!r} has half a character, {half[0]!r}; remove it")
    return value


def read_optional_text(
    record: Mapping[str, object], field: str, key: str
) -> str | None:
    """Returns the text of a field, None if it is empty or `field` is ""."""
    if not field:
        return None
    if has_field(record, field) and get_value(record, field) in (None, ""):
        return None
    return read_text(record, field, key)


def read_extra_fields(record: Mapping[str, object], config: RecordConfig) -> Fields:
    """Returns the fields that `extra_fields` names, as `Problem.fields`.

    A field that is named must be there and hold plain JSON. Among all remaining fields,
    others (a date, bytes, an image) are left out. NaN, which tables write for a missing
    number, is null.
    """
    named = [name for name in config.extra_fields if name != ALL_FIELDS]
    values: dict[str, Any] = {}
    if ALL_FIELDS in config.extra_fields:
        values = _plain_values(record, set(record) - {*config.read_fields})
    for name in named:
        if not has_field(record, name):
            raise MissingFieldError(name, "extra_fields", record)
        values[name] = get_value(record, name)
        if fault := describe_json_fault(values[name]):
            raise ConfigError(
                f"{name!r} {fault}; write it as text or number, or leave it out of "
                "task.record.extra_fields"
            )
    tops = {n if n in record else n.partition(".")[0] for n in config.read_fields}
    read = _plain_values(record, tops - {config.prompt_field})
    prompt = {"prompt": get_value(record, config.prompt_field)}
    return Fields(values, read=read | prompt)


def _plain_values(record: Mapping[str, object], names: Iterable[str]) -> dict[str, Any]:
    """Returns these of the record's fields, in its order, if they are plain JSON."""
    chosen = {name: _nan_to_null(value) for name, value in record.items()}
    return {
        name: value
        for name, value in chosen.items()
        if name in names
        and not (describe_json_fault(name) or describe_json_fault(value))
    }


def _nan_to_null(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _nan_to_null(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_nan_to_null(item) for item in value]
    is_nan = isinstance(value, float) and math.isnan(value)
    return None if is_nan else value
