"""A record's other fields, which rewards and others find in problem.fields."""

import dataclasses
import datetime
import json
import pickle

import pyarrow.parquet
import pytest

from job_jax.config_io import from_json, keep_earlier_values, to_json
from job_jax.schema import ConfigError
from rlvr_jax.config.judge import JudgeConfig
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.show import describe_fields, format_row
from rlvr_jax.tasks import FilesTask, RecordConfig
from rlvr_jax.tasks.records.files import load_file_source
from rlvr_jax.types import Fields, Problem, Verdict
from rlvr_jax.verifiers.judge import JudgeVerifier, request_body

RANGE = {"question": "q?", "answer": "#### 4", "lo": 3, "hi": 5.5, "tags": {"a": [1]}}
PLAIN = {"question": "q?", "answer": "#### 4"}


def problems(tmp_path, *records, **settings):
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return load_file_source(RecordConfig(**settings), path)


@pytest.mark.parametrize(
    ("names", "kept"),
    [
        (("*",), {"lo": 3, "hi": 5.5, "tags": {"a": [1]}}),
        (("hi",), {"hi": 5.5}),
        (("answer", "lo"), {"answer": "#### 4", "lo": 3}),
        (("*", "answer"), RANGE),
        ((), {}),
    ],
)
def test_the_named_fields_are_kept_and_by_default_all_that_remain(
    tmp_path, names, kept
):
    [problem] = problems(tmp_path, RANGE, extra_fields=names)
    assert problem.fields == {k: v for k, v in kept.items() if k != "question"}


@pytest.mark.parametrize(
    ("names", "settings", "rest"),
    [
        ({"level_field": "lo"}, {"lo": 3}, {"hi", "tags"}),
        ({"id_field": "lo"}, {"lo": 3}, {"hi", "tags"}),
        ({"type_field": "lo"}, {"lo": 3}, {"hi", "tags"}),
    ],
)
def test_fields_that_a_setting_reads_do_not_remain(tmp_path, names, settings, rest):
    [problem] = problems(tmp_path, RANGE, **names)
    assert set(problem.fields) == rest
    assert {name: problem.fields.record[name] for name in settings} == settings


def test_the_whole_record_is_there_for_adapters(tmp_path):
    [problem] = problems(tmp_path, RANGE, extra_fields=("lo",))
    assert problem.fields.record == {"answer": "#### 4", "lo": 3, "prompt": "q?"}


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (
            [RANGE, PLAIN],
            "p.jsonl, line 2: no field 'lo', which 1 of 2 records have; complete or "
            "remove the record",
        ),
        (
            [PLAIN | {"low": 1}],
            "p.jsonl, line 1: no field 'lo'; set task.record.extra_fields to one of "
            "'question', 'answer', 'low'; did you mean 'low'?",
        ),
        (
            [PLAIN | {"lo": "\ud800"}],
            "p.jsonl, line 1: 'lo' is '\\ud800', which has half a character; write it "
            "as text or number, or leave it out of task.record.extra_fields",
        ),
        (
            [PLAIN | {"lo": float("inf")}],
            "p.jsonl, line 1: 'lo' is inf, which JSON cannot hold; write it as text or "
            "number, or leave it out of task.record.extra_fields",
        ),
    ],
)
def test_a_named_field_that_is_missing_or_unusable_is_one_line(
    tmp_path, records, message
):
    with pytest.raises(ConfigError) as refused:
        problems(tmp_path, *records, extra_fields=("lo",))
    assert str(refused.value).endswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("names", [("a", "a"), ("",)])
def test_names_given_twice_or_empty_are_refused(names):
    with pytest.raises(ConfigError, match="names a field twice, or an empty one"):
        RecordConfig(extra_fields=names)


def test_null_is_a_value_and_nan_is_null(tmp_path):
    record = PLAIN | {"lo": None, "hi": float("nan")}
    [problem] = problems(tmp_path, record, extra_fields=("lo", "hi"))
    assert problem.fields == {"lo": None, "hi": None}


