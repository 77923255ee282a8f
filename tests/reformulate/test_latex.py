"""Numbers inside formulas: which ones are quantities, and how z replaces them."""

import pytest

from rlvr_jax.reformulate.backward import (
    WORDINGS,
    DroppedRewrite,
    find_quantities,
    rewrite_problems,
)
from rlvr_jax.tasks.records.records import RecordFields


def _fields(question: str, gold: str) -> RecordFields:
    return RecordFields(
        question=question,
        gold=gold,
        solution="",
        id="a:1",
        parent=None,
        level=0,
        type="",
    )


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        (r"If $3x^2 + 15y_4 = \frac{2}{7}$,", ["3", "15", r"\frac{2}{7}"]),
        (r"\[\sqrt[3]{8} + 9^{\frac 12} - \log_2 x\]", ["8", "9"]),
        (r"Convert $201_7$ and $x2$ and $\frac1{10}$", [r"\frac1{10}"]),
        (r"$1{,}000$ and $2,500$ and $(3,4)$", ["1{,}000", "3", "4"]),
        (r"$40\%$ of $z$, a $5$-digit number, the $7$th", ["40"]),
        (r"$$\begin{pmatrix} 1 & 2 \end{pmatrix}$$", []),
        ("[asy] draw((0,0)--(12,5)); [/asy] a side of 6", ["6"]),
        (
            r"If $x=8$, what is $\frac 12 x$ and $\dfrac 1 3$?",
            ["8", r"\frac 12", r"\dfrac 1 3"],
        ),
        (r"Compute $\binom 52 + 7$ and $\binom{5}{2}$", ["7", "5", "2"]),
        (r"$\sqrt 12 + \sqrt 3 + \sqrt{45}$", ["3", "45"]),
        (r"$2\ 000 + 5$ and $3\,500$", ["5"]),
        ("Jim pays 1 000 dollars and 12 345 678 cents for 3 hats", ["3"]),
        # Dollar signs of money do not start formulas, for any text between them.
        ("a $5 hat, a $7 cap and 3 socks for $9", ["5", "7", "3", "9"]),
    ],
)
def test_quantities_of_formulas(question, texts):
    found = [q for q in find_quantities(question) if not isinstance(q, str)]
    assert [q.text for q in found] == texts
    assert [question[q.start : q.end] for q in found] == texts


def test_an_unknown_behind_a_command_or_a_group_stays_its_argument():
    made = list(
        rewrite_problems(
            [_fields(r"Compute $4\cdot3 + \frac{1+6}2$.", r"\frac{31}{2}")]
        )
    )
    masked = {
        one.gold: one.question.split(" Suppose")[0]
        for one in made
        if not isinstance(one, DroppedRewrite)
    }
    assert masked["3"] == r"Compute $4\cdot{z} + \frac{1+6}2$."
    assert masked["2"] == r"Compute $4\cdot3 + \frac{1+6}{z}$."


def test_the_answer_and_the_unknown_are_formulas_where_the_question_has_some():
    parent = _fields(r"If $x + 4 = 9$, what is $\frac{x}{7}$?", r"\frac57")
    rewrites = [
        one for one in rewrite_problems([parent]) if not isinstance(one, DroppedRewrite)
    ]
    assert rewrites[1].question == (
        r"If $x + z = 9$, what is $\frac{x}{7}$? Suppose the answer to this "
        r"question is known to be $\frac57$. What is the unknown number $z$?"
    )


def test_the_published_words_hide_x():
    parent = _fields("Ann has 48 clips and sells 5. How many are left?", "43")
    condition, appended, *_ = rewrite_problems([parent], WORDINGS["metamath"])
    assert appended.question == (
        "Ann has x clips and sells 5. How many are left? If we know the answer to the "
        "above question is 43, what is the value of unknown variable x?"
    )
    assert condition.question.endswith("What is the value of unknown variable x?")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        (r"Find $2z + 3$.", "z is already in the question"),
        (r"Find $xyz + 3$.", "z is already in the question"),
        (r"Find $3\frac{1}{2} + x$.", "half of a mixed number"),
        (r"Find $3 + x^3$.", "the value occurs again"),
        (r"Find $\frac{1}{3} + \frac13$.", "the value occurs again"),
    ],
)
def test_guards_hold_in_formulas(question, reason):
    made = rewrite_problems([_fields(question, "5")])
    assert reason in {one.reason for one in made if isinstance(one, DroppedRewrite)}


def test_letters_of_commands_are_not_unknowns():
    (made,) = (
        one
        for one in rewrite_problems([_fields(r"Find $\zeta + 3$.", "5")])
        if not isinstance(one, DroppedRewrite)
    )
    assert made.question.startswith(r"Find $\zeta + z$.")
