"""The command `python -m rlvr_jax.verify`, from outside."""

import json
import signal
import subprocess
import sys

import pytest

from rlvr_jax import verify

COMMAND = [sys.executable, "-m", "rlvr_jax.verify"]


def _item(answer: str, *, gold: str = "5", kind: str = "math", **more: object) -> str:
    return json.dumps({"kind": kind, "gold": gold, "answer": answer, **more})


def _run(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *args], input=stdin, capture_output=True, check=False
    )


_SLOW = r"\boxed{\sum_{n=1}^{\infty}\frac{1}{n^{99}+1}}"
LINES = [
    (_item(r"\boxed{10/2}", id=[7]), "correct", ""),
    (_item("#### 6"), "incorrect", ""),
    (_item("5", gold="(("), "unverified", "gold does not parse"),
    (_item("5", gold="\ud800"), "unverified", "gold does not parse"),
    ("nope", "unverified", "line 5: not JSON at column 1 (Expecting value)"),
    ("", "unverified", "line 6: not JSON at column 1 (Expecting value)"),
    ("[1]", "unverified", "line 7: not a JSON object"),
    (_item("b", gold="b ", kind="exact"), "correct", ""),
    (_item("go answer e3", gold="e3", kind="finite_field"), "correct", ""),
    (
        _item("5", kind="maths"),
        "unverified",
        "line 10: unknown kind 'maths'; did you mean 'math'?",
    ),
    (
        json.dumps({"kind": "math", "golds": "5", "answer": "5"}),
        "unverified",
        "line 11: no field 'gold'; rename 'golds'",
    ),
    (
        json.dumps({"kind": "math", "gold": [5], "answer": "5"}),
        "unverified",
        "line 12: 'gold' is neither text nor a number; write a line for each",
    ),
    (_item(_SLOW), "incorrect", "time limit 1 s"),
    ('{"x": NaN}', "unverified", "line 14: not JSON (NaN is not a JSON number)"),
    ("[" * 100_000, "unverified", None),
    (_item("#### 5"), "correct", ""),
    (_item("5 apples", kind="numeric"), "correct", ""),
    (_item("#### 5", format="boxed"), "incorrect", "no final answer"),
    (
        _item("<answer>b</answer>", gold="b", kind="exact", format="tagged"),
        "correct",
        "",
    ),
    (
        _item("5", format="box"),
        "unverified",
        "line 20: unknown format 'box'; did you mean 'boxed'?",
    ),
    ('{"kind": "math", "gold": 3, "answer": 3.0}', "correct", ""),
    ('{"kind": "numeric", "gold": 3.5, "answer": "7/2"}', "correct", ""),
    (
        '{"kind": "math", "gold": true, "answer": "1"}',
        "unverified",
        "line 23: 'gold' is neither text nor a number",
    ),
    (
        '{"kind ": "math", "gold": "3", "answer": "3"}',
        "unverified",
        "line 24: no field 'kind'; rename 'kind '",
    ),
    (
        '{"kind": "math", "gold": "3", "answer": "3", "answer_format": "boxed"}',
        "unverified",
        "line 25: no field 'answer_format'; did you mean 'format'?",
    ),
    (
        '{"kind": "math", "gold": ["3", "4"], "answer": "3"}',
        "unverified",
        "line 26: 'gold' is neither text nor a number; write a line for each",
    ),
]


def test_every_line_is_answered_in_order_with_all_that_it_held():
    stdin = "\n".join(line for line, _, _ in LINES).encode() + b"\n\xff\xff"
    command = [*COMMAND, "--timeout_s=1", "--workers=1"]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    *outputs, not_utf8 = map(json.loads, done.stdout.splitlines())
    for (line, verdict, reason), output in zip(LINES, outputs, strict=True):
        assert output["verdict"] == verdict, line
        assert reason in (output["reason"], None), line
        held = json.loads(line) if line.startswith('{"kind') else {}
        assert output == held | {"verdict": verdict, "reason": output["reason"]}
    assert not_utf8["reason"].startswith("line 27: not JSON ('utf-8' codec")


def test_a_line_without_a_kind_is_told_the_kinds():
    line = b'{"answer": "3", "gold": "3", "id": 1}\n'
    done = json.loads(_run(stdin=line).stdout)
    assert done["reason"] == (
        "line 1: no field 'kind'; the kinds are code, exact, math, numeric, "
        "finite_field"
    )


def test_a_byte_order_mark_before_the_first_line_is_no_part_of_it():
    line = _item("a", gold="a", kind="exact").encode() + b"\n"
    done = _run(stdin=b"\xef\xbb\xbf" + line + b"\xef\xbb\xbf" + line)
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["verdict"] == "correct"
    assert second["reason"].startswith("line 2: not JSON")


def test_an_interrupt_ends_it_quietly():
    # Background jobs of a shell ignore interrupts; this gate may be one of them.
    hearing = "import runpy, signal; signal.signal(2, signal.default_int_handler);"
    hearing += "runpy.run_module('rlvr_jax.verify', run_name='__main__')"
    with subprocess.Popen(
        [COMMAND[0], "-c", hearing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdin.write(_item("#### 5").encode() + b"\n")
        run.stdin.flush()
        assert json.loads(run.stdout.readline())["verdict"] == "correct"
        run.send_signal(signal.SIGINT)
        assert run.wait(timeout=60) == 130
        assert run.stderr.read() == b""


def test_an_answer_does_not_wait_for_the_end_of_input():
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for answer, verdict in (("#### 5", "correct"), ("#### 6", "incorrect")):
            run.stdin.write(_item(answer).encode() + b"\n")
            run.stdin.flush()
            assert json.loads(run.stdout.readline())["verdict"] == verdict
        run.stdin.close()
        assert run.stdout.read() == b""
        assert run.wait() == 0


def test_a_caller_may_write_everything_before_it_reads():
    count = 5_000  # 500 kB a side, several times what a pipe holds
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        for i in range(count):
            line = _item("a", gold="a", kind="exact", id=i, padding="x" * 50)
            run.stdin.write(line.encode() + b"\n")
        run.stdin.close()
        assert [json.loads(line)["id"] for line in run.stdout] == list(range(count))


def test_a_reader_may_leave_early():
    with subprocess.Popen(
        COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdin is not None
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        run.stdin.write(_item("#### 5").encode() + b"\n")
        run.stdin.flush()
        assert run.wait() == 0
        assert run.stderr.read() == b""


@pytest.mark.parametrize(
    ("argument", "complaint"),
    [
        ("--worker=2", "unknown flag '--worker'; did you mean '--workers'?"),
        ("--workers=0", "workers=0; it must be at least 1"),
        ("--timeout_s=-1", "timeout_s=-1.0; it must be positive"),
        ("--timeout_s=soon", "--timeout_s expects a finite float, got 'soon'"),
        ("file.jsonl", "unexpected argument 'file.jsonl'; the lines go to stdin"),
    ],
)
def test_bad_usage_is_one_clear_line_and_exit_2(capsys, argument, complaint):
    assert verify.main([argument]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert complaint in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_names_every_kind_and_flag(capsys, flag):
    with pytest.raises(SystemExit) as ended:
        verify.main([flag])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert "(default: 5.0)" in printed
    assert "False" not in printed
    for word in (
        "math",
        "numeric",
        "exact",
        "finite_field",
        "tagged",
        "--workers",
        "--timeout_s",
        "unverified",
    ):
        assert word in printed
