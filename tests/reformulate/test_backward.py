"""Problems turned backward: templates, guards, and which ones are verified."""

from pathlib import Path

import pytest

from rlvr_jax.reformulate.backward import (
    DroppedRewrite,
    RewrittenProblem,
    find_quantities,
    rewrite_problems,
)
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.files import read_records
from rlvr_jax.tasks.records.records import RecordFields, parse_records

GSM8K = Path(__file__).parents[1] / "problems" / "gsm8k.jsonl"


def _fields(question: str, gold: str = "72", worked: str = "") -> RecordFields:
    return RecordFields(
        question=question,
        gold=gold,
        solution=worked,
        id="a:1",
        parent=None,
        level=0,
        type="",
    )


def _reasons(question: str, **more: str) -> list[tuple[str, str]]:
    made = rewrite_problems([_fields(question, **more)])
    return [(one.token, one.reason) for one in made if isinstance(one, DroppedRewrite)]


def test_both_templates_give_the_answer_and_hide_the_quantity():
    parent = _fields(
        "Natalia sold 48 clips in April, and half as many in May. How many in all?",
        worked="<<48/2=24>>24 <<48+24=72>>72",
    )
    condition, appended = rewrite_problems([parent])
    assert condition.question == (
        "Natalia sold z clips in April, and half as many in May. "
        'The answer to "How many in all?" is 72. What is the unknown number z?'
    )
    assert appended.question == (
        "Natalia sold z clips in April, and half as many in May. How many in all? "
        "Suppose the answer to this question is known to be 72. "
        "What is the unknown number z?"
    )
    for one in (condition, appended):
        assert (one.gold, one.parent, one.check.outcome) == ("48", parent, "verified")


@pytest.mark.parametrize(
    ("question", "texts"),
    [
        (
            "$80,000 (12) or 3.5% of .25, not 1/2.",
            ["80,000", "12", "3.5", ".25", "1/2"],
        ),
        ("$100$ clams", ["100"]),
        ("a 20-page book at 7:30, the 1st", []),
        ("1,00 and x2 and 5/0", []),
    ],
)
def test_a_quantity_is_a_number_token(question, texts):
    found = [q for q in find_quantities(question) if not isinstance(q, str)]
    assert [q.text for q in found] == texts
    assert [question[q.start : q.end] for q in found] == texts


@pytest.mark.parametrize(
    ("question", "token", "reason"),
    [
        ("A 20-page book?", "20-page", "not a number"),
        ("Takes 2 1/2 hours?", "2", "half of a mixed number"),
        ("Takes 2 1/2 hours?", "1/2", "half of a mixed number"),
        ("Find z if 5 = 2z + z?", "5", "z is already in the question"),
        ("3 sprints 3 times?", "3", "the value occurs again"),
        ("3 sprints in a 3-day week?", "3", "the value occurs again"),
        ("1,000 and 1000.0?", "1,000", "the value occurs again"),
    ],
)
def test_guards_drop_both_templates(question, token, reason):
    assert _reasons(question).count((token, reason)) in (2, 4)


def test_a_condition_needs_a_question_sentence():
    assert _reasons("Add 5 to seven.") == [("5", "no question sentence at the end")]


def test_an_unknown_that_is_left_open_is_dropped():
    found = _reasons("A square of side 7. Its area?", gold="49", worked="<<7*7=49>>49")
    assert found == [("7", "several solutions")] * 2


def test_a_rewrite_made_before_is_dropped():
    made = list(rewrite_problems([_fields("Is 5 odd?")] * 2))
    assert [isinstance(one, RewrittenProblem) for one in made] == [
        True,
        True,
        False,
        False,
    ]
    assert {one.reason for one in made[2:]} == {"duplicate"}


def test_initials_and_titles_end_no_sentence():
    condition, _ = rewrite_problems(
        [_fields("It cost 5. How much did Mr. John F. Doe pay?")]
    )
    assert condition.question.startswith(
        'It cost z. The answer to "How much did Mr. John F. Doe pay?" is 72.'
    )


def test_a_word_that_may_mean_the_masked_number_proves_nothing():
    """2 * 3 may be the 2 bags or "twice"; in the second reading z has no effect."""
    parent = _fields(
        "2 bags, each with twice the 3 coins. How many coins?",
        gold="12",
        worked="<<2*3=6>> <<2*6=12>>",
    )
    [bags, _, _, _] = rewrite_problems([parent])
    assert bags.check.outcome == "unchecked"


def test_rewrites_of_50_gsm8k_problems():
    """The results of reading them by hand; docs/log/2026-11.md has 500 others."""
    parents = parse_records(read_records(GSM8K), RecordConfig(), source="gsm8k")
    made = list(rewrite_problems(parents))
    kept = [one for one in made if isinstance(one, RewrittenProblem)]
    verified = [one for one in kept if one.check.outcome == "verified"]
    assert (len(made), len(kept), len(verified)) == (322, 269, 153)
    for one in kept:
        assert f" {one.parent.gold}." in one.question
        assert one.question.count("What is the unknown number z?") == 1
