r"""Backward problems: the answer is given, and a quantity is unknown.

Each number of a question is replaced in turn by an unknown z, and two templates ask
for it. So m quantities give up to 2m problems, whose golds are the masked quantities.
The idea and the definition of a quantity come from MetaMath
(https://arxiv.org/abs/2309.12284), and so does the wording of METAMATH. The wording of
PLAIN, numbers within LaTeX formulas, and all the guards below are ours.

A rewrite is dropped, with the reason, if
  1. the token holds digits but is not a quantity ("20-page", "7:30", the 2 of `x^2`);
  2. it is half of a mixed number ("2 1/2");
  3. the question already has the letter, so two things would be called z;
  4. its value occurs again: z would occur twice, or the question would give it away;
  5. the question does not end in a question sentence (only the template `condition`);
  6. the worked solution (`calculator.check_unique_solution`), or a question that is one
     formula (`uniqueness.check_unique_formula`), shows that z is not determined;
  7. another rewrite is identical.
"""

import collections
import dataclasses
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Literal

from rlvr_jax.reformulate.calculator import SolutionCheck, check_unique_solution
from rlvr_jax.reformulate.latex import (
    GROUPED,
    NUMBER,
    find_drawings,
    find_formula_numbers,
    find_formulas,
    has_letter,
    plain_number,
    split_fraction,
)
from rlvr_jax.reformulate.number_words import implied_numbers
from rlvr_jax.reformulate.uniqueness import check_unique_formula
from rlvr_jax.tasks.records.records import RecordFields

Template = Literal["condition", "appended"]
TEMPLATES: tuple[Template, ...] = ("condition", "appended")

