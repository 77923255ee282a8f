"""Answers that are almost right are wrong: sign, inverse, scale, order, unit, one off.

Some are by hand, and some are made from golds of real problems in the test folder.
"""

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.grader import Grader

PROBLEMS = Path(__file__).parents[1] / "problems"

# gold, a similar answer, and the kind of similarity
NEAR = [
    ("5", "-5", "sign"),
    ("-5", "5", "sign"),
    ("x-1", "1-x", "sign"),
    (r"-\frac{24}{25}", r"\frac{24}{25}", "sign"),
    ("(6,31,-1)", "(6,31,1)", "sign"),
    ("6+9i", "6-9i", "sign"),
    (r"\pm 3", "3", "sign"),
    ("3", r"\pm 3", "sign"),
    (r"\frac{3}{2}", r"\frac{2}{3}", "inverse"),
    ("4", r"\frac{1}{4}", "inverse"),
    ("4", "0.25", "inverse"),
    ("0.5", "2", "inverse"),
    (r"\sqrt{2}", r"\frac{1}{\sqrt{2}}", "inverse"),
    ("2^{10}", "10^{2}", "inverse"),
    ("0.5", "5", "scale"),
    ("5", "50", "scale"),
    ("1000", "1,0000", "scale"),
    ("1,234", "1.234", "comma"),
    ("1.234", "1,234", "comma"),
    ("1.234", "1234", "comma"),
    ("1,2", "1.2", "comma"),
    ("1.2", "1, 2", "comma"),
    ("1.2", "(1,2)", "comma"),
    ("1.25", "1,26", "comma"),
    ("12.5", "1,25", "comma"),
    ("5", "5,0", "comma"),
    ("1234", "1 23 4", "comma"),
    ("1000", "1 00", "comma"),
    ("1000", "1 0000", "comma"),
    ("1000", "10 00", "comma"),
    ("0.123", "0 123", "comma"),
    ("3", "1 2", "comma"),
    (r"\frac{1}{2}\%", r"\frac{1}{2}", "scale"),
    ("5", r"5\text{ million}", "scale"),
    ("5", "5 thousand", "scale"),
    (r"5\text{ million}", r"5\text{ billion}", "scale"),
    ("5", r"5\text{ dozen}", "scale"),
    (r"5\text{ dozen}", "5", "scale"),
    ("5", r"5\text{ dozen eggs}", "scale"),
    ("5", r"5\text{k}", "scale"),
    ("5", r"5\text{ squared}", "scale"),
    ("5", r"5\text{ and a half}", "scale"),
    ("3", r"3\text{ tenths}", "scale"),
    ("BACD", "ABCD", "order"),
    (r"\text{BACD}", r"\text{ABCD}", "order"),
    ("BAC", r"\text{ABC}", "order"),
    ("AB", "BA", "order"),
    ("No", "on", "order"),
    ("stop", "pots", "order"),
    ("1, 1, 2", "1, 2", "repeat"),
    ("1, 1, 2", "1, 2, 2", "repeat"),
    ("1, 2", "1, 2, 2", "repeat"),
    ("6:00", "6:01", "one off"),
    ("6:00", "7:00", "one off"),
    (r"1-\frac{1}{\mathrm{e}}", r"1+\frac{1}{\mathrm{e}}", "sign"),
    ("0.5", "0.5\\%", "scale"),
    ("1.5", "1,500", "scale"),
    ("2\\pi", "2", "scale"),
    ("3.14159", r"\pi", "scale"),
    ("(1,2)", "(2,1)", "order"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\left( \frac{\pi}{2}, 3 \right)", "order"),
    ("[1,2)", "(1,2]", "order"),
    ("(1,2)", "[1,2]", "order"),
    ("x<3", "x>3", "order"),
    ("x \\le 3", "x < 3", "order"),
    ("a-b", "b-a", "order"),
    ("a^b", "b^a", "order"),
    ("12", "21", "order"),
    (
        r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}",
        r"\begin{pmatrix} 2 \\ 1 \end{pmatrix}",
        "order",
    ),
    ("52_8", "42", "unit"),
    ("52_8", "52_9", "unit"),
    ("52_8", "42_{10}", "unit"),
    (r"5\text{ cm}", r"5\text{ m}", "unit"),
    (r"5\text{ cm}", r"5\text{ cm}^2", "unit"),
    (r"5\text{ square feet}", r"5\text{ cubic feet}", "unit"),
    (r"5\text{ m/s}", r"5\text{ km/h}", "unit"),
    (r"5\text{ m/s}", r"5\text{ m/s}^2", "unit"),
    (r"\$5", "5\u20ac", "unit"),
    (r"\$5", r"5\text{ cents}", "unit"),
    ("5", "5m^2", "unit"),
    ("5m^2", "5", "unit"),
    (r"90^\circ", r"91^\circ", "unit"),
    ("7", "8", "one off"),
    ("7", "6", "one off"),
    ("100", "99.99", "one off"),
    (r"\frac{13}{18}", r"\frac{13}{19}", "one off"),
    # a gold of MATH-500; six decimal places cannot tell them apart
    (".0000672", ".0000673", "one off"),
    ("1.325e-27", "1.325e-28", "scale"),  # of Minerva
    (r"\frac{1}{20^{2012}}", r"\frac{1}{20^{2013}}", "scale"),
    ("0", "1e-9", "one off"),
    ("1000.2", "1000.0", "one off"),
    # the rest are from ORZ
    (r"I = \frac{21\pi}{8}", r"I = \frac{21\pi}{9}", "one off"),
    ("25 + 2 = 27", "25 + 2 = 28", "one off"),
    ("25 + 2 = 27", "28 = 25 + 2", "one off"),
    ("f(0) + f(1) = 1", "f(0) + f(1) = 2", "one off"),
    ("|f_n - g_n| = 1", "|f_n - g_n| = 2", "one off"),
    (r"k \neq 2", r"k \neq 3", "one off"),
    ("E_{1},E_{2}", "E_{1},E_{3}", "one off"),
    (r"\gamma^2", r"\gamma_{1}^2", "one off"),
    (r"\gamma", "0.5772156649", "word"),
    (r"M_{\odot}", "M", "cut"),
    ("x^2 + c", "x^2", "cut"),
    ("f(x) = c", "f(x) = d", "one off"),
    ("2220", "222", "cut"),
    ("x^2+1", "x^2", "cut"),
    ("(0,9) \\cup (9,36)", "(0,9)", "cut"),
    ("(0,9) \\cup (9,36)", "(0,36)", "cut"),
    ("1,2,3", "1,2", "cut"),
    (r"\text{even}", r"\text{odd}", "word"),
    ("A", "B", "word"),
]
# Pairs that the grammar does not distinguish, by decision. Users should know them.
LENIENT = [
    ("50\\%", "50"),
    ("50", "50\\%"),
    (r"90^\circ", "90"),
    (r"5\text{ apples}", r"5\text{ pears}"),
    ("5", "5t"),
    ("5000000", r"5\text{ million}"),
    (r"5\text{ million dollars}", "5000000"),
    ("2.5 million", "2{,}500{,}000"),
    (r"5\text{ dozen}", r"5\text{ dozen}"),
    (r"25\text{ square inches}", "25"),
    ("25", r"25\text{ inches squared}"),
    ("300", r"300\text{K}"),
    ("12", r"12\text{ quarters}"),
    ("BACD", r"\text{BACD}"),
    ("xy", "yx"),
    ("abc", "bca"),
    ("aB", "Ba"),
    ("(1,2), (3,4)", "(3,4), (1,2), (3,4)"),
    ("1, 1, 2", "1, 2, 1"),
    (r"\{1,2\}", r"\{1,2,2\}"),
]
NUMBERS_READ_ALIKE = [
    ("60", "60%"),
    ("60", r"60\%"),
    ("60%", "60"),
    ("60%", "0.6"),
    ("0.6", "60%"),
    ("50", r"50\text{ percent}"),
    ("5", "\u00a35"),
    ("5", "5\u20ac"),
    ("\u00a55", "5"),
    ("-5", "-\u20ac5"),
    ("-5", "-$5"),
    ("5 km", "5 kilometers"),
    ("5 km", "5"),
    ("5", "5-inch"),
    ("5", "5 well-known books"),
    ("18", "18 dollars - a lot"),
    ("5", "five (5)"),
    ("5", "5 a day"),
    ("5", "5 min"),
    ("45", r"45^\circ"),
    ("12", "12 quarters"),
]
# Boxes that make one list, or do not: gold, completion.
NEAR_BOXES = [
    ("2", r"\boxed{1} and \boxed{2}"),
    ("1", r"\boxed{1} and \boxed{2}"),
    ("2", r"$\boxed{1}$, $\boxed{2}$"),
    ("2", r"\boxed{1} or \boxed{2}"),
    ("12", r"\boxed{1}\boxed{2}"),
    ("1,2", r"\boxed{1}, no: \boxed{2}"),
    ("1,2", r"\boxed{1}, or rather \boxed{2}"),
    ("1,2", r"\boxed{1} is wrong and \boxed{2}"),
    ("1,2", "\\boxed{1} and\n\n\\boxed{2}"),
    ("1,2", r"\boxed{1}. And \boxed{2}"),
    ("1,2", r"\boxed{1} + \boxed{2}"),
    ("1,2", r"\boxed{1}, \boxed{2}, \boxed{3}"),
    ("1,2,3", r"\boxed{1}, \boxed{2}"),
    ("x=4,y=5", r"x = \boxed{5} and y = \boxed{4}"),
    ("(1,2)", r"\boxed{2}, \boxed{1}"),
]
NUMBERS = [
    ("5", "-5"),
    ("72", "0.72"),
    ("0.25", "4"),
    ("12", "21"),
    ("1,000", "1,001"),
    ("1000", "1,0000"),
    ("50", "0.5%"),
    (r"\$5", "5\u20ac"),
    ("5 km", "5 meters"),
    ("0.5", "5%"),
    ("0.5", "0.5%"),
    ("60%", "0.006"),
    ("5", "-(5)"),
    ("5", r"-\text{5}"),
    ("5", "-USD 5"),
    ("5", "5 - x"),
    ("5", "5-a"),
    ("5", "5i"),
    ("5", "twice 5"),
    ("5", "5 factorial"),
    ("5", "5 bn"),
    ("5", "5 and a quarter"),
    ("3", "3 tenths"),
    ("8", "cos(8)"),
    ("8", "f(8)"),
    ("8", "log 8"),
    ("2", "2 pi"),
    ("12", "12 - y"),
    ("0.5", r"\frac{1}{2}a"),
    ("1000", "1 00"),
    ("1.5", "1,500"),
    ("3", "3.01"),
    ("3", "1/3"),
]
EXACT = [("e1", "e2"), ("b c", "c b"), ("abc", "ABC"), ("5", "5.0"), ("-1", "1")]
FIELD = [("e1", "e11"), ("e1", "e2"), ("e1", "E1"), ("e10", "e1"), ("e2", "2")]


