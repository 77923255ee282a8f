"""Why a sample is wrong: saved rollouts, and `python -m rlvr_jax.rollouts show`."""

import dataclasses
import gzip
import json
import re

import numpy as np
import pytest

from rlvr_jax.rollouts.__main__ import main
from rlvr_jax.rollouts.graded import GradedCompletion, training_rows
from rlvr_jax.rollouts.show import format_row
from rlvr_jax.run.workdir import rollouts_file
from rlvr_jax.types import Problem, Verdict

PROBLEM = Problem(
    id="a.jsonl:7",
    prompt="Question: 6 * 7\nAnswer:",
    gold="42",
    verifier="math",
    source="a.jsonl",
    level=3,
    type="times",
)


def graded(status, answer=None, *, reason="", text="so 41", band="hard", **fields):
    return GradedCompletion(
        problem=PROBLEM,
        completion=text,
        verdict=Verdict(status=status, reason=reason, answer=answer),
        length=9,
        finished=status == "correct",
        strategy=None,
        weight_version=12,
        band=band,
        **fields,
    )


GROUP = [
    graded("incorrect", "41"),
    graded("correct", "42", text="it is 42"),
    graded("unverified", reason="time limit 5 s"),
    graded(
        "incorrect", reason="no final answer", text="hm\x1b[2J\x07\u202e", band="easy"
    ),
]


def rows(step=4):
    lines = training_rows(
        GROUP,
        step,
        rewards_PG=np.array([[0.0, 1.0], [0.5, -0.25]], np.float32),
        advantages_PG=np.array([[-0.5, 1.5], [0.0, -1.0]], np.float32),
        reward_parts={
            "correctness": np.array([[0.0, 1.0], [0.5, 0.0]]),
            "overlong": np.array([[0.0, 0.0], [0.0, -0.25]]),
        },
    )
    return list(lines)


@pytest.fixture
def workdir(tmp_path):
    """Returns a workdir with two saved training steps and an evaluation."""
    (tmp_path / "rollouts").mkdir()
    save(tmp_path, "train", 0, [rows(0)[0] | {"prompt": "of step 0"}])
    save(tmp_path, "train", 4, rows())
    save(tmp_path, "eval_after", 0, [graded("correct", "42").to_json("eval_after", 0)])
    return tmp_path


