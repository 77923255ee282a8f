"""Published layouts: how a record of each is read, and which records fit none."""

import dataclasses

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.tasks.public.layout import (
    DATA_SETS,
    DataSet,
    FieldLayout,
    UnusableRecordError,
    find_data_set,
    read_boxed,
)
from tests.support.public_records import RECORDS


@pytest.mark.parametrize(("name", "record", "said"), RECORDS)
def test_a_record_of_each_layout_is_read(name, record, said):
    found = find_data_set(name).choose_layout(record, "here").read(record)
    assert (found.problem, found.gold, found.level, found.type, found.id) == said


def test_every_data_set_has_a_record_here():
    assert {name for name, _, _ in RECORDS} == set(DATA_SETS.names)


def read(name, **changes):
    """Returns the set's first record from above, with changed fields, after reading."""
    record = next(record for which, record, _ in RECORDS if which == name)
    changed = record | changes
    return find_data_set(name).choose_layout(record, "here").read(changed)


def test_what_else_a_record_says():
    assert read("gsm8k").solution == "2+3=<<2+3=5>>5"
    assert read("math").solution.startswith("First")
    assert read("math500").solution == "It is $\\boxed{\\frac32}$."
    assert read("olympiadbench").solution == "First so."
    assert (read("big-math").source, read("big-math").difficulty) == ("cn_k12", 0.375)
    assert (read("deepmath").difficulty, read("deepmath").level) == (5.5, None)
    assert read("polaris").difficulty == "3/8"
    assert read("dapo").source == "math_dapo"
    rated = [{"value": "?"}, {"ground_truth": {"value": 1, "pass_at_n": 0.75}}]
    assert find_data_set("orz").layouts[0].read(rated).difficulty == 0.75


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("math", {"solution": "It is 42."}, r"no \boxed answer in the solution"),
        ("math", {"solution": "\\boxed{4"}, r"no \boxed answer in the solution"),
        ("math", {"solution": None}, "no answer"),
        ("math", {"problem": " "}, "no problem"),
        ("gsm8k", {"answer": "5"}, 'no "####" before the answer'),
        ("gsm8k", {"answer": "2+3=5\n#### "}, 'no answer behind "####"'),
        ("deepscaler", {"answer": ""}, "no answer"),
        ("deepscaler", {"answer": True}, "no answer"),
        ("deepscaler", {"problem": "a\ud800"}, "half a character"),
        ("olympiadbench", {"final_answer": None}, "no answer"),
        ("olympiadbench", {"final_answer": []}, "no answer"),
        ("dapo", {"reward_model": {}}, "no answer"),
        ("dapo", {"prompt": []}, "no problem"),
    ],
)
def test_records_without_a_problem_or_a_gold(name, changes, reason):
    with pytest.raises(UnusableRecordError) as error:
        read(name, **changes)
    assert str(error.value) == reason


@pytest.mark.parametrize(
    ("level", "read_as"),
    [("Level 5", 5), ("Level ?", None), (3, 3), (3.0, 3), (3.5, None), (None, None)],
)
def test_levels(level, read_as):
    assert read("math", level=level).level == read_as


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        (r"is $\boxed{\text{(A)}}$, no: \boxed{x^{2}}.", "x^{2}"),
        (r"\boxed{2} and \boxed{3}", "2, 3"),
        (r"is \fbox{7}.", "7"),
        (r"is $\boxed 9$.", "9"),
        (r"is \boxed{}", ""),
        ("nothing", ""),
    ],
)
def test_the_last_box_is_the_gold(solution, gold):
    assert read_boxed(solution) == gold


def test_instructions_surround_a_question():
    layout = FieldLayout(problem="q", gold="a", around=("Solve.\n", "\nGo."))
    texts = {"Solve.\n2?\nGo.": "2?", "2?": "2?", "Or Solve.\n2?": "Or Solve.\n2?"}
    for text, problem in texts.items():
        assert layout.read({"q": text, "a": 1}).problem == problem


def test_another_layout_is_refused_with_the_fields_of_both():
    with pytest.raises(ConfigError) as error:
        find_data_set("gsm8k").choose_layout({"task": "2?", "result": 1}, "a.json, 1")
    assert str(error.value).startswith(
        "a.json, 1: not the layout of GSM8K: expected 'question', 'answer', found "
        "'task', 'result'. You can describe another layout"
    )
    with pytest.raises(ConfigError, match="it has the fields of deepscaler, big-math"):
        find_data_set("gsm8k").choose_layout({"problem": "2?", "answer": 1}, "here")
    with pytest.raises(ConfigError, match="found a str, no fields"):
        find_data_set("gsm8k").choose_layout("2?", "here")


def test_an_unknown_name_says_the_nearest():
    with pytest.raises(ConfigError, match="unknown data set 'gsmk8'; did you mean 'gs"):
        find_data_set("gsmk8")
    with pytest.raises(ConfigError, match=r"is not a rlvr_jax\S+DataSet: <class 'frac"):
        find_data_set("fractions:Fraction")


def test_sets_that_could_not_be_read_are_refused():
    layout = FieldLayout(problem="q", gold="a")
    with pytest.raises(ConfigError, match="no layouts"):
        DataSet(title="Mine", hub="", layouts=())
    with pytest.raises(ConfigError, match="unknown verifier 'nummeric'"):
        DataSet(title="Mine", hub="", layouts=(layout,), verifier="nummeric")
    with pytest.raises(
        ConfigError, match="gold_form='box' must be one of whole, boxed"
    ):
        dataclasses.replace(layout, gold_form="box")
