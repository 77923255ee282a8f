"""The layouts of published data sets, and how one record is read."""

import abc
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from job_jax.registry import Registry
from job_jax.schema import ConfigError, check
from rlvr_jax.tasks.records.paths import ABSENT, find_value
from rlvr_jax.verifiers.answers.boxes import extract_boxed
from rlvr_jax.verifiers.base import get_verifier

GoldForm = Literal["whole", "boxed", "hashes", "list"]

_LAST_NUMBER = re.compile(r"([0-9]+)\s*$")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot
# MATH has a few boxes without braces, and boxes with another name.
_OTHER_BOX = re.compile(r"\\fbox\s*\{")
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\.]+)")

DATA_SETS = Registry(
    "data set",
    {
        name: f"rlvr_jax.tasks.public.table:{name.upper().replace('-', '_')}"
        for name in (
            "math",
            "gsm8k",
            "deepscaler",
            "dapo",
            "orz",
            "big-math",
            "deepmath",
            "polaris",
            "math500",
            "aime24",
            "aime25",
            "amc",
            "minerva",
            "olympiadbench",
        )
    },
)


class UnusableRecordError(Exception):
    """A record that cannot become a problem; the message is the reason, for counts."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicRecord:
    """The content of one record of a published data set. Made by `Layout.read`.

    `level` is an integer, `difficulty` any other measure that the set has. These two,
    `id` and `source` are None if the set does not have them.
    """

    problem: str
    gold: str
    solution: str = ""
    level: int | None = None
    difficulty: float | str | None = None
    type: str = ""
    id: str | None = None
    source: str | None = None


class Layout(abc.ABC):
    """Reads a data set's records. Subclass it if no `FieldLayout` describes them."""

    @abc.abstractmethod
    def expected_fields(self) -> tuple[str, ...]:
        """Returns the fields that every record of this layout has."""

    @abc.abstractmethod
    def read(self, record: Any) -> PublicRecord:
        """Returns the content of a record. Raises UnusableRecordError."""

    def fits(self, record: Any) -> bool:
        """Returns whether a record has the fields; their values may be null."""
        return all(
            find_value(record, path) is not ABSENT for path in self.expected_fields()
        )

    def read_problem(self, record: Any) -> str:
        """Returns only the question, which is all that the overlap check needs."""
        return self.read(record).problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldLayout(Layout):
    """A layout with one field each for problem, gold and so on; "" means no field.

    Write a nested field with dots, and a list item with its number, -1 for the last:
    `reward_model.ground_truth`, `prompt.-1.content`.

    | gold_form | the gold is                                                   |
    |-----------|---------------------------------------------------------------|
    | whole     | the whole field: a text or a number                           |
    | boxed     | in the last box of the field, which is a worked solution      |
    | hashes    | after the last "####" in the field; before it is the solution |
    | list      | the texts in the field, joined by commas                      |
    """

    problem: str
    gold: str
    gold_form: GoldForm = "whole"
    solution: str = ""
    level: str = ""  # an integer, or a text that ends in one
    difficulty: str = ""  # any other measure, kept as it is
    type: str = ""
    id: str = ""
    source: str = ""  # where the set took the problem from
    around: tuple[str, str] = ("", "")  # instructions before and after each question

    def __post_init__(self) -> None:
        """Refuses an unknown gold_form."""
        check(
            self.gold_form in get_args(GoldForm),
            f"gold_form={self.gold_form!r} must be one of "
            f"{', '.join(get_args(GoldForm))}",
        )

    def expected_fields(self) -> tuple[str, ...]:
        """Returns the fields for problem and gold; the others may be missing."""
        return self.problem, self.gold

    def read_problem(self, record: Any) -> str:
        """Returns the question, without the instructions around it."""
        text = _read_text(record, self.problem)
        if text is None:
            raise UnusableRecordError("no problem")
        before, behind = (each.strip() for each in self.around)
        return text.removeprefix(before).removesuffix(behind).strip()

    def read(self, record: Any) -> PublicRecord:
        """Returns the content of a record. Raises UnusableRecordError."""
        problem = self.read_problem(record)
        gold, solution = self._read_gold(record)
        if _LONE_SURROGATE.search(problem + gold + solution):
            raise UnusableRecordError("half a character")
        difficulty = find_value(record, self.difficulty)
        return PublicRecord(
            problem=problem,
            gold=gold,
            solution=_read_text(record, self.solution) or solution,
            level=_read_level(find_value(record, self.level)),
            difficulty=difficulty
            if isinstance(difficulty, int | float | str)
            else None,
            type=_read_text(record, self.type) or "",
            id=_read_text(record, self.id),
            source=_read_text(record, self.source),
        )

    def _read_gold(self, record: object) -> tuple[str, str]:
        """Returns the gold, and the solution if the gold's field also holds it."""
        if self.gold_form == "list":
            values = find_value(record, self.gold)
            texts = values if isinstance(values, list) else []
            gold = ", ".join(filter(None, map(_to_text, texts)))
            return _require(gold, "no answer"), ""
        text = _require(_read_text(record, self.gold), "no answer")
        if self.gold_form == "whole":
            return text, ""
        if self.gold_form == "hashes":
            solution, mark, gold = text.rpartition("####")
            _require(mark, 'no "####" before the answer')
            return _require(gold.strip(), 'no answer behind "####"'), solution.strip()
        gold = read_boxed(text)
        return _require(gold, r"no \boxed answer in the solution"), text