def save(workdir, stage, step, lines):
    with gzip.open(rollouts_file(workdir, stage, step), "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def show(capsys, *argv):
    """Returns the command's output, which must succeed."""
    assert main(["show", *map(str, argv)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_a_line_has_gold_answer_reason_and_reward():
    last = rows()[-1]
    assert last["gold"] == "42"
    assert last["answer"] is None
    assert (last["verdict"], last["reason"]) == ("incorrect", "no final answer")
    assert (last["reward"], last["advantage"]) == (-0.25, -1.0)
    assert last["reward_parts"] == {"correctness": 0.0, "overlong": -0.25}
    assert [row["answer"] for row in rows()] == ["41", "42", None, None]
    assert [row["reward"] for row in rows()] == [0.0, 1.0, 0.5, -0.25]


def test_a_single_reward_part_is_shown_once():
    (row,) = training_rows(
        GROUP[:1],
        0,
        rewards_PG=np.zeros((1, 1)),
        advantages_PG=np.zeros((1, 1)),
        reward_parts={"correctness": np.zeros((1, 1))},
    )
    assert "reward_parts" not in row


def test_further_golds_and_the_level_s_name_are_shown():
    named = dataclasses.replace(
        PROBLEM, level_name="so-so", other_golds=("forty-two", "6*7")
    )
    one = dataclasses.replace(graded("correct", "42"), problem=named)
    row = one.to_json("train", 0)
    assert row["other_golds"] == ["forty-two", "6*7"]
    shown = format_row(row)
    assert "band hard, level 3 (so-so), times\n" in shown
    assert "  gold      42 or forty-two or 6*7\n" in shown
    assert not {"other_golds", "level_name"} & set(rows()[0])


def test_a_sample_is_shown_in_full(workdir, capsys):
    out = show(capsys, workdir, "--wrong", "--band=hard")
    assert (
        out
        == """\
train, step 4: 4 completions: 1 correct, 2 incorrect, 1 unverified

problem a.jsonl:7, sample 1, band hard, level 3, times
  incorrect: the answer is not the gold
  gold      42
  answer    41
  earned    reward 0 (correctness 0, overlong 0), advantage -0.5
  length    9 tokens, cut by the limit; by the policy after 12 optimizer steps
  prompt
    | Question: 6 * 7
    | Answer:
  completion
    | so 41

1 of 1 that match
"""
    )


@pytest.mark.parametrize(
    ("flags", "samples"),
    [
        ([], [1, 2, 3, 4]),
        (["--wrong"], [1, 4]),
        (["--correct"], [2]),
        (["--unverified"], [3]),
        (["--wrong", "--unverified"], [1, 3, 4]),
        (["--band=easy"], [4]),
        (["--band=medium"], []),
        (["--correct", "--band=easy"], []),
        (["--problem=a.jsonl:7", "--limit=3"], [1, 2, 3]),
        (["--limit=0"], [1, 2, 3, 4]),
        (["--step=0"], [1]),
        (["--stage=eval_after"], [1]),
    ],
)
def test_flags_choose(workdir, capsys, flags, samples):
    out = show(capsys, workdir, *flags)
    assert [
        int(n) for n in re.findall(r"^problem .*, sample (\d)", out, re.M)
    ] == samples
    assert ("of step 0" in out) == ("--step=0" in flags)


def test_what_the_limit_leaves_out_is_counted(workdir, capsys):
    assert show(capsys, workdir, "--limit=3").endswith(
        "\n3 of 4 that match; --limit=0 shows all of them\n"
    )
    assert "that match" not in show(capsys, workdir, "--limit=4")


def test_an_episode_is_shown_turn_by_turn(workdir, capsys):
    turns = [("policy", "calc(6*7)"), ("environment", "42\x1b"), ("policy", "it is 42")]
    messages = [{"role": role, "text": text} for role, text in turns]
    save(workdir, "train", 4, [rows()[0] | {"messages": messages}])
    out = show(capsys, workdir)
    assert out.endswith(
        "  policy\n    | calc(6*7)\n  environment\n    | 42\\x1b\n"
        "  policy\n    | it is 42\n"
    )
    assert "so 41" not in out


def test_no_character_of_a_policy_moves_the_cursor(workdir, capsys):
    out = show(capsys, workdir, "--band=easy")
    assert r"    | hm\x1b[2J\x07\u202e" in out
    assert all(char.isprintable() or char == "\n" for char in out)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["show"], "WORKDIR missing; expected show WORKDIR (see --help)"),
        (["shwo", "{}"], "no command 'shwo'; did you mean 'show'?"),
        (["show", "{}/nowhere"], "is not a directory; give a run's workdir"),
        (["show", "{}/rollouts"], "holds no rollouts/; give the workdir of a run"),
        (
            ["show", "{}", "--step=3"],
            "no completions of step 3 of stage 'train'; saved are steps 0, 4",
        ),
        (
            ["show", "{}", "--stage=eval"],
            "choose --stage=eval_after, train",
        ),
        (
            ["show", "{}", "--problem=a.jsonl:8"],
            "no problem 'a.jsonl:8' in step 4 of stage 'train', which has 1, such as "
            "'a.jsonl:7'; did you mean 'a.jsonl:7'?",
        ),
        (
            ["show", "{}", "--wrong=yes"],
            "--wrong=yes is not true or false; write --wro",
        ),
        (["show", "{}", "--band=hrad"], "band"),
        (["show", "{}", "--wrng"], "unknown flag '--wrng'; did you mean '--wrong'?"),
        (["show", "{}", "--limit=-1"], "limit"),
    ],
)
def test_bad_input_is_one_line(workdir, capsys, argv, said):
    assert main([arg.format(workdir) for arg in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no gzip", "file is complete"),
        (gzip.compress(b"{}\n" * 9)[:-9], "file is complete"),
        (gzip.compress(b'{"id": 1\n'), "file is complete"),
        (gzip.compress(b"[1]\n"), "line 1: no field 'id'"),
        (gzip.compress(b"\xff\n"), "file is complete"),
    ],
    # gzip stores the time
    ids=["no gzip", "torn", "torn JSON", "no object", "no UTF-8"],
)
def test_a_damaged_file_is_one_line(workdir, capsys, content, said):
    rollouts_file(workdir, "train", 4).write_bytes(content)
    assert main(["show", str(workdir)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_line_of_another_version_is_reported(workdir, capsys):
    old = rows()[0]
    del old["gold"]
    save(workdir, "train", 4, [rows()[0], old])
    assert main(["show", str(workdir)]) == 2
    assert "line 2: no field 'gold'" in capsys.readouterr().err
