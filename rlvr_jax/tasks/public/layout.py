"""How the records of a published data set are laid out, and what one record says."""

import abc
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, get_args

from job_jax.registry import Registry
from job_jax.schema import ConfigError, check
from rlvr_jax.verifiers.answers.boxes import extract_boxed
from rlvr_jax.verifiers.base import get_verifier

GoldForm = Literal["whole", "boxed", "hashes", "list"]

_ABSENT = object()
_LAST_NUMBER = re.compile(r"([0-9]+)\s*$")
_INDEX = re.compile("-?[0-9]{1,9}", re.ASCII)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot
# MATH has a few boxes without braces, and boxes of another name.
_OTHER_BOX = re.compile(r"\\fbox\s*\{")
_BARE_BOX = re.compile(r"\\boxed\s+([^\s${}\\.]+)")

DATA_SETS = Registry(
    "data set",
    {
        name: f"rlvr_jax.tasks.public.table:{name.upper().replace('-', '_')}"
        for name in (
            *("math", "gsm8k", "deepscaler", "dapo", "orz", "big-math"),
            *("deepmath", "polaris"),
            *("math500", "aime24", "aime25", "amc", "minerva", "olympiadbench"),
        )
    },
)


class UnusableRecordError(Exception):
    """A record that no problem can be made of; the message is why, for counting."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PublicRecord:
    """What one record of a published data set says. Made by `Layout.read`.

    `level` is a whole grade and `difficulty` any other measure of the set's own; both
    are None where it has none, as `id` and `source` are.
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
    """Reads a data set's records. Subclass it where no `FieldLayout` describes them."""

    @abc.abstractmethod
    def expected_fields(self) -> tuple[str, ...]:
        """Returns the fields without which a record is of another layout."""

    @abc.abstractmethod
    def read(self, record: Any) -> PublicRecord:
        """Returns what a record says. Raises UnusableRecordError."""

    def fits(self, record: Any) -> bool:
        """Returns whether a record has the fields; their values may be null."""
        return all(
            find_value(record, path) is not _ABSENT for path in self.expected_fields()
        )

    def read_problem(self, record: Any) -> str:
        """Returns the question alone, which is all that an overlap is looked for in."""
        return self.read(record).problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class FieldLayout(Layout):
    """Records whose fields hold problem, gold and the rest; "" where there is none.

    A field within others is written with dots, of a list with its number, -1 for the
    last: `reward_model.ground_truth`, `prompt.-1.content`.

    | gold_form | the gold is                                                  |
    |-----------|--------------------------------------------------------------|
    | whole     | all of the field: a text or a number                         |
    | boxed     | in the last box of the field, which is a worked solution      |
    | hashes    | behind the field's last "####"; what is before is the solution |
    | list      | the field's texts, with commas between them                  |
    """

    problem: str
    gold: str
    gold_form: GoldForm = "whole"
    solution: str = ""
    level: str = ""  # a whole number, or a text that ends in one
    difficulty: str = ""  # any other measure, kept as it is
    type: str = ""
    id: str = ""
    source: str = ""  # where the set has the problem from
    around: tuple[str, str] = ("", "")  # instructions before and behind each question

    def __post_init__(self) -> None:
        """Refuses a gold that is read in no way."""
        check(
            self.gold_form in get_args(GoldForm),
            f"gold_form={self.gold_form!r}; it is one of "
            f"{', '.join(get_args(GoldForm))}",
        )

    def expected_fields(self) -> tuple[str, ...]:
        """Returns the fields of problem and gold; the others may be missing."""
        return self.problem, self.gold

    def read_problem(self, record: Any) -> str:
        """Returns the question, without the instructions around it."""
        text = _read_text(record, self.problem)
        if text is None:
            raise UnusableRecordError("no problem")
        before, behind = (each.strip() for each in self.around)
        return text.removeprefix(before).removesuffix(behind).strip()

    def read(self, record: Any) -> PublicRecord:
        """Returns what a record says. Raises UnusableRecordError."""
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

    def _read_gold(self, record: Any) -> tuple[str, str]:
        """Returns the gold, and the solution where its field holds that as well."""
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


def find_value(record: Any, path: str) -> Any:
    """Returns what stands at a dotted path of a record, a private mark if nothing."""
    value = record
    for step in path.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and _has_item(value, step):
            value = value[int(step)]
        else:
            return _ABSENT
    return value


def _has_item(values: list[Any], step: str) -> bool:
    return bool(_INDEX.fullmatch(step)) and -len(values) <= int(step) < len(values)


def read_boxed(solution: str) -> str:
    r"""Returns what a worked solution boxes last, "" where it boxes nothing."""
    found = extract_boxed(_OTHER_BOX.sub(r"\\boxed{", solution))
    if found is None and (bare := _BARE_BOX.findall(solution)):
        return bare[-1]
    return (found or "").strip()


def describe_fields(record: Any) -> str:
    """Returns the fields that a record has, for a message."""
    if isinstance(record, Mapping):
        return ", ".join(map(repr, record)) or "none"
    return f"a {type(record).__name__}, no fields"


def _require(text: str | None, reason: str) -> str:
    if not text:
        raise UnusableRecordError(reason)
    return text


def _read_text(record: Any, path: str) -> str | None:
    return _to_text(find_value(record, path)) if path else None


def _to_text(value: Any) -> str | None:
    """Returns a text or number as text, None for anything else and for no text.

    Golds that are stored as floats, such as 142.0, are whole numbers.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    return value.strip() or None if isinstance(value, str) else None


def _read_level(value: Any) -> int | None:
    number = _LAST_NUMBER.search(_to_text(value) or "")
    is_fraction = isinstance(value, float) and not value.is_integer()
    return int(number[1]) if number and not is_fraction else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSet:
    """A published data set: where it is, and the layouts in which it goes about.

    Of `layouts` the first that fits a file's first record is taken: copies of one set
    have other fields. One of your own is named by its place, "module:NAME".
    """

    title: str
    hub: str  # ORGANIZATION/NAME of the Hugging Face hub; "": it is not there
    layouts: tuple[Layout, ...]
    subsets: tuple[str, ...] = ()  # configurations that are read, one after the other
    train_split: str = ""  # "": it has none
    eval_split: str = ""  # "": it is no evaluation set
    license: str = "not stated"
    size: int = 0  # evaluation problems, as published; 0: unknown
    verifier: str = "math"  # of its golds

    def __post_init__(self) -> None:
        """Refuses a set that could not be read."""
        check(bool(self.layouts), f"{self.title}: no layouts; give at least one")
        get_verifier(self.verifier)

    def choose_layout(self, record: Any, place: str) -> Layout:
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
            f"{describe_fields(record)}{hint}. Another layout is a few lines of your "
            "own (docs/data_sets.md)"
        )


def _fits_any(name: str, record: Any) -> bool:
    return any(layout.fits(record) for layout in find_data_set(name).layouts)


def find_data_set(name: str) -> DataSet:
    """Returns the data set of that name, ours or "module:NAME". Raises ConfigError."""
    found = DATA_SETS.load(name)
    if not isinstance(found, DataSet):
        raise ConfigError(
            f"data set {name!r} is no rlvr_jax.tasks.public.layout.DataSet: "
            f"{found!r:.60}; make it one"
        )
    return found


def short_name(name: str) -> str:
    """Returns how a data set is called in files: MINE of "my_layouts:MINE", small."""
    return name.rpartition(":")[2].lower()
