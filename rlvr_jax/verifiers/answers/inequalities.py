r"""Writes inequalities as intervals: x < -1 or x > 1, 0 \le x < 2, x \ne 3.

An answer in intervals and a gold in inequalities (or the reverse) are compared as sets
of numbers, and so are two unions of inequalities in one variable. `x < 3` and `y < 3`
stay different, because only inequalities in the same variable are converted together.

A comma means "or" in `x < -1, x > 1`, where no number satisfies two of the
inequalities, and for "and" in `x > -1, x < 1`. The ends of the intervals decide, so
they must be numbers.
"""

import itertools
import math
import re
from collections.abc import Callable

_RELATIONS = {"lt": "<", "gt": ">", "le": "<=", "ge": ">=", "ne": "!="}
_RELATION_NAME = re.compile(r"\\(lt|gt|le|ge|ne)(?:q|qq|qslant)?(?![A-Za-z])")
_RELATION = re.compile(r"<=|>=|!=|<|>|=")
_OR = re.compile(
    r"\s*,?\s*(?:\\(?:text|mathrm|mbox)\s*\{\s*(?:,\s*)?or\s*\}|(?<![A-Za-z\\])or"
    r"(?![A-Za-z])|\\(?:lor|vee|cup)(?![A-Za-z]))\s*"
)
_AND = re.compile(
    r"\s*,?\s*(?:\\(?:text|mathrm|mbox)\s*\{\s*and\s*\}|\band\b|\\(?:land|wedge|cap)"
    r"(?![A-Za-z])|&)\s*"
)
_VARIABLE = r"(?:[A-Za-z]|\\(?:theta|alpha|beta|lambda|mu|phi|omega))(?:_\{?\w\}?)?"
_SIZE = re.compile(
    rf"(?:\\left)?(?:\||\\[lv]vert|\\vert)\s*({_VARIABLE})\s*"
    r"(?:\\right)?(?:\||\\r?vert)"
)
_IS_VARIABLE = re.compile(_VARIABLE)
_BUILDER = re.compile(
    rf"(?:\\left)?\\\{{\s*({_VARIABLE})(?:\s*\\in\s*\\(?:mathbb|mathrm|mathbf)"
    r"\s*\{?\s*R\s*\}?)?\s*(?:\\mid(?![A-Za-z])|\\middle\s*\||\||:|\\colon)\s*(.*?)"
    r"(?:\\right)?\\\}",
    re.DOTALL,
)
_MEMBER = re.compile(rf"{_VARIABLE}\s*\\in(?![A-Za-z])\s*")
_INTERVAL = re.compile(r"[(\[][^<>=]*,[^<>=]*[)\]]", re.DOTALL)
_REALS = re.compile(
    r"\\(?:mathbb|mathbf|mathrm|Bbb)\s*\{?\s*R\s*\}?|\\R(?![A-Za-z])|\u211d"
    r"|\\Reals(?![A-Za-z])|(?:\\text\s*\{\s*)?all real numbers\s*\}?"
)
_EXCLUDED = re.compile(r"\s*(?:\\setminus|\\backslash|-|\\)\s*\\\{([^{}]*)\\\}")
_ONE_INTERVAL = re.compile(r"([(\[])((?:(?!\\c[au]p).)*),((?:(?!\\c[au]p).)*)([)\]])")
_EVERYTHING = r"(-\infty,\infty)"

ReadValue = Callable[[str], float | None]  # the value of a formula without variables


def write_sets_alike(gold: str, answer: str, read_value: ReadValue) -> tuple[str, str]:
    """Returns gold and answer as intervals, if one is and the other can be.

    Other pairs do not change. `read_value` is called for the ends of inequalities that
    a comma joins.
    """
    gold_set, answer_set = _read_intervals(gold), _read_intervals(answer)
    gold_range = _read_inequality(gold, read_value)
    answer_range = _read_inequality(answer, read_value)
    if gold_set and answer_set:
        return gold_set, answer_set
    if gold_set and answer_range:
        return gold_set, answer_range[1]
    if gold_range and answer_set:
        return gold_range[1], answer_set
    if gold_range and answer_range and gold_range[0] == answer_range[0]:
        return gold_range[1], answer_range[1]
    return gold, answer


def _read_intervals(text: str) -> str:
    r"""Returns a set of intervals without "x \in" before it, "" for anything else."""
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])\s*", "", text)
    text = _MEMBER.sub("", text, count=1) if _MEMBER.match(text) else text
    reals = _REALS.match(text)
    if reals:
        rest = text[reals.end() :]
        excluded = _EXCLUDED.fullmatch(rest)
        if not rest.strip():
            return _EVERYTHING
        return _exclude(excluded[1]) if excluded else ""
    text = re.sub(r"\\\{([^{},]*)\\\}", r"{\1}", text) if r"\cup" not in text else text
    return text.strip() if _INTERVAL.fullmatch(text.strip()) else ""


def _exclude(points: str) -> str:
    """Returns the real numbers without some points, in any order."""
    return _intersect(
        [rf"(-\infty,{p.strip()}) \cup ({p.strip()},\infty)" for p in points.split(",")]
    )


