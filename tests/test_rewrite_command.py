"""The command `python -m rlvr_jax.rewrite`: its files and its messages."""

import json

import pytest

from rlvr_jax import rewrite
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.files import load_file_source

CLIPS = {
    "question": "She sold 48 clips and 3 more than that. How many clips in all?",
    "answer": "Then <<48+3=51>>51.\nIn all <<48+51=99>>99.\n#### 99",
}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [CLIPS | {"question": f"Girl {n}. {CLIPS['question']}"} for n in "abcdefgh"]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_written_lines_read_as_problems_with_lineage(source, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    assert rewrite.main([f"--in={source}", f"--out={out}"]) == 0
    report = capsys.readouterr().out
    assert "number tokens       16, two templates each: 32 rewrites" in report
    assert "    29  over the fraction" in report
    assert "written             8 problems, 3 rewrites (27.3%)" in report
    config = RecordConfig(id_field="id", parent_field="parent")
    problems = list(load_file_source(config, out))
    assert [problem.parent for problem in problems[:8]] == [None] * 8
    for problem, line in zip(problems[8:], _lines(out)[8:], strict=True):
        assert problem.parent == problem.id.rpartition("-")[0].rpartition("-")[0]
        assert problem.gold in ("48", "3")
        assert (line["parent_gold"], line["check"]) == ("99", "verified")


def test_a_share_of_one_writes_only_rewrites(source, tmp_path):
    out = tmp_path / "out.jsonl"
    args = [f"--in={source}", f"--out={out}", "--fraction=1", "--first=2"]
    assert rewrite.main(args) == 0
    lines = _lines(out)
    assert len(lines) == 8
    assert {line["template"] for line in lines} == {"condition", "appended"}


def test_unverified_rewrites_can_be_left_out(tmp_path, capsys):
    path, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    path.write_text(json.dumps({"question": "Is 5 odd?", "answer": "#### 1"}))
    args = [f"--in={path}", f"--out={out}", "--fraction=1", "--verified_only"]
    assert rewrite.main(args) == 0
    assert "2  not verified: no calculator annotations" in capsys.readouterr().out
    assert _lines(out) == []


def test_a_seed_chooses_the_same_rewrites_again(source, tmp_path):
    outs = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for out, seed in zip(outs, (0, 0, 1), strict=True):
        rewrite.main([f"--in={source}", f"--out={out}", f"--seed={seed}"])
    assert outs[0].read_text() == outs[1].read_text() != outs[2].read_text()


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        ([], "--in is missing: the file of problems"),
        (["--in=a.jsonl", "--out=b"], "cannot read the data file 'a.jsonl'"),
        (["--in=a", "--out=./a"], "are both a"),
        (["--fraction=2"], "fraction"),
        (["--shar=1"], "unknown flag '--shar'"),
        (["x"], "unexpected argument 'x'"),
    ],
)
def test_bad_usage_is_one_clear_line_and_exit_2(capsys, args, complaint):
    assert rewrite.main(args) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert complaint in printed.err


def test_help_names_every_flag(capsys):
    with pytest.raises(SystemExit, match="0"):
        rewrite.main(["--help"])
    printed = capsys.readouterr().out
    for word in (
        "--in",
        "--fraction",
        "--verified_only",
        "--answer_prefix",
        "parent_gold",
    ):
        assert word in printed


def _difficulty(workdir, bands):
    workdir.mkdir()
    lines = [
        {"id": f"in.jsonl:{n}", "band": "easy", "initial": {"band": band}}
        for n, band in bands.items()
    ]
    (workdir / "difficulty.jsonl").write_text("\n".join(map(json.dumps, lines)))


def test_only_problems_that_a_run_found_hard_are_asked_backward(
    source, tmp_path, capsys
):
    _difficulty(tmp_path / "run", {1: "hard", 2: "medium", 5: "hard"})
    out = tmp_path / "out.jsonl"
    args = [f"--in={source}", f"--out={out}", "--fraction=1"]
    assert rewrite.main([*args, f"--difficulty={tmp_path / 'run'}"]) == 0
    assert {line["parent"] for line in _lines(out)} == {"in.jsonl:1", "in.jsonl:5"}
    assert capsys.readouterr().out.startswith("problems            2\n")
    medium = ["--bucket=medium", f"--difficulty={tmp_path / 'run'}"]
    assert rewrite.main([*args, *medium]) == 0
    assert {line["parent"] for line in _lines(out)} == {"in.jsonl:2"}


def test_a_run_on_other_problems_is_refused(source, tmp_path, capsys):
    out, run = tmp_path / "out.jsonl", tmp_path / "run"
    args = [f"--in={source}", f"--out={out}", f"--difficulty={run}"]
    assert rewrite.main(args) == 2
    assert "difficulty.num_samples > 0" in capsys.readouterr().err
    _difficulty(run, {})
    (run / "difficulty.jsonl").write_text(
        json.dumps({"id": "other:1", "initial": {"band": "hard"}})
    )
    assert rewrite.main(args) == 2
    error = capsys.readouterr().err
    assert "it knows 'other:1', but the file has 'in.jsonl:1'" in error
    assert not out.exists()