def test_other_values_than_json_are_left_out_unless_named(tmp_path):
    path = tmp_path / "p.parquet"
    row = PLAIN | {"day": datetime.date(2026, 1, 2), "blob": b"x", "lo": [{"a": 1}]}
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    assert load_file_source(RecordConfig(), path)[0].fields == {"lo": [{"a": 1}]}
    with pytest.raises(ConfigError, match=r"row 1: 'day' is datetime.* \(a date\)"):
        load_file_source(RecordConfig(extra_fields=("day",)), path)


def test_no_reader_changes_a_problem_and_copies_are_equal(tmp_path):
    [problem] = problems(tmp_path, RANGE)
    problem.fields["tags"]["a"].append(2)
    problem.fields.record["tags"]["a"].append(2)
    assert problem.fields["tags"] == {"a": [1]}
    with pytest.raises(TypeError):
        problem.fields["lo"] = 4
    for copy in (pickle.loads(pickle.dumps(problem)), dataclasses.replace(problem)):
        assert copy == problem
        assert hash(copy) == hash(problem)
        assert copy.fields.record == problem.fields.record
    assert dataclasses.replace(problem, fields={"lo": 4}) != problem
    assert len({problem, dataclasses.replace(problem, fields={"lo": 4})}) == 2


def test_a_task_of_your_own_may_give_a_dict():
    made = {"id": "1", "prompt": "p", "gold": "g", "verifier": "exact", "source": "s"}
    given = {"lo": [1]}
    problem = Problem(**made, fields=given)
    given["lo"].append(2)
    assert problem.fields == Fields({"lo": [1]})
    with pytest.raises(ConfigError, match=r"field 'lo' is \{1\} \(a set\)"):
        Problem(**made, fields={"lo": {1}})
    with pytest.raises(ConfigError, match="has the key 1, which is not a text"):
        Problem(**made, fields={"lo": {1: 2}})


def test_sources_are_named_by_their_fields_and_as_before_without(tmp_path):
    """Grain compares names; runs from before the field existed continue."""
    older = repr(problems(tmp_path, RANGE, extra_fields=()))
    assert older == repr(problems(tmp_path, PLAIN))
    newer = repr(problems(tmp_path, RANGE))
    assert newer != older
    assert newer == repr(problems(tmp_path, RANGE))
    assert newer != repr(problems(tmp_path, RANGE | {"lo": 4}))


def test_a_run_from_before_the_setting_continues_without_fields():
    saved = to_json(FilesTask())
    del saved["record"]["extra_fields"]
    older = from_json(FilesTask, saved | {"source": "files"})
    assert older.record.extra_fields == ()
    assert keep_earlier_values(older, FilesTask()).record.extra_fields == ()


def row(problem):
    return GradedCompletion(
        problem=problem,
        completion="4",
        verdict=Verdict(status="correct", answer="4"),
        length=1,
        finished=True,
        strategy=None,
        weight_version=0,
    ).to_json("train", 0)


def test_rollouts_have_the_fields_and_show_prints_short_ones(tmp_path):
    one, other = problems(tmp_path, RANGE | {"lo": "\x1b"}, RANGE | {"lo": "x" * 61})
    assert json.loads(json.dumps(row(one)))["fields"] == dict(one.fields)
    assert '  fields    lo \\x1b, hi 5.5, tags {"a": [1]}\n' in format_row(row(one))
    assert describe_fields(row(other)) == 'hi 5.5, tags {"a": [1]} (longer: lo)'
    [edge] = problems(tmp_path, PLAIN | {"lo": "x" * 60})
    assert describe_fields(row(edge)) == "lo " + "x" * 60
    [bare] = problems(tmp_path, PLAIN)
    assert "fields" not in row(bare)
    assert "fields" not in format_row(row(bare))


def test_a_judge_s_template_may_name_fields(tmp_path):
    [problem] = problems(tmp_path, RANGE | {"rubric": "{gold} {lo}"})
    template = "{question} {completion} {fields.rubric} {fields.tags} {fields.lo}"
    config = JudgeConfig(template=template)
    asked = request_body(config, problem, "4")["messages"][1]["content"]
    assert ' {gold} {lo} {"a": [1]} 3\n' in asked
    JudgeVerifier(config).check_problem(problem)
    wrong = JudgeConfig(template="{question} {completion} {fields.rubrik}")
    with pytest.raises(
        ConfigError, match=r"no field 'rubrik'; name one of lo, hi, tag"
    ):
        JudgeVerifier(wrong).check_problem(problem)
