"""A generator with its options, written as a line of text.

    chain_sum
    chain_sum levels=0;1;2 weight=2
    basic_arithmetic levels=3 operators=+;- allow_negation=false

The first word is the generator, `levels` are levels of the library's curriculum,
`weight` is the share in a mixture, and the rest are options of the generator. Lists use
semicolons, because a comma ends an entry on the command line.
"""

import dataclasses
import math

from job_jax.schema import ConfigError, check

_PLACE = " #"  # between an entry and the number of one of its problems


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """A generator, its levels, its share, and its options as unparsed text."""

    name: str
    levels: tuple[int, ...] = ()  # of the curriculum; (): only the options
    weight: float = 1.0
    options: tuple[tuple[str, str], ...] = ()  # by name, sorted

    def __str__(self) -> str:
        """Returns the text that `parse_entry` reads, without the weight."""
        levels = [f"levels={';'.join(map(str, self.levels))}"] if self.levels else []
        options = [f"{key}={value}" for key, value in self.options]
        return " ".join([self.name, *levels, *options])

    def split_levels(self) -> tuple["Entry", ...]:
        """Returns one entry per level, or this entry if it has no levels."""
        if not self.levels:
            return (self,)
        return tuple(
            dataclasses.replace(self, levels=(level,), weight=1.0)
            for level in self.levels
        )

    @property
    def grade(self) -> int:
        """Returns a problem's level: the curriculum's level plus 1, 0 without one."""
        return self.levels[0] + 1 if self.levels else 0


def parse_entry(text: str) -> Entry:
    """Returns the entry that the text states. Raises ConfigError.

    >>> parse_entry("gcd levels=0;2 max_numbers=3").levels
    (0, 2)
    """
    name, *words = text.split() or [""]
    check(
        name != "" and "=" not in name,
        f"task.generators: {text!r} does not begin with the name of a generator; write "
        "'NAME levels=0;1 weight=2 OPTION=VALUE'",
    )
    values: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        check(
            bool(key and equals and value),
            f"task.generators: {text!r} has {word!r}; write OPTION=VALUE without "
            "spaces",
        )
        check(key not in values, f"task.generators: {text!r} gives {key!r} twice")
        values[key] = value
    return Entry(
        name=name,
        levels=_parse_levels(text, values.pop("levels", "")),
        weight=_parse_weight(text, values.pop("weight", "1")),
        options=tuple(sorted(values.items())),
    )


def _parse_levels(text: str, levels: str) -> tuple[int, ...]:
    words = levels.split(";") if levels else []
    check(
        all(word.isdecimal() for word in words),
        f"task.generators: {text!r} has levels={levels}; write whole numbers from 0 "
        "with semicolons between them, as in levels=0;1;2",
    )
    numbers = tuple(map(int, words))
    check(
        len(set(numbers)) == len(numbers),
        f"task.generators: {text!r} names a level twice; remove one",
    )
    return numbers


def _parse_weight(text: str, weight: str) -> float:
    try:
        number = float(weight)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise ConfigError(
            f"task.generators: {text!r} has weight={weight}; it must be a positive "
            "number"
        )
    return number


def write_id(entry: Entry, place: int) -> str:
    """Returns the id of a problem: the entry and place that determine it."""
    return f"{entry}{_PLACE}{place}"


def parse_id(name: str) -> tuple[Entry, int]:
    """Returns the entry and place in a problem's id. Raises ValueError."""
    entry, separator, place = name.rpartition(_PLACE)
    if not separator:
        raise ValueError(f"{name!r} is not the id of a reasoning_gym problem")
    return parse_entry(entry), int(place)
