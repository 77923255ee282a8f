"""Word problems from files: how records become problems, and refusals."""

import dataclasses
import gzip
import json
import re
from pathlib import Path

import pyarrow.parquet
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.environments import Calculator
from rlvr_jax.tasks import MATH_RECORD, FilesTask, RecordConfig
from rlvr_jax.tasks.records.files import load_file_source
from rlvr_jax.tasks.records.prompts import CONFIDENCE_REQUEST
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.confidence import parse_confidence, strip_confidence

PROBLEMS = Path(__file__).parents[2] / "problems"
RHOMBUS = {
    "problem": "Find it.",
    "answer": r"\frac{1}{2}",
    "solution": r"So \boxed{\frac{1}{2}}.",
    "subject": "Geometry",
    "level": 3,
    "unique_id": "test/geometry/1.json",
}
CLIPS = {
    "question": "48 clips in April, half as many in May. How many?",
    "answer": "She sold 48/2 = <<48/2=24>>24 in May.\nIn all <<48+24=72>>72.\n#### 72",
}


def _file(folder: Path, *lines: object) -> Path:
    path = folder / "problems.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def _refusal(config: RecordConfig, path: Path) -> str:
    """Returns the line with which a file is refused."""
    with pytest.raises(ConfigError) as refused:
        load_file_source(config, path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_line_of_gsm8k_becomes_a_problem(tmp_path):
    source = load_file_source(RecordConfig(), _file(tmp_path, "", CLIPS, CLIPS))
    assert len(source) == 2
    assert source[0] == Problem(
        id="problems.jsonl:2",
        prompt="Question: 48 clips in April, half as many in May. How many?\nAnswer:",
        gold="72",
        verifier="math",
        source="problems.jsonl",
        solution="She sold 48/2 = 24 in May.\nIn all 72.\n#### 72",
    )


def test_the_gold_follows_the_last_marker(tmp_path):
    line = CLIPS | {"answer": "#### 1\nno, wait\n####  1,072 "}
    [problem] = load_file_source(RecordConfig(), _file(tmp_path, line))
    assert problem.gold == "1,072"
    assert problem.solution == "#### 1\nno, wait\n#### 1,072"


def test_a_line_of_math_becomes_a_problem(tmp_path):
    [problem] = load_file_source(MATH_RECORD, _file(tmp_path, RHOMBUS))
    assert problem == Problem(
        id="test/geometry/1.json",
        prompt="Question: Find it.\nAnswer:",
        gold=r"\frac{1}{2}",
        verifier="math",
        answer_format="boxed",
        source="problems.jsonl",
        level=3,
        type="Geometry",
        solution=r"So \boxed{\frac{1}{2}}.",
    )


@pytest.mark.parametrize(
    ("written", "level"),
    [
        *[(5, 5), (5.0, 5), ("5.0", 5), ("Level 5", 5)],
        *[("Level ?", 0), (None, 0), (float("nan"), 0), ("", 0)],
    ],
)
def test_a_level_is_the_number_that_its_field_ends_in(tmp_path, written, level):
    [problem] = load_file_source(
        MATH_RECORD, _file(tmp_path, RHOMBUS | {"level": written})
    )
    assert problem.level == level


def test_lineage_is_kept(tmp_path):
    config = RecordConfig(id_field="id", parent_field="parent")
    lines = CLIPS | {"id": 7}, CLIPS | {"id": 8, "parent": 7}
    one, two = load_file_source(
        config, _file(tmp_path, lines[0] | {"parent": None}, lines[1])
    )
    assert [(p.source, p.id, p.parent) for p in (one, two)] == [
        ("problems.jsonl", "7", None),
        ("problems.jsonl", "8", "7"),
    ]


def test_two_records_of_one_id_are_refused(tmp_path):
    path = _file(tmp_path, RHOMBUS, RHOMBUS)
    with pytest.raises(ConfigError, match=r"line 2: id 'test/geo.*by .*line 1; set"):
        load_file_source(MATH_RECORD, path)


def test_a_template_fills_in_the_question_and_nothing_else(tmp_path):
    config = RecordConfig(prompt_template="{x} {prompt}")
    path = _file(tmp_path, CLIPS | {"question": "{y}?"})
    assert load_file_source(config, path)[0].prompt == "{x} {y}?"


@pytest.mark.parametrize(
    ("form", "stated"),
    [("any", "#### 72"), ("boxed", r"\boxed{72}"), ("tagged", "<answer>72</answer>")],
)
def test_a_worked_solution_states_the_gold_in_the_requested_form(
    tmp_path, form, stated
):
    [problem] = load_file_source(
        RecordConfig(answer_format=form), _file(tmp_path, CLIPS)
    )
    assert problem.solution == f"She sold 48/2 = 24 in May.\nIn all 72.\n{stated}"


def test_with_a_confidence_request_solutions_end_in_one(tmp_path):
    """The record's id decides which tenth, and the gold does not change."""
    lines = [CLIPS] * 200
    plain = load_file_source(RecordConfig(), _file(tmp_path, *lines))
    asked = load_file_source(RecordConfig(ask_confidence=True), _file(tmp_path, *lines))
    stated = []
    for problem, other in zip(plain, asked, strict=True):
        assert strip_confidence(other.solution) == f"{problem.solution}\n"
        assert other.gold == problem.gold
        stated.append(parse_confidence(other.solution))
        head, _, tail = problem.prompt.partition("\nAnswer:")
        assert other.prompt == f"{head}\n{CONFIDENCE_REQUEST}\nAnswer:{tail}"
    assert set(stated) == {tenths / 10 for tenths in range(11)}
    # The form that the request shows is not a statement itself.
    assert parse_confidence(CONFIDENCE_REQUEST) is None
    nothing = {**CLIPS, "answer": "#### 72"}
    [bare] = load_file_source(
        RecordConfig(ask_confidence=True), _file(tmp_path, nothing)
    )
    assert bare.solution is None


def test_parquet_and_json_lines_of_the_same_records_are_the_same_problems(tmp_path):
    rows = [CLIPS, CLIPS | {"question": "Hä?"}]
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(rows), tmp_path / "problems.parquet"
    )
    lines = load_file_source(RecordConfig(), _file(tmp_path, *rows))
    table = load_file_source(RecordConfig(), tmp_path / "problems.parquet")
    for line, row in zip(lines, table, strict=True):
        number = line.id.rpartition(":")[2]
        lineage = {"source": "problems.parquet", "id": f"problems.parquet:{number}"}
        assert row == dataclasses.replace(line, **lineage)