@pytest.fixture(scope="module")
def grader():
    with Grader(VerifierConfig(workers=1, timeout_s=60.0)) as opened:
        yield opened


def _problem(gold, kind="math"):
    return Problem(id=gold, prompt="", gold=gold, verifier=kind, source="t")


def _statuses(grader, pairs, kind="math", form=r"\boxed{{{}}}"):
    problems = [_problem(gold, kind) for gold, _ in pairs]
    verdicts = grader(problems, [form.format(text) for _, text in pairs])
    return [verdict.status for verdict in verdicts]


def _not(wanted, pairs, statuses):
    return [(*p, s) for p, s in zip(pairs, statuses, strict=True) if s != wanted]


def test_near_misses_are_incorrect(grader):
    pairs = [(gold, near) for gold, near, _ in NEAR]
    assert _not("incorrect", pairs, _statuses(grader, pairs)) == []
    own = [(gold, gold) for gold, *_ in NEAR]
    assert _not("correct", own, _statuses(grader, own)) == []


def test_boxes_that_make_another_list_are_incorrect(grader):
    statuses = _statuses(grader, NEAR_BOXES, form="{}")
    assert _not("incorrect", NEAR_BOXES, statuses) == []


def test_what_is_read_alike_is_known(grader):
    assert _not("correct", LENIENT, _statuses(grader, LENIENT)) == []
    statuses = _statuses(grader, NUMBERS_READ_ALIKE, "numeric")
    assert _not("correct", NUMBERS_READ_ALIKE, statuses) == []


