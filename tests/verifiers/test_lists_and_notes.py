"""Families of answers: lists of inequalities and values, marks, and notes in brackets.

Each family has pairs that are right and near misses that must stay wrong.
"""

import pytest

from rlvr_jax.verifiers.answers.solutions import write_solutions_alike
from rlvr_jax.verifiers.math_pool import Item

_OUTSIDE = r"(-\infty,-3)\cup(3,\infty)"
_WITHOUT_1_4 = r"(-\infty,1)\cup(1,4)\cup(4,\infty)"

# family -> (gold, completion) pairs that are right, and pairs that are not
FAMILIES = {
    "commas between inequalities": (
        [
            (_OUTSIDE, r"\boxed{x<-3, x>3}"),
            (_OUTSIDE, r"\boxed{x>3,\; x<-3}"),
            ("x<-3, x>3", rf"\boxed{{{_OUTSIDE}}}"),
            ("x<-3 or x>3", rf"\boxed{{{_OUTSIDE}}}"),
            (_OUTSIDE, "The answer is x < -3 or x > 3."),
            (
                r"(-\infty,-\sqrt{2}]\cup[\frac{5}{2},\infty)",
                r"\boxed{t\le-\sqrt2, t\ge\frac52}",
            ),
            ("(0,1)\\cup(2,3)", r"\boxed{0<x<1, 2<x<3}"),
            (r"(-\infty,2)\cup(2,\infty)", r"\boxed{x<2, x>2}"),
            ("(-3,3)", r"\boxed{x>-3, x<3}"),
            ("x>-3, x<3", r"\boxed{(-3,3)}"),
            (r"[-6,0]\cup[4,8]", r"\boxed{$-6\lex\le0$or$4\lex\le8$}"),
        ],
        [
            (_OUTSIDE, r"\boxed{x<-3, x\ge 3}"),
            (_OUTSIDE, r"\boxed{x>-3, x<3}"),
            (_OUTSIDE, r"\boxed{x<-3, y>3}"),
            (_OUTSIDE, r"\boxed{x<-3 and x>3}"),
            ("(-3,3)", r"\boxed{x<-3, x>3}"),
            ("x>-3, x<3", r"\boxed{(-\infty,\infty)}"),
            ("x<-3, x>3", r"\boxed{(-3,3)}"),
            (r"\mathbb{R}", r"\boxed{x\le 2, x\ge 2}"),
            (r"(2,\infty)", r"\boxed{x>1, x>2}"),
            ("(2,3)", r"\boxed{1<x<3, 2<x<4}"),
            ("(0,1)\\cup(2,3)", r"\boxed{0<x<1, 2<x<4}"),
        ],
    ),
    "excluded points": (
        [
            (_WITHOUT_1_4, r"\boxed{x \ne 1, 4}"),
            (_WITHOUT_1_4, r"\boxed{x \neq 4, x \neq 1}"),
            (_WITHOUT_1_4, r"\boxed{x \ne 4 \text{ and } 1}"),
            (_WITHOUT_1_4, r"\boxed{\mathbb{R} \setminus \{4,1\}}"),
            (r"\mathbb{R}\setminus\{1,4\}", r"\boxed{x \ne 4, x \ne 1}"),
        ],
        [
            (r"\mathbb{R}", r"\boxed{x \ne 4, x \ne 1}"),
            (r"\mathbb{R}", r"\boxed{\mathbb{R} \setminus \{4,1\}}"),
            (_WITHOUT_1_4, r"\boxed{x \ne 1}"),
            (_WITHOUT_1_4, r"\boxed{x \ne 1, 5}"),
            (r"(-\infty,1)\cup(1,\infty)", r"\boxed{x \ne 1, 4}"),
        ],
    ),
    "values with names": (
        [
            ("x=4, y=9", r"\boxed{y=9, x=4}"),
            ("x=4, y=9", r"\boxed{(4,9)}"),
            ("x=4, y=9", r"\boxed{4 and 9}"),
            ("(4,9)", r"\boxed{x=4, y=9}"),
            ("y=9, x=4", r"\boxed{(4,9)}"),
            ("m=2,n=3;m=5,n=3", r"\boxed{m=5, n=3 \text{ or } m=2, n=3}"),
            ("m=2,n=3;m=5,n=3", r"\boxed{(5,3),(2,3)}"),
            ("AB=6,CD=5", r"\boxed{6, 5}"),
            ("x_1=4,x_2=9", r"\boxed{9, 4}"),
            ("x=4 or x=9", r"\boxed{9, 4}"),
        ],
        [
            ("x=4, y=9", r"\boxed{x=9, y=4}"),
            ("x=4, y=9", r"\boxed{(9,4)}"),
            ("x=4, y=9", r"\boxed{9, 4}"),
            ("x=4, y=9", r"\boxed{x=4}"),
            ("(4,9)", r"\boxed{x=9, y=4}"),
            ("(4,9)", r"\boxed{y=4, x=9}"),
            ("m=2,n=3;m=5,n=3", r"\boxed{m=2,n=3;m=5,n=4}"),
            ("m=2,n=3;m=5,n=3", r"\boxed{(3,2),(3,5)}"),
        ],
    ),
    "notes in brackets": (
        [
            ("31", "The answer is 31 (see step 2)."),
            ("31", "So there are 31 (5 of the 36 left)."),
            ("31", "The answer is $31$ (because 36 - 5 = 31)."),
            (r"\frac{1}{2}", r"The answer is $\frac{1}{2}$ (as we saw above)"),
            ("31", "The sum is (20 + 11 = 31)."),
        ],
        [
            ("5", "So there are 31 (5 of the 36 left)."),
            ("31", "The answer is 31 (no, 32)."),
            ("31", "The answer is 31 (million)."),
            ("31", "The answer is 31 (or 32 with the guests)."),
            ("31", "The sum is (20 + 12 = 31)."),
            ("11", "The sum is (20 + 11 = 31)."),
        ],
    ),
    "false calculations": (
        [
            ("24", "so 6 * 4 = 24 pens"),
            ("24", "hence 4 \u00d7 6 = 24"),
            ("7", "He needs 50 / 8 = 7 boxes."),
            ("6", "He fills 50 / 8 = 6"),
            ("0.33", "1 / 3 = 0.33"),
            ("20", "100 * 20% = 20"),
            ("24", r"so $6 \cdot 4 = 24$"),
        ],
        [
            ("25", "so 24 = 25"),
            ("13", "so 2.5 * 5 = 13"),
            ("25", "so 6 * 4 = 25"),
            ("25", "so 6 + 4 * 5 = 25"),
            ("25", r"so $6 \times 4 = 25$"),
            ("8", "He fills 50 / 8 = 8"),
            ("3", "so 12 / 3 = 3"),
            ("0.35", "1 / 3 = 0.35"),
        ],
    ),
    "marks at the start of a line and in other languages": (
        [
            ("19", "Answer: 19, because 4 of 23 are gone."),
            ("19", "We add.\n**Answer:** 19 of the 23"),
            ("19", "\u7b54\u6848\u662f19\u4e2a\uff0c\u51713\u5929\u3002"),
            ("19", "R\u00e9ponse: 19 billes sur 23"),
            ("19", "<think>so 18 or 19</think>19"),
            ("19", "The answer is 19<eod>"),
            ("-19", r"The answer is \\boxed{-19}"),
            ("19", "My first answer: 4 was too small, so 19."),
        ],
        [
            ("4", "Answer: 19, because 4 of 23 are gone."),
            ("19", "\u7b54\u6848\u662f 19 \u6216 20\u3002"),
            ("19", "R\u00e9ponse: 19 ou 20"),
            ("18", "<think>so 18</think>19"),
            ("19", "The answer is more than 19."),
            ("19", "<answer>It is less than 19.</answer>"),
            ("19", r"The answer is \\boxed{91}"),
        ],
    ),
    "choices": (
        [
            ("C", "Answer: C"),
            ("C", "**Answer:** (C)"),
            ("C", "We compare, so answer: C."),
            ("C", "The answer is C because D is too large."),
            ("C", "The correct option is (C)."),
        ],
        [
            ("C", "Answer: D"),
            ("C", "Answer: C or D"),
            ("C", "The correct option is (D), not C"),
            ("C", "The answer is D because C is too large."),
        ],
    ),
    "sentences as golds": (
        [
            ("$f(x)=x+b$, where $b$ is 0", "The answer is $f(x)=x+b$, where $b$ is 0."),
            ("Ann and Bob 2", "#### Ann and Bob 2"),
        ],
        [
            ("Ann and Bob 2", "#### Ann and Bob 3"),
            ("Ann and Bob 2", r"\boxed{3} The answer is Ann and Bob 2"),
        ],
    ),
    "cases in commands": (
        [(r"\sqrt{k}", r"\boxed{\sqrt{k}}"), (r"\text{No}", r"\boxed{no}")],
        [
            (r"\sqrt{k}", r"\boxed{\sqrt{K}}"),
            ("n!", r"\boxed{N!}"),
            (r"\sin t", r"\boxed{\sin T}"),
        ],
    ),
    "what renders as nothing": (
        [
            ("8", "\\boxed{8\\ }"),
            ("8", r"\boxed{\left. 8 \right.}"),
            ("60", r"\boxed{60{}^\circ}"),
            ("60", r"\boxed{60^\text{o}}"),
            (r"\frac{\sqrt{5}}{2}", r"\boxed{\frac{\sqrt{}{5}}{2}}"),
        ],
        [
            ("8", r"\boxed{\left. 9 \right.}"),
            ("60", r"\boxed{60{}^2}"),
            ("27", r"\boxed{\(2\)7}"),
            (r"\frac{\sqrt{5}}{2}", r"\boxed{\frac{\sqrt{}{3}}{2}}"),
        ],
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_right_in_all_its_forms(others, family):
    assert others(FAMILIES[family][0], "correct") == []


@pytest.mark.parametrize("family", FAMILIES)
def test_near_misses_of_a_family_are_wrong(others, family):
    assert others(FAMILIES[family][1], "incorrect") == []


def test_numeric_reads_the_same_marks_and_refuses_the_same_calculations(others):
    right = [("19", "Answer: 19 (see above)"), ("-19", r"it is \\boxed{-19}")]
    wrong = [
        ("27", r"\(2\)7"),
        ("25", "so 6 * 4 = 25"),
        ("19", "The answer is more than 19."),
    ]
    assert others(right, "correct", "numeric") == []
    assert others(wrong, "incorrect", "numeric") == []


def test_a_union_of_many_intervals_is_not_parsed(verifier):
    many = [r"\cup".join(f"({2 * i},{2 * i + 1})" for i in range(n)) for n in (13, 14)]
    pairs = [Item(gold, rf"\boxed{{{gold} }}") for gold in many]
    pairs += [Item("5", rf"\boxed{{{gold}}}") for gold in many]
    verdicts = verifier.grade_all(pairs)
    assert [v.status for v in verdicts] == ["correct"] * 2 + ["incorrect"] * 2
    assert [v.reason for v in verdicts[2:]] == [
        "",
        "final answer is not parsed: a union of over 13 sets",
    ]


@pytest.mark.parametrize(
    ("gold", "answer", "written"),
    [
        ("x=1,y=2", "y=2;x=1", ("(1,2)", "(1,2)")),
        ("y=2,x=1", "2,1", ("(2,1)", "(2,1)")),
        ("x=1,y=2", "1,2,3", ("(1,2)", "1,2,3")),
        ("a=4,-8", "4,-8", ("a=4,-8", "4,-8")),
        ("x=1,y=2", "x=1,z=2", ("x=1,y=2", "x=1,z=2")),
        (r"\{1,2\}", "x=1,y=2", (r"\{1,2\}", "x=1,y=2")),
        ("p=(1,2),q=3", "q=3,p=(1,2)", ("((1,2),3)", "((1,2),3)")),
    ],
)
def test_named_values_become_tuples_in_one_order(gold, answer, written):
    assert write_solutions_alike(gold, answer) == written