def test_a_parquet_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigError, match=r"a\.parquet is not a parquet file"):
        load_file_source(RecordConfig(), tmp_path / "a.parquet")


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "a.xlsx").write_text("a,b")
    with pytest.raises(ConfigError, match=r"a\.xlsx' has an unknown suffix; give one"):
        load_file_source(RecordConfig(), tmp_path / "a.xlsx")


def test_an_exact_solution_is_the_gold_alone(tmp_path):
    config = RecordConfig(verifier="exact")
    [problem] = load_file_source(config, _file(tmp_path, CLIPS))
    assert (problem.verifier, problem.solution) == ("exact", "72")


def test_grain_distinguishes_files_by_their_contents(tmp_path):
    one = repr(load_file_source(RecordConfig(), _file(tmp_path, CLIPS)))
    two = repr(load_file_source(RecordConfig(), _file(tmp_path, CLIPS, CLIPS)))
    again = repr(load_file_source(RecordConfig(), _file(tmp_path, CLIPS)))
    assert one == again != two


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON at column 2 .*; write one JSON object per line"),
        ("[1]", r"\[1\] is not a JSON object; write each problem as \{\"question"),
        (
            '{"question": "a", "answer": "#### 1", "question": "b"}',
            "the field 'question' occurs twice; remove one of the two",
        ),
        (
            '{"question": "a", "answer": "#### 1", "x": {"y": 1, "y": 1}}',
            "the field 'y' occurs twice; remove one of the two",
        ),
        (
            {"Question": "q", "answer": "#### 1"},
            "no field 'question', which 3 of 4 records have; complete or remove the",
        ),
        (
            {"question": "q"},
            "no field 'answer', which 3 of 4 records have; complete or remove the",
        ),
        (
            CLIPS | {"answer": None},
            "'answer' is null, which 3 of 4 records have; complete or remove the",
        ),
        (
            CLIPS | {"answer": True},
            "'answer' is True, which is neither a text nor a number; write it as text",
        ),
        (CLIPS | {"question": " "}, "'question' is empty"),
        (CLIPS | {"answer": "#### "}, "no gold in 'answer'"),
        (CLIPS | {"answer": "72"}, "'answer' has no '####' before the gold; set"),
        (CLIPS | {"question": "\ud800"}, "has half a character"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_bad_line_is_named_by_number_and_fix(tmp_path, line, complaint):
    path = _file(tmp_path, CLIPS, CLIPS, line, CLIPS)
    with pytest.raises(ConfigError, match=rf"problems\.jsonl, line 3: .*{complaint}"):
        load_file_source(RecordConfig(), path)


def test_a_field_that_no_record_has_is_the_setting_s_fault(tmp_path):
    """It lists the existing fields, and suggests the nearest only if one is near."""
    lines = [{"Question": "q", "response": "4"}] * 32
    path = _file(tmp_path, *lines)
    message = (
        "problems.jsonl, line 1: no field 'question'; set task.record.prompt_field to "
        "one of 'Question', 'response'; did you mean 'Question'?"
    )
    assert _refusal(RecordConfig(), path).endswith(message)
    config = RecordConfig(prompt_field="Question")
    message = (
        "line 1: no field 'answer'; set task.record.answer_field to one of "
        "'Question', 'response'"
    )
    assert _refusal(config, path).endswith(message)


def test_null_everywhere_is_nothing_to_set(tmp_path):
    path = _file(tmp_path, CLIPS | {"answer": None}, CLIPS | {"answer": None})
    assert _refusal(RecordConfig(), path).endswith(
        "line 1: 'answer' is null; complete or remove the record"
    )


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text(json.dumps(CLIPS), encoding="utf-8-sig")
    [problem] = load_file_source(RecordConfig(), path)
    assert (problem.id, problem.gold) == ("problems.jsonl:1", "72")
    path.write_text(json.dumps(CLIPS), encoding="utf-16")
    assert _refusal(RecordConfig(), path).endswith(
        "line 1: UTF-16, and not UTF-8 at byte 1; save the file as UTF-8"
    )


@pytest.mark.parametrize("indent", [None, 2])
def test_a_json_file_may_be_one_array(tmp_path, indent):
    path = tmp_path / "problems.json"
    text = "\n" + json.dumps([CLIPS, CLIPS | {"question": "?"}], indent=indent)
    path.write_text(text)
    source = load_file_source(RecordConfig(), path)
    assert [problem.id for problem in source] == ["problems.json:1", "problems.json:2"]
    lines = tmp_path / "problems.jsonl"
    lines.write_text(text)
    assert _refusal(RecordConfig(), lines) == (
        f"{lines}, line 2: the file is one JSON array of 2 records; name it "
        "problems.json, or write one object per line"
    )
    path.write_text(text[: text.index("?")])  # cut short
    assert re.fullmatch(
        rf"{path}, line \d: not JSON at column \d+ \(Unterminated string starting "
        r"at\); the file is an array that is damaged or ends early; get it again",
        _refusal(RecordConfig(), path),
    )


def test_a_field_that_occurs_twice_is_refused_in_an_array_too(tmp_path):
    path = tmp_path / "problems.json"
    path.write_text('[{"question": "q", "answer": "#### 1", "answer": "#### 2"}]')
    assert "problems.json: the field 'answer' occurs twice" in _refusal(
        RecordConfig(), path
    )


def test_a_cell_of_a_table_may_be_long(tmp_path):
    path = tmp_path / "problems.csv"
    path.write_text(f'question,answer\n"{"x, " * 50_000}",#### 2\n')
    (problem,) = load_file_source(RecordConfig(), path)
    assert problem.gold == "2"
    assert problem.prompt.count("x") == 50_000


def test_only_calculations_are_annotations(tmp_path):
    """Shifted bits stay, and so does everything in a program."""
    worked = "x << 3 | y >> 5; 2+2=<<2+2=4>>4\n#### 4"
    record = {"question": "q", "answer": worked}
    (problem,) = load_file_source(RecordConfig(), _file(tmp_path, record))
    assert problem.solution == "x << 3 | y >> 5; 2+2=4\n#### 4"


def test_a_packed_file_is_unpacked(tmp_path):
    path = tmp_path / "problems.jsonl.gz"
    packed = gzip.compress(json.dumps(CLIPS).encode())
    path.write_bytes(packed)
    [problem] = load_file_source(RecordConfig(), path)
    assert (problem.id, problem.gold) == ("problems.jsonl.gz:1", "72")
    for damaged in (packed[:-9], b"{}"):
        path.write_bytes(damaged)
        assert f"{path} is not a complete gzip file" in _refusal(RecordConfig(), path)


def test_lines_that_are_arrays_are_not_an_array_of_records(tmp_path):
    assert "line 1: [1] is not a JSON object" in _refusal(
        RecordConfig(), _file(tmp_path, [1], [2])
    )


def test_a_directory_is_refused_with_its_files(tmp_path):
    assert _refusal(RecordConfig(), tmp_path) == (
        f"{str(tmp_path)!r} is a directory; give one file of problems "
        "('.jsonl', '.json', '.parquet', '.csv', '.tsv', '.jsonl.gz', '.json.gz', "
        "'.csv.gz', '.tsv.gz')"
    )
    path = _file(tmp_path, CLIPS)
    (tmp_path / "a.txt").touch()
    assert _refusal(RecordConfig(), tmp_path).endswith(f"such as {str(path)!r}")


@pytest.mark.parametrize("stage", ["train", "eval"])
def test_a_path_that_is_not_given_is_named(tmp_path, stage):
    path = str(_file(tmp_path, CLIPS))
    given = {"train_path": path, "eval_path": path, f"{stage}_path": ""}
    with pytest.raises(ConfigError, match=rf"task\.{stage}_path is empty; name a"):
        FilesTask(**given).problems(stage, seed=0)


LEVELED = RecordConfig(level_field="level", level_order=("easy", "so-so", "hard"))


@pytest.mark.parametrize(
    ("written", "level"),
    [("easy", 1), ("so-so", 2), (" hard ", 3), (None, 0), ("?", 0)],
)
def test_levels_in_words_count_by_their_order(tmp_path, written, level):
    path = _file(tmp_path, CLIPS | {"level": written})
    [problem] = load_file_source(LEVELED, path)
    assert problem.level == level
    assert problem.level_name == (written.strip() if level else "")


def test_levels_with_fractions_count_by_their_order(tmp_path):
    config = RecordConfig(level_field="level", level_order=("1", "1.5", "2"))
    path = _file(tmp_path, *(CLIPS | {"level": x} for x in (2.0, 1.5, 1)))
    assert [p.level for p in load_file_source(config, path)] == [3, 2, 1]


@pytest.mark.parametrize(
    ("config", "written", "message"),
    [
        (
            LEVELED,
            "eazy",
            "line 2: 'level' is 'eazy', which is not in "
            "task.record.level_order=easy,so-so,hard; add it there, easiest first, or "
            "fix the record; did you mean 'easy'?",
        ),
        (
            LEVELED,
            "3",
            "line 2: 'level' is '3', which is not in "
            "task.record.level_order=easy,so-so,hard; add it there, easiest first, or "
            "fix the record",
        ),
        (
            RecordConfig(level_field="level"),
            "easy",
            "line 2: 'level' is 'easy', which does not end in a number; list the "
            "levels, easiest first (task.record.level_order=easy,medium,hard), or set "
            "task.record.level_field to ''",
        ),
        (
            RecordConfig(level_field="level"),
            2.5,
            "line 2: 'level' is '2.5', which is a fraction; list the levels, easiest "
            "first (task.record.level_order=1,1.5,2), or set task.record.level_field "
            "to ''",
        ),
    ],
)
def test_a_level_without_a_place_is_refused(tmp_path, config, written, message):
    path = _file(tmp_path, CLIPS | {"level": None}, CLIPS | {"level": written})
    assert _refusal(config, path).endswith(message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"level_order": ("a", "b")}, "level_order=a,b needs a level"),
        (
            {"level_order": ("a", "b", "a"), "level_field": "x"},
            "level_order=a,b,a names a level twice",
        ),
    ],
)
def test_an_order_of_levels_that_orders_nothing_is_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        RecordConfig(**fields)


