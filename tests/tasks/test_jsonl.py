"""Word problems from JSON lines: what a line becomes, and what is refused."""

import json
from pathlib import Path

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import JsonLinesConfig
from rlvr_jax.tasks.jsonl import JsonLinesSource
from rlvr_jax.types import Problem

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"
CLIPS = {
    "question": "48 clips in April, half as many in May. How many?",
    "answer": "She sold 48/2 = <<48/2=24>>24 in May.\nIn all <<48+24=72>>72.\n#### 72",
}


def _file(folder: Path, *lines: object) -> Path:
    path = folder / "problems.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def test_a_line_of_gsm8k_becomes_a_problem(tmp_path):
    source = JsonLinesSource(JsonLinesConfig(), _file(tmp_path, "", CLIPS, CLIPS))
    assert len(source) == 2
    assert source[0] == Problem(
        id="problems.jsonl:2",
        prompt="Question: 48 clips in April, half as many in May. How many?\nAnswer:",
        gold="72",
        kind="math",
        source="problems.jsonl",
        solution="She sold 48/2 = 24 in May.\nIn all 72.\n#### 72",
    )


def test_the_gold_follows_the_last_marker(tmp_path):
    line = CLIPS | {"answer": "#### 1\nno, wait\n####  1,072 "}
    [problem] = JsonLinesSource(JsonLinesConfig(), _file(tmp_path, line))
    assert problem.gold == "1,072"
    assert problem.solution == "#### 1\nno, wait\n#### 1,072"


def test_other_layouts_are_a_matter_of_config(tmp_path):
    config = JsonLinesConfig(
        prompt_field="problem",
        answer_field="gold",
        answer_marker="",
        prompt_template="{x} {prompt}",
    )
    path = _file(tmp_path, {"problem": "{y}?", "gold": r" \frac{1}{2}", "level": 5})
    [problem] = JsonLinesSource(config, path)
    assert problem.prompt == "{x} {y}?"
    assert problem.gold == r"\frac{1}{2}"
    assert problem.solution is None


def test_an_exact_solution_is_the_gold_alone(tmp_path):
    config = JsonLinesConfig(verifier="exact")
    [problem] = JsonLinesSource(config, _file(tmp_path, CLIPS))
    assert (problem.kind, problem.solution) == ("exact", "72")


def test_grain_tells_files_apart_by_their_contents(tmp_path):
    one = repr(JsonLinesSource(JsonLinesConfig(), _file(tmp_path, CLIPS)))
    two = repr(JsonLinesSource(JsonLinesConfig(), _file(tmp_path, CLIPS, CLIPS)))
    again = repr(JsonLinesSource(JsonLinesConfig(), _file(tmp_path, CLIPS)))
    assert one == again != two


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON at column 2 .*; write one JSON object a line"),
        ("[1]", r"\[1\] is no JSON object"),
        (
            {"Question": "q", "answer": "#### 1"},
            "no field 'question'; set task.prompt_field; did you mean 'Question'",
        ),
        ({"question": "q"}, "no field 'answer'; set task.answer_field"),
        (CLIPS | {"answer": 72}, "'answer' is 72, not text; put it in quotes"),
        (CLIPS | {"question": " "}, "'question' is empty"),
        (CLIPS | {"answer": "#### "}, "no gold in 'answer'"),
        (CLIPS | {"answer": "72"}, "'answer' holds no '####' before the gold; set"),
        (CLIPS | {"question": "\ud800"}, "holds half a character"),
        ("[" * 100_000, "recursion"),
    ],
)
def test_a_bad_line_is_named_by_number_and_mend(tmp_path, line, complaint):
    path = _file(tmp_path, CLIPS, CLIPS, line, CLIPS)
    with pytest.raises(ConfigError, match=rf"problems\.jsonl, line 3: .*{complaint}"):
        JsonLinesSource(JsonLinesConfig(), path)


def test_bytes_that_are_no_utf8_are_refused(tmp_path):
    path = tmp_path / "latin1.jsonl"
    path.write_bytes(json.dumps(CLIPS).encode() + b'\n{"question": "caf\xe9"}')
    with pytest.raises(ConfigError, match=r"line 2: not UTF-8 at byte 18"):
        JsonLinesSource(JsonLinesConfig(), path)


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_an_empty_file_is_refused(tmp_path, content):
    with pytest.raises(ConfigError, match=r"problems\.jsonl is empty"):
        JsonLinesSource(JsonLinesConfig(), _file(tmp_path, content))


@pytest.mark.parametrize("name", ["", "missing.jsonl"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match=r"cannot read .*; check task\.train_path"):
        JsonLinesSource(JsonLinesConfig(), tmp_path / name)


@pytest.mark.skipif(not GSM8K.is_dir(), reason="no ../shared/data/gsm8k")
@pytest.mark.parametrize(("split", "count"), [("train", 7473), ("test", 1319)])
def test_gsm8k_is_read_whole(split, count):
    source = JsonLinesSource(JsonLinesConfig(), GSM8K / f"{split}.jsonl")
    assert len(source) == count
    for problem in source:
        assert problem.solution is not None
        assert problem.solution.endswith(f"\n#### {problem.gold}")
        assert "<<" not in problem.solution