_TOKEN = re.compile(r"\S*\d\S*", re.ASCII)
# A leading dollar or bracket and trailing punctuation are not part of the number.
_QUANTITY = re.compile(
    rf"(?P<before>[$(\"'\u201c]*)(?P<number>\d+/\d+|{NUMBER})(?P<after>%?[.,;:?!)$\"'\u201d]*)",
    re.ASCII,
)
_ANY_NUMBER = re.compile(rf"\d+/\d+|{NUMBER}", re.ASCII)
_IN_A_WORD = re.compile(r"-?[a-zA-Z]")  # after a formula: $3$-digit, $5$th
_SENTENCE = re.compile(r"(?<=[.!?])[\"'\u201d)]*\s+(?=[\"'\u201c(]?[A-Z0-9$])")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|Jr|vs|No|[A-Z][a-z]+ [A-Z])\.$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantity:
    r"""A number token of a question; text[start:end] is only the number.

    Within a formula it may be `\frac{3}{4}` or `1{,}000`.
    """

    start: int
    end: int
    text: str
    percent: bool

    @property
    def value(self) -> Fraction:
        """Returns the number."""
        return _parse_number(self.text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wording:
    """The unknown's letter, and the text of each template.

    Fields in braces: `masked` (the question with the unknown), `context` and `asked`
    (its parts before and in the question sentence), `gold`, `unknown`.
    """

    letter: str
    condition: str
    appended: str


WORDINGS = {
    "plain": Wording(
        letter="z",
        condition='{context}The answer to "{asked}" is {gold}. '
        "What is the unknown number {unknown}?",
        appended="{masked} Suppose the answer to this question is known to be {gold}. "
        "What is the unknown number {unknown}?",
    ),
    "metamath": Wording(
        letter="x",
        condition='{context}The answer to "{asked}" is {gold}. '
        "What is the value of unknown variable {unknown}?",
        appended="{masked} If we know the answer to the above question is {gold}, "
        "what is the value of unknown variable {unknown}?",
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewrittenProblem:
    """One backward problem. `gold` is the masked quantity."""

    parent: RecordFields
    quantity: Quantity
    template: Template
    question: str
    gold: str
    check: SolutionCheck


@dataclasses.dataclass(frozen=True, kw_only=True)
class DroppedRewrite:
    """A rewrite that was not made, or not kept, and why."""

    parent: RecordFields
    token: str
    reason: str


def rewrite_problems(
    parents: Iterable[RecordFields], wording: Wording = WORDINGS["plain"]
) -> Iterator[RewrittenProblem | DroppedRewrite]:
    """Yields two rewrites or drops for every quantity of every question."""
    seen: set[tuple[str, str]] = set()
    for parent in parents:
        for made in _rewrite_problem(parent, wording):
            if isinstance(made, DroppedRewrite):
                yield made
            elif (made.question, made.gold) in seen:
                yield _make_drop(parent, made.quantity.text, "duplicate")
            else:
                seen.add((made.question, made.gold))
                yield made


def find_quantities(question: str) -> Iterator[Quantity | str]:
    """Yields a question's quantities, and as text the tokens with digits that are not.

    Text inside an Asymptote drawing is neither.
    """
    drawings = list(find_drawings(question))
    formulas = [
        (start, end)
        for start, end in find_formulas(question)
        if not any(low <= start < high for low, high in drawings)
    ]
    position = 0
    for start, end in sorted([*drawings, *formulas]):
        yield from _find_in_prose(question, position, start)
        if (start, end) in formulas:
            yield from _find_in_formula(question, start, end)
        position = end
    yield from _find_in_prose(question, position, len(question))


def _find_in_formula(question: str, start: int, end: int) -> Iterator[Quantity | str]:
    formula = question[start:end]
    is_in_word = _IN_A_WORD.match(question, end) is not None
    for low, high, is_quantity in find_formula_numbers(formula):
        text = formula[low:high]
        if is_in_word or not is_quantity or _has_zero_divisor(text):
            yield text
            continue
        yield Quantity(
            start=start + low,
            end=start + high,
            text=text,
            percent=formula[high:].startswith("\\%"),
        )


def _find_in_prose(question: str, start: int, end: int) -> Iterator[Quantity | str]:
    grouped = [group.span() for group in GROUPED.finditer(question, start, end)]
    for token in _TOKEN.finditer(question, start, end):
        found = _QUANTITY.fullmatch(token[0])
        is_group = any(low <= token.start() < high for low, high in grouped)
        if found is None or is_group or _has_zero_divisor(found["number"]):
            yield token[0]
            continue
        yield Quantity(
            start=token.start() + found.start("number"),
            end=token.start() + found.end("number"),
            text=found["number"],
            percent=found["after"].startswith("%"),
        )


def _rewrite_problem(
    parent: RecordFields, wording: Wording
) -> Iterator[RewrittenProblem | DroppedRewrite]:
    question = parent.question
    found = list(find_quantities(question))
    counts = collections.Counter(
        _parse_number(number) for number in _ANY_NUMBER.findall(question)
    )
    counts.update(  # of fractions the numbers above contain only the numerals
        q.value for q in found if isinstance(q, Quantity) and split_fraction(q.text)
    )
    for index, quantity in enumerate(found):
        if isinstance(quantity, str):
            reason: str | None = "not a number"
        else:
            reason = _masking_obstacle(question, found, index, counts, wording.letter)
        if isinstance(quantity, str) or reason is not None:
            token = quantity if isinstance(quantity, str) else quantity.text
            for _ in TEMPLATES:
                yield _make_drop(parent, token, str(reason))
            continue
        masked = _mask(question, quantity, wording.letter)
        checked = _check_solution(parent, quantity, masked, wording.letter)
        for template in TEMPLATES:
            text = _write_question(parent, masked, template, wording)
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
                    gold=plain_number(quantity.text),
                    check=checked,
                )


def _masking_obstacle(
    question: str,
    tokens: list[Quantity | str],
    index: int,
    counts: collections.Counter[Fraction],
    letter: str,
) -> str | None:
    """Returns why a quantity cannot be masked, or None if it can."""
    quantity = tokens[index]
    assert isinstance(quantity, Quantity)
    for first, second in ((index - 1, index), (index, index + 1)):
        if first >= 0 and second < len(tokens):
            one, two = tokens[first], tokens[second]
            if (
                isinstance(one, Quantity)
                and isinstance(two, Quantity)
                and ("/" in two.text or split_fraction(two.text))
                and question[one.end : two.start] in ("", " ")
            ):
                return "half of a mixed number"
    if _stands_in(question, letter):
        return f"{letter} is already in the question"
    if counts[quantity.value] > 1:
        return "the value occurs again"
    return None


def _check_solution(
    parent: RecordFields, quantity: Quantity, masked: str, letter: str
) -> SolutionCheck:
    """Returns whether the worked solution, or the formula in question, determines z."""
    gold = _read_gold(parent.gold)
    if gold is None:
        return SolutionCheck(outcome="unchecked", reason="the gold is no plain number")
    if "<<" not in parent.solution and any(find_formulas(parent.question)):
        return check_unique_formula(
            masked, gold=gold, value=quantity.value, unknown=letter
        )
    known = set(implied_numbers(f"{parent.question} {parent.solution}"))
    for other in find_quantities(parent.question):
        if isinstance(other, str):
            known.update(_parse_number(number) for number in _ANY_NUMBER.findall(other))
        elif other != quantity:
            known.update(_written_forms(other))
    return check_unique_solution(
        parent.solution,
        gold=gold,
        value=quantity.value,
        percent=quantity.percent,
        known_numbers=frozenset(known),
    )


def _written_forms(quantity: Quantity) -> Iterator[Fraction]:
    """Yields the numbers that a worked solution may write for a quantity."""
    yield quantity.value
    yield from map(Fraction, plain_number(quantity.text).split("/"))
    if quantity.percent:
        part = quantity.value / 100
        yield from (part, 1 + part, 1 - part)


def _parse_number(number: str) -> Fraction:
    above, _, below = plain_number(number).partition("/")
    above, below = split_fraction(number) or (above, below)
    divisor = Fraction(below or 1)
    return Fraction(above) / divisor if divisor else Fraction(above)


def _read_gold(gold: str) -> Fraction | None:
    """Returns the gold as a number, or None if it is not one."""
    text = gold.strip().strip("$")
    sign, digits = (-1, text[1:]) if text.startswith("-") else (1, text)
    if not _ANY_NUMBER.fullmatch(digits) and not split_fraction(digits):
        return None
    return None if _has_zero_divisor(digits) else sign * _parse_number(digits)


def _has_zero_divisor(number: str) -> bool:
    _, below = split_fraction(number) or number.partition("/")[::2]
    return below.strip("0") == "" and below != ""


def _stands_in(question: str, letter: str) -> bool:
    """Returns whether a question has the letter as a word, or in a formula."""
    if re.search(rf"\b{letter}\b", question, re.IGNORECASE):
        return True
    return any(
        has_letter(question[start:end], letter)
        for start, end in find_formulas(question)
    )


def _mask(question: str, quantity: Quantity, letter: str) -> str:
    """Returns the question with the letter instead of the quantity."""
    before = question[: quantity.start]
    # After a LaTeX command the letter would be read as a part of its name; after a
    # group it may be the command's second argument.
    is_argument = re.search(r"\\[a-zA-Z]+$|\}$", before) is not None
    unknown = f"{{{letter}}}" if is_argument else letter
    return f"{before}{unknown}{question[quantity.end :]}".strip()


def _write_question(
    parent: RecordFields, masked: str, template: Template, wording: Wording
) -> str | None:
    """Returns the backward question, or None if the template does not fit.

    condition  the question sentence becomes a condition: the answer to "..." is 72
    appended   the question stays, and a sentence after it gives its answer
    """
    has_formulas = any(find_formulas(masked))
    fields = {
        "gold": f"${parent.gold}$" if has_formulas else parent.gold,
        "unknown": f"${wording.letter}$" if has_formulas else wording.letter,
    }
    if template == "appended":
        return wording.appended.format(masked=masked, **fields)
    if not masked.endswith("?"):
        return None
    start = 0
    for gap in _SENTENCE.finditer(masked):
        if not _ABBREVIATION.search(masked[: gap.start()]):
            start = gap.end()
    return wording.condition.format(
        context=masked[:start], asked=masked[start:], **fields
    )


def _make_drop(parent: RecordFields, token: str, reason: str) -> DroppedRewrite:
    return DroppedRewrite(parent=parent, token=token, reason=reason)