def test_bytes_that_are_not_utf8_are_refused(tmp_path):
    path = tmp_path / "latin1.jsonl"
    path.write_bytes(json.dumps(CLIPS).encode() + b'\n{"question": "caf\xe9"}')
    with pytest.raises(ConfigError, match=r"line 2: not UTF-8 at byte 18"):
        load_file_source(RecordConfig(), path)


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(ConfigError, match=r"problems\.jsonl is empty"):
        load_file_source(RecordConfig(), _file(tmp_path, content))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*; check task\.train_path"):
        load_file_source(RecordConfig(), tmp_path / "missing.jsonl")


def test_gsm8k_is_read_as_published():
    source = load_file_source(RecordConfig(), PROBLEMS / "gsm8k.jsonl")
    assert len(source) == 50
    for problem in source:
        assert problem.solution is not None
        assert problem.solution.endswith(f"\n#### {problem.gold}")
        assert "<<" not in problem.solution


def test_gsm8ks_annotations_become_calls_that_the_calculator_confirms(tmp_path):
    config = RecordConfig(calculator_calls=True)
    (clips,) = load_file_source(config, _file(tmp_path, CLIPS))
    assert clips.solution == (
        "She sold 48/2 = <calc>48/2</calc> <result> 24 </result> 24 in May.\n"
        "In all <calc>48+24</calc> <result> 72 </result> 72.\n#### 72"
    )
    environment, results = Calculator(), 0
    for problem in load_file_source(config, PROBLEMS / "gsm8k.jsonl"):
        assert "<<" not in problem.solution
        messages = environment.demonstrate(problem)
        for at in range(1, len(messages), 2):
            reply = environment.respond(problem, messages[:at])
            results += reply.text == messages[at].text
        assert environment.respond(problem, messages).done
    assert results > 100


def test_math500_is_read_as_published():
    problems = load_file_source(MATH_RECORD, PROBLEMS / "math500.jsonl")
    assert len(problems) == 50
    assert {problem.level for problem in problems} == {1, 2, 3, 4, 5}
    assert len({problem.type for problem in problems}) == 7