def read_boxed(solution: str) -> str:
    r"""Returns the content of the last box in a worked solution, "" without a box."""
    found = extract_boxed(_OTHER_BOX.sub(r"\\boxed{", solution))
    if found is None and (bare := _BARE_BOX.findall(solution)):
        return bare[-1]
    return (found or "").strip()


def describe_fields(record: object) -> str:
    """Returns the names of a record's fields, for a message."""
    if isinstance(record, Mapping):
        return ", ".join(map(repr, record)) or "none"
    return f"a {type(record).__name__}, no fields"


def _require(text: str | None, reason: str) -> str:
    if not text:
        raise UnusableRecordError(reason)
    return text


def _read_text(record: object, path: str) -> str | None:
    return _to_text(find_value(record, path)) if path else None


def _to_text(value: object) -> str | None:
    """Returns a text or number as text, None for anything else and for an empty text.

    Golds that are stored as floats, such as 142.0, are whole numbers.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def _read_level(value: object) -> int | None:
    number = _LAST_NUMBER.search(_to_text(value) or "")
    is_fraction = isinstance(value, float) and not value.is_integer()
    return int(number[1]) if number and not is_fraction else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """A published data set: where it is, and the layouts that its copies have.

    The first of `layouts` that fits the first record of a file is used, because copies
    of a set have different fields. Name your own data set "module:NAME".
    """

    title: str
    hub: str  # ORGANIZATION/NAME on the Hugging Face hub; "": not there
    layouts: tuple[Layout, ...]
    subsets: tuple[str, ...] = ()  # configurations to read, one after the other
    train_split: str = ""  # "": none
    eval_split: str = ""  # "": not an evaluation set
    license: str = "not stated"
    size: int = 0  # evaluation problems, as published; 0: unknown
    verifier: str = "math"  # grades answers against its golds

    def __post_init__(self) -> None:
        """Refuses a set without layouts or with an unknown verifier."""
        check(bool(self.layouts), f"{self.title}: no layouts; give at least one")
        get_verifier(self.verifier)

    def choose_layout(self, record: object, place: str) -> Layout:
        """Returns the layout of a file, by its first record. Raises ConfigError."""
        for layout in self.layouts:
            if layout.fits(record):
                return layout
        expected = " or ".join(
            ", ".join(map(repr, layout.expected_fields())) for layout in self.layouts
        )
        others = [name for name in DATA_SETS.names if _fits_any(name, record)]
        hint = f"; it has the fields of {', '.join(others[:3])}" if others else ""
        raise ConfigError(
            f"{place}: not the layout of {self.title}: expected {expected}, found "
            f"{describe_fields(record)}{hint}. You can describe another layout in a "
            "few lines (docs/use/data_sets.md)"
        )


def _fits_any(name: str, record: object) -> bool:
    return any(layout.fits(record) for layout in find_data_set(name).layouts)


def find_data_set(name: str) -> DataSet:
    """Returns the data set with a name, ours or "module:NAME". Raises ConfigError."""
    found = DATA_SETS.load(name)
    if not isinstance(found, DataSet):
        raise ConfigError(
            f"data set {name!r} is not a rlvr_jax.tasks.public.layout.DataSet: "
            f"{found!r:.60}; make it one"
        )
    return found


def short_name(name: str) -> str:
    """Returns a data set's name in file names: "mine" for "my_layouts:MINE"."""
    return name.rpartition(":")[2].lower()
