r"""Writes solutions with names as tuples: "x = 1, y = 2" is (1,2), not also (2,1).

math-verify compares named values as a set and forgets the names. Here, values with
names are put in one order, and values without names must be in the order of the gold's.
Values of one letter with indices, x_1 = 2 and x_2 = 3, are the roots of an equation,
and stay a set.
"""

import re

_SEPARATOR = re.compile(
    r"\s*[;,]?\s*\\(?:text|mathrm|mbox)\s*\{\s*(?:and|or)\s*\}\s*|\s+(?:and|or)\s+|[;,]"
)
_NAMED = re.compile(r"([A-Za-z]{1,3})\s*=\s*([^=<>]+)", re.ASCII)
_OPENING, _CLOSING = "([{", ")]}"
_MAX_VALUES = 24

Solution = dict[str, str]


def write_solutions_alike(gold: str, answer: str) -> tuple[str, str]:
    """Returns both as tuples of values, if at least one names two or more values.

    >>> write_solutions_alike("x=1, y=2", "y=2, x=1")
    ('(1,2)', '(1,2)')
    >>> write_solutions_alike("x=1, y=2", "2, 1")
    ('(1,2)', '(2,1)')
    """
    golds, answers = _read_solutions(gold), _read_solutions(answer)
    if golds and answers and set(golds[0]) == set(answers[0]):
        return _write_tuples(golds), _write_tuples(answers)
    if golds and not answers and "=" not in answer:
        values = _split(answer)
        if len(golds) == 1 and len(values) == len(golds[0]):
            stated = f"({','.join(golds[0].values())})"
            return stated, f"({','.join(values)})"
        return _write_tuples(golds), answer
    if answers and not golds and gold.startswith("("):
        return gold, _write_tuples(answers)
    return gold, answer


def _read_solutions(text: str) -> list[Solution]:
    """Returns solutions that each name the same two or more values, [] without any."""
    if "=" not in text:
        return []
    solutions: list[Solution] = []
    parts = _split(text)
    for part in parts if len(parts) <= _MAX_VALUES else []:
        named = _NAMED.fullmatch(part)
        if named is None:
            return []
        if not solutions or named[1] in solutions[-1]:
            solutions.append({})
        solutions[-1][named[1]] = named[2].strip()
    is_complete = all(set(one) == set(solutions[0]) for one in solutions)
    return solutions if solutions and is_complete and len(solutions[0]) > 1 else []


def _split(text: str) -> list[str]:
    """Returns the parts between separators that are in no brackets."""
    parts, start, depth, at = [], 0, 0, 0
    while at < len(text):
        depth += (text[at] in _OPENING) - (text[at] in _CLOSING)
        found = _SEPARATOR.match(text, at) if depth == 0 else None
        if found:
            parts.append(text[start:at].strip())
            start = at = found.end()
        else:
            at += 1
    return [part for part in [*parts, text[start:].strip()] if part]


def _write_tuples(solutions: list[Solution]) -> str:
    """Returns tuples in the alphabetical order of the names, (x,y) and (p,q)."""
    names = sorted(solutions[0])
    return ",".join(f"({','.join(one[name] for name in names)})" for one in solutions)