def _read_inequality(text: str, read_value: ReadValue) -> tuple[str, str] | None:
    """Returns the variable of some inequalities, and their solutions as intervals."""
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])(?=[()\[\]])", "", text)
    built = _BUILDER.fullmatch(text.strip())
    if built:
        text = built[2]
    text = _RELATION_NAME.sub(lambda name: f" {_RELATIONS[name[1]]} ", text)
    if not re.search("[<>]|!=", text):
        return None
    variables, parts = set(), []
    for part in _OR.split(text):
        listed = [
            _read_joint(clauses.split(",") if "!=" in part else [clauses])
            for clauses in _split_list(part)
        ]
        if None in listed:
            return None
        variables |= {clause[0] for clause in listed if clause}
        sets = [clause[1] for clause in listed if clause]
        parts.append(sets[0] if len(sets) == 1 else _join_listed(sets, read_value))
    if len(variables) != 1 or "" in parts:
        return None
    return variables.pop(), r" \cup ".join(parts)


def _split_list(text: str) -> list[str]:
    """Returns the inequalities that commas join; next to x != a, a comma is "and"."""
    return [text] if "!=" in text else re.split("[,;]", text)


def _read_joint(parts: list[str]) -> tuple[str, str] | None:
    """Returns the variable and solutions of inequalities that "and" joins.

    In "x != 2 and 3", x is neither.
    """
    joint: list[tuple[str, str]] = []
    for part in itertools.chain.from_iterable(map(_AND.split, parts)):
        is_point = joint and not _RELATION.search(part) and "!=" in parts[0]
        clause = _read_clause(f"{joint[0][0]} != {part}" if is_point else part)
        if clause is None:
            return None
        joint.append(clause)
    if len({variable for variable, _ in joint}) != 1:
        return None
    return joint[0][0], _intersect([solutions for _, solutions in joint])


def _join_listed(sets: list[str], read_value: ReadValue) -> str:
    """Returns the union of intervals that do not meet, else two halves' intersection.

    Returns "" if neither reading is clear.
    """
    intervals = [_ONE_INTERVAL.fullmatch(one) for one in sets]
    found = [interval for interval in intervals if interval]
    ends = [[_read_end(one[side], read_value) for side in (2, 3)] for one in found]
    if len(found) < len(sets) or any(end is None for pair in ends for end in pair):
        return ""
    lows, highs = zip(*ends, strict=True)
    order = sorted(range(len(sets)), key=lambda place: lows[place])
    meets = [
        highs[one] > lows[other]
        or (highs[one] == lows[other] and found[one][4] + found[other][1] == "][")
        for one, other in itertools.pairwise(order)
    ]
    if not any(meets):
        return r" \cup ".join(sets[place] for place in order)
    is_range = len(sets) == 2 and -math.inf in lows and math.inf in highs
    return _intersect(sets) if is_range else ""


def _read_end(text: str, read_value: ReadValue) -> float | None:
    infinite = {r"\infty": math.inf, r"-\infty": -math.inf}
    return infinite[text] if text in infinite else read_value(text)


def _intersect(sets: list[str]) -> str:
    """Returns the intersection; x > 1 and x < 3 is (1,3)."""
    if len(sets) == 1:
        return sets[0]
    for low, high in (sets, sets[::-1]) if len(sets) == 2 else ():
        above, below = _ONE_INTERVAL.fullmatch(low), _ONE_INTERVAL.fullmatch(high)
        if above and below and (above[3], below[2]) == (r"\infty", r"-\infty"):
            return f"{above[1]}{above[2]},{below[3]}{below[4]}"
    return r" \cap ".join(f"({each})" if r"\c" in each else each for each in sets)


def _read_clause(text: str) -> tuple[str, str] | None:
    r"""Returns the variable and the interval of x < a, a < x or a < x <= b."""
    sides = [side.strip() for side in _RELATION.split(text)]
    signs = _RELATION.findall(text)
    if "" in sides or len(signs) not in (1, 2) or "," in text:
        return None
    if len(signs) == 2:
        low, variable, high = sides
        if not _IS_VARIABLE.fullmatch(variable):
            return None
        if {sign[0] for sign in signs} == {">"}:
            low, high, signs = high, low, signs[::-1]
        elif {sign[0] for sign in signs} != {"<"}:
            return None
        return variable, _write_interval(low, high, *("=" in s for s in signs))
    variable, end = sides
    [sign] = signs
    if size := _SIZE.fullmatch(variable):
        return size[1], _write_size(end, sign)
    if not _IS_VARIABLE.fullmatch(variable):
        end, variable = sides
        sign = sign.translate({ord("<"): ">", ord(">"): "<"})
        if not _IS_VARIABLE.fullmatch(variable):
            return None
    if sign == "=":
        return variable, f"[{end},{end}]"
    if sign == "!=":
        return variable, _exclude(end)
    if sign[0] == "<":
        return variable, _write_interval(r"-\infty", end, False, "=" in sign)
    return variable, _write_interval(end, r"\infty", "=" in sign, False)


def _write_size(end: str, sign: str) -> str:
    """Returns the solutions of |x| < a; "" for |x| = a and |x| != a."""
    below, above = f"-({end})", f"{end}"
    if sign in ("<", "<="):
        return _write_interval(below, above, "=" in sign, "=" in sign)
    if sign in (">", ">="):
        low = _write_interval(r"-\infty", below, False, "=" in sign)
        return low + r" \cup " + _write_interval(above, r"\infty", "=" in sign, False)
    return ""


def _write_interval(low: str, high: str, closed_low: bool, closed_high: bool) -> str:
    return f"{'[' if closed_low else '('}{low},{high}{']' if closed_high else ')'}"