@pytest.mark.parametrize(
    ("kind", "pairs", "form"),
    [
        ("numeric", NUMBERS, r"\boxed{{{}}}"),
        ("exact", EXACT, "{}"),
        ("finite_field", FIELD, "so answer {}"),
    ],
)
def test_near_misses_of_each_verifier_are_wrong(grader, kind, pairs, form):
    assert _not("incorrect", pairs, _statuses(grader, pairs, kind, form)) == []
    own = [(gold, gold) for gold, _ in pairs]
    assert _not("correct", own, _statuses(grader, own, kind, form)) == []


def _real(name):
    lines = (PROBLEMS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def _golds():
    return [
        r["answer"].rpartition("#### ")[2].replace(",", "") for r in _real("gsm8k")
    ] + [r["answer"] for r in _real("math500")]


def test_real_problems_are_here_in_number():
    assert len(_real("gsm8k")) == len(_real("math500")) == 50


def test_worked_solutions_of_real_problems_are_right(grader):
    pairs = [(r["answer"].rpartition("#### ")[2], r["answer"]) for r in _real("gsm8k")]
    pairs += [(r["answer"], r["solution"]) for r in _real("math500")]
    assert _not("correct", pairs, _statuses(grader, pairs, form="{}")) == []


def _near_real(gold):
    """Yields answers that are near a gold but not equal to it."""
    if re.fullmatch(r"-?\d+(\.\d+)?", gold):
        value = Fraction(gold)
        yield str(-value) if value else "1"
        if abs(value) != 1 and value:
            yield rf"\frac{{{value.denominator}}}{{{value.numerator}}}"
        yield f"{gold}0" if "." not in gold else gold.replace(".", "")
        yield f"{float(value + 1):g}"
        yield f"{float(value - 1):g}"
        if gold.isdigit() and gold[::-1].lstrip("0") != gold:
            yield gold[::-1].lstrip("0")
    elif fraction := re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", gold):
        sign, top, bottom = fraction.groups()
        yield rf"{'' if sign else '-'}\frac{{{top}}}{{{bottom}}}"
        yield rf"{sign}\frac{{{bottom}}}{{{top}}}"
        yield rf"{sign}\frac{{{int(top) + 1}}}{{{bottom}}}"
        yield rf"{sign}{top}"
    elif angle := re.fullmatch(r"(\d+)\^\\circ", gold):
        yield rf"{int(angle[1]) + 1}^\circ"
        yield rf"-{angle[1]}^\circ"


def test_near_misses_of_real_golds_are_wrong(grader):
    pairs = [(gold, near) for gold in _golds() for near in _near_real(gold)]
    assert len(pairs) > 300
    assert _not("incorrect", pairs, _statuses(grader, pairs)) == []
