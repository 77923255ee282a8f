"""Problems asked backward: the answer is given, a quantity of the question is asked.

Each number of a question is replaced in turn by an unknown z, and two templates ask
for it, so that m quantities give up to 2m problems, whose golds are the masked
quantities. The idea, and what counts as a quantity, are those of MetaMath
(https://arxiv.org/abs/2309.12284); the words, and all the guards below, are ours.

A rewrite is dropped, with the reason, where
  1. the token holds digits but is no number ("20-page", "7:30");
  2. it is half of a mixed number ("2 1/2");
  3. z stands in the question already, so that two things would be called z;
  4. its value occurs again: z would occur twice, or the question give it away;
  5. the question does not end in a question sentence (the template `condition` only);
  6. the worked solution shows that z is not determined
     (`calculator.check_unique_solution`);
  7. another rewrite is the same.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Literal

from rlvr_jax.reformulate.calculator import SolutionCheck, check_unique_solution
from rlvr_jax.reformulate.number_words import implied_numbers
from rlvr_jax.tasks.records.records import RecordFields

Template = Literal["condition", "appended"]
TEMPLATES: tuple[Template, ...] = ("condition", "appended")

_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+/\d+|\d+(?:\.\d+)?|\.\d+"
_TOKEN = re.compile(r"\S*\d\S*", re.ASCII)
# A leading dollar or bracket and trailing punctuation stay outside.
_QUANTITY = re.compile(
    rf"(?P<before>[$(\"'\u201c]*)(?P<number>{_NUMBER})(?P<after>%?[.,;:?!)$\"'\u201d]*)",
    re.ASCII,
)
_ANY_NUMBER = re.compile(_NUMBER, re.ASCII)
_UNKNOWN = re.compile(r"\bz\b", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?])[\"'\u201d)]*\s+(?=[\"'\u201c(]?[A-Z0-9$])")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|Jr|vs|No|[A-Z][a-z]+ [A-Z])\.$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    """A number token of a question: text[start:end] is the number alone."""

    start: int
    end: int
    text: str
    percent: bool

    @property
    def value(self) -> Fraction:
        """Returns the number."""
        return Fraction(self.text.replace(",", ""))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewrittenProblem:
    """One problem asked backward. `gold` is the masked quantity."""

    parent: RecordFields
    quantity: Quantity
    template: Template
    question: str
    gold: str
    check: SolutionCheck


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedRewrite:
    """One rewrite that was not made, or not kept, and why."""

    parent: RecordFields
    token: str
    reason: str


def rewrite_problems(
    parents: Iterable[RecordFields],
) -> Iterator[RewrittenProblem | DroppedRewrite]:
    """Yields two rewrites or drops for every quantity of every question."""
    seen: set[tuple[str, str]] = set()
    for parent in parents:
        for made in _rewrite_problem(parent):
            if isinstance(made, DroppedRewrite):
                yield made
            elif (made.question, made.gold) in seen:
                yield _make_drop(parent, made.quantity.text, "duplicate")
            else:
                seen.add((made.question, made.gold))
                yield made


def find_quantities(question: str) -> Iterator[Quantity | str]:
    """Yields the number tokens of a question, and tokens with digits that are none."""
    for token in _TOKEN.finditer(question):
        found = _QUANTITY.fullmatch(token[0])
        if found is None or found["number"].endswith("/0"):
            yield token[0]
            continue
        yield Quantity(
            start=token.start() + found.start("number"),
            end=token.start() + found.end("number"),
            text=found["number"],
            percent=found["after"].startswith("%"),
        )


def _rewrite_problem(
    parent: RecordFields,
) -> Iterator[RewrittenProblem | DroppedRewrite]:
    question = parent.question
    found = list(find_quantities(question))
    counts = collections.Counter(
        _parse_number(number) for number in _ANY_NUMBER.findall(question)
    )
    for index, quantity in enumerate(found):
        if isinstance(quantity, str):
            reason: str | None = "not a number"
        else:
            reason = _masking_obstacle(question, found, index, counts)
        if isinstance(quantity, str) or reason is not None:
            token = quantity if isinstance(quantity, str) else quantity.text
            for _ in TEMPLATES:
                yield _make_drop(parent, token, str(reason))
            continue
        checked = _check_solution(parent, quantity)
        for template in TEMPLATES:
            text = _write_question(parent, quantity, template)
            if checked.outcome == "ambiguous":
                yield _make_drop(parent, quantity.text, checked.reason)
            elif text is None:
                yield _make_drop(
                    parent, quantity.text, "no question sentence at the end"
                )
            else:
                yield RewrittenProblem(
                    parent=parent,
                    quantity=quantity,
                    template=template,
                    question=text,
                    gold=quantity.text.replace(",", ""),
                    check=checked,
                )


def _masking_obstacle(
    question: str,
    tokens: list[Quantity | str],
    index: int,
    counts: collections.Counter[Fraction],
) -> str | None:
    """Returns why a quantity cannot be masked, None where it can."""
    quantity = tokens[index]
    assert isinstance(quantity, Quantity)
    for first, second in ((index - 1, index), (index, index + 1)):
        if first >= 0 and second < len(tokens):
            one, two = tokens[first], tokens[second]
            if (
                isinstance(one, Quantity)
                and isinstance(two, Quantity)
                and "/" in two.text
                and question[one.end : two.start] == " "
            ):
                return "half of a mixed number"
    if _UNKNOWN.search(question):
        return "z stands in the question"
    if counts[quantity.value] > 1:
        return "the value occurs again"
    return None


def _check_solution(parent: RecordFields, quantity: Quantity) -> SolutionCheck:
    """Returns what the worked solution says of the unknown."""
    gold = _ANY_NUMBER.fullmatch(parent.gold)
    if gold is None:
        return SolutionCheck(outcome="unchecked", reason="the gold is no plain number")
    known = set(implied_numbers(f"{parent.question} {parent.solution}"))
    for other in find_quantities(parent.question):
        if isinstance(other, str):
            known.update(_parse_number(number) for number in _ANY_NUMBER.findall(other))
        elif other != quantity:
            known.update(_written_forms(other))
    return check_unique_solution(
        parent.solution,
        gold=_parse_number(gold[0]),
        value=quantity.value,
        percent=quantity.percent,
        known_numbers=frozenset(known),
    )


def _written_forms(quantity: Quantity) -> Iterator[Fraction]:
    """Yields the numbers by which a worked solution may write a quantity."""
    yield quantity.value
    yield from map(Fraction, quantity.text.replace(",", "").split("/"))
    if quantity.percent:
        part = quantity.value / 100
        yield from (part, 1 + part, 1 - part)


def _parse_number(number: str) -> Fraction:
    above, _, below = number.replace(",", "").partition("/")
    divisor = Fraction(below or 1)
    return Fraction(above) / divisor if divisor else Fraction(above)


def _write_question(
    parent: RecordFields, quantity: Quantity, template: Template
) -> str | None:
    """Returns the question asked backward, None where the template does not fit.

    condition  the question sentence becomes a condition: the answer to "..." is 72
    appended   the question stays; that its answer is known is said after it
    """
    text = parent.question
    masked = f"{text[: quantity.start]}z{text[quantity.end :]}".strip()
    if template == "appended":
        return (
            f"{masked} Suppose the answer to this question is known to be "
            f"{parent.gold}. What is the unknown number z?"
        )
    if not masked.endswith("?"):
        return None
    start = 0
    for gap in _SENTENCE.finditer(masked):
        if not _ABBREVIATION.search(masked[: gap.start()]):
            start = gap.end()
    context, asked = masked[:start], masked[start:]
    condition = f'The answer to "{asked}" is {parent.gold}.'
    return f"{context}{condition} What is the unknown number z?"


def _make_drop(parent: RecordFields, token: str, reason: str) -> DroppedRewrite:
    return DroppedRewrite(parent=parent, token=token, reason=reason)
