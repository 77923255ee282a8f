"""How mathematics is read and judged, and what no item can do to the others."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hostile import hostile_answers

from rlvr_jax.verifiers import exact, math, math_worker
from rlvr_jax.verifiers.math import Item, MathVerifier

DATA = Path(__file__).parents[3] / "shared" / "data"
SLOW = r"\boxed{9^{9^{9}}}"  # 370 million digits


@pytest.fixture(scope="module")
def verifier() -> Iterator[MathVerifier]:
    with MathVerifier(workers=2, timeout_s=60.0) as pool:
        yield pool


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1}, no: \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}} #### 7, the answer is 8", r"\{1,2\}"),
        (r"\boxed{3}, so \boxed{4", "3"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed {\}}", r"\}"),
        (r"{ \boxed{3 and \boxed{4}", "4"),
        (r"\boxed{" * 2000 + "7", "7"),
        ("48/2 = 24\n#### 72", "72"),
        ("#### 1\n#### 2\nQuestion: what is 7?", "2"),
        ("#### 1 The answer is 2", "2"),
        ("The answer is 3.5. It took 4 steps", "3.5"),
        ("The answer is: **$18**.", "$18"),
        ("The final ANSWER IS 42 apples and 3 pears", "42"),
        (r"the answer is $\frac{1}{2}$.", r"$\frac{1}{2}$"),
        (r"the answer is 5\text{ cm}", "5"),
        ("the answer is that Tom has 3 apples", "3"),
        ("the answer is Paris", "Paris"),
        ("so 3 + 4 = 7 apples.", "7"),
        ("10-5", "5"),
        ("x = -5", "-5"),
        ("he paid $1,234.50!", "$1,234.50"),
        ("half, or 1/2 of it", "1/2"),
        ("about 50% of", "50%"),
        ("costs .75", ".75"),
        ("in 1,2,3", "3"),
        ("#### ", ""),
        ("no numbers", ""),
        ("<answer>1</answer> no: <answer> 2\n</answer> or 3", "2"),
        (r"<answer>so \boxed{4}</answer> \boxed{5}", "4"),
        ("<answer>6</answer> <answer>7", "6"),
        ("</answer> <answer>8", "8"),
        ("<answer>" * 2000 + "9</answer>", "9"),
        ("", ""),
    ],
)
def test_the_last_tag_then_box_then_mark_then_number(text, answer):
    assert math_worker.final_answer(text) == answer


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        ("boxed", r"\boxed{1} \boxed{2} #### 3", "2"),
        ("boxed", r"<answer>1</answer>, that is \boxed{2}", "2"),
        ("boxed", "#### 3", ""),
        ("tagged", r"<answer>1</answer> \boxed{2}", "1"),
        ("tagged", r"\boxed{2} #### 3", ""),
    ],
)
def test_a_form_is_the_only_place_that_is_looked_at(form, text, answer):
    assert math_worker.final_answer(text, form) == answer


NUMBERS = [
    ("72", "#### 72.0", "right"),
    ("$1,234.50", "it is 1234.5 dollars", "right"),
    ("18", r"\boxed{18\text{ dollars}}", "right"),
    ("0.75", r"\boxed{\frac34}", "right"),
    ("3/4", "<answer>75%</answer>", "right"),
    ("-5", "the answer is \u22125", "right"),
    ("72", "#### 73", "wrong"),
    ("1/3", "0.333333", "wrong"),
    ("72", r"\boxed{70 + 2}", "wrong"),
    ("72", "none", "wrong"),
    ("72", r"\boxed{x = 72}", "right"),
    ("72", r"\boxed{x + 72}", "wrong"),
    ("72", r"\boxed{\sqrt{72}}", "wrong"),
    ("5", "\u0665", "wrong"),  # an Arabic five
    ("5", r"\boxed{1/0}", "wrong"),
    ("x + 1", "2", "unjudged"),
    ("1/0", "1/0", "unjudged"),
]


def test_numeric_is_equality_of_single_numbers(verifier):
    items = [Item(gold, answer, kind="numeric") for gold, answer, _ in NUMBERS]
    verdicts = verifier.judge_all(items)
    assert [v.status for v in verdicts] == [status for _, _, status in NUMBERS]
    assert verdicts[8].reason == "final answer is no single number"


RIGHT = [
    ("72", "48/2 = 24\n#### 72"),
    ("72", "#### 72.0"),
    ("72", r"\boxed{x=72}"),
    ("72", r"\boxed{72\text{ clips}}"),
    ("1/2", r"\boxed{\frac12}"),
    ("1/2", r"\boxed{\dfrac{2}{4}}"),
    (r"\frac{1}{2}", "the answer is 0.5"),
    ("1/3", "0.333333"),
    (r"50\%", "0.5"),
    ("50%", r"\boxed{50\%}"),
    ("0.1", "10%"),
    ("1,000", "#### 1000"),
    ("1000", r"\boxed{1,\!000}"),
    ("5", "$5"),
    ("5", "+5 or \u22125: the answer is +5"),
    ("-5", "the answer is \u22125"),
    ("x^2", r"\boxed{x^{2}}"),
    ("p - q", r"\boxed{-q+p}"),
    ("2", r"\boxed{\sqrt{4}}"),
    (r"90^\circ", r"\boxed{90}"),
    (r"\left( 3, \frac{\pi}{2} \right)", r"\boxed{(3, \pi/2)}"),
    (r"\text{Evelyn}", r"\boxed{Evelyn}"),
    (r"so \boxed{7}", "7"),
    ("2 + 5\n#### 7", "7"),
]
WRONG = [
    ("72", "#### 73"),
    ("1/2", r"\boxed{\frac12}, or rather \boxed{\frac13}"),
    ("1/3", "0.33"),
    ("x^2", r"\boxed{x^3}"),
    ("5", r"\boxed{}"),
    ("5", "none"),
    ("5", r"\boxed{\frac{1}}"),
    ("5", r"\boxed{((((5}"),
    ("5", "\\boxed{\x00\x1b[2J}"),
    ("5", "\ud800"),
    ("5", r"\boxed{__import__('os').getpid()}"),
    ("5", "the answer is " + "1+" * 300 + "1"),
    ("5", r"\boxed{" + "{" * 20 + "5" + "}" * 20 + "}"),
    ("5", r"\boxed{9^{9^{9^{9}}}}"),
    ("5", r"\boxed{2^{9999999}}"),
]
UNJUDGED = [("((", "(("), ("", "5"), ("  ", "  "), (r"\frac{1", r"\boxed{\frac{1}{2}}")]


@pytest.mark.parametrize(
    ("pairs", "status"), [(RIGHT, "right"), (WRONG, "wrong"), (UNJUDGED, "unjudged")]
)
def test_verdicts(verifier, pairs, status):
    verdicts = verifier.judge_all(pairs)
    assert [
        pair for pair, v in zip(pairs, verdicts, strict=True) if v.status != status
    ] == []


def test_reasons_say_what_could_not_be_read(verifier):
    pairs = [("((", "5"), ("", "5"), ("5", ""), ("5", r"\boxed{\frac{1}}"), ("5", "6")]
    verdicts = verifier.judge_all(pairs)
    assert [v.reason for v in verdicts] == [
        "gold does not parse",
        "gold is empty",
        "no final answer",
        "final answer does not parse",
        "",
    ]
    assert [v.answer for v in verdicts] == [None, None, None, r"\frac{1}", "6"]


def test_order_is_kept_and_nothing_is_lost(verifier):
    pairs = [(str(i), f"#### {i + i % 3}") for i in range(600)]
    statuses = [v.status for v in verifier.judge_all(pairs)]
    assert statuses == ["wrong" if i % 3 else "right" for i in range(600)]


def test_the_end_of_a_very_long_answer_is_read(verifier):
    long = "word " * 200_000
    found, lost = verifier.judge_all([("5", f"{long}#### 5"), ("5", f"#### 5{long}")])
    assert (found.status, lost.status) == ("right", "wrong")
    assert found.reason == "only the last 16384 characters were read"
    assert lost.reason == "no final answer; only the last 16384 characters were read"


def test_threads_may_share_a_verifier(verifier):
    batches = [[(str(i), f"#### {j}") for j in range(40)] for i in range(4)]
    with ThreadPoolExecutor(max_workers=4) as threads:
        for i, verdicts in enumerate(threads.map(verifier.judge_all, batches)):
            assert [v.status == "right" for v in verdicts] == [
                i == j for j in range(40)
            ]


def test_an_item_over_its_limit_is_unjudged_and_no_other_item_notices():
    other = r"\boxed{8^{9^{9}}}"
    answers = ["#### 5", SLOW, other, "#### 6", "#### 5"]
    with MathVerifier(workers=2, timeout_s=1.0) as pool:
        verdicts = pool.judge_all([("5", answer) for answer in answers])
    assert [v.status for v in verdicts] == [
        *("right", "unjudged", "unjudged", "wrong", "right")
    ]
    assert [v.reason for v in verdicts[1:3]] == ["time limit 1 s"] * 2


def test_a_worker_that_stands_still_is_replaced():
    with MathVerifier(workers=1, timeout_s=1.0) as pool:
        pool.judge_all([("5", "#### 5")])
        [stopped] = pool.worker_pids
        os.kill(stopped, signal.SIGSTOP)
        verdicts = pool.judge_all([("5", "#### 5")] * 3)
        assert [v.status for v in verdicts] == ["unjudged", "right", "right"]
        assert pool.worker_pids != [stopped]


def test_a_worker_that_dies_costs_the_item_in_its_hands_only():
    with MathVerifier(workers=1, timeout_s=60.0) as pool:
        verdicts = pool.judge_each([("5", "#### 5"), ("5", SLOW), ("5", "#### 5")])
        assert next(verdicts).status == "right"
        os.kill(*pool.worker_pids, signal.SIGKILL)
        died, after = verdicts
        assert (died.status, died.reason) == ("unjudged", "worker died")
        assert after.status == "right"


def test_a_worker_that_dies_idle_costs_nothing():
    with MathVerifier(workers=1, timeout_s=60.0) as pool:
        pool.judge_all([("5", "#### 5")])
        [pid] = pool.worker_pids
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert [v.status for v in pool.judge_all([("5", "#### 5")] * 2)] == [
            "right"
        ] * 2


def test_verdicts_left_unread_do_not_reach_the_next_call(verifier):
    verdicts = verifier.judge_each([("5", "#### 5")] * 9)
    assert next(verdicts).status == "right"
    verdicts.close()
    assert [v.status for v in verifier.judge_all([("5", "#### 6")] * 9)] == [
        "wrong"
    ] * 9


def test_workers_that_cannot_start_are_an_error_and_no_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr(math, "_WORKER_SCRIPT", tmp_path / "missing.py")
    with (
        MathVerifier(workers=1, timeout_s=1.0) as pool,
        pytest.raises(RuntimeError, match="do not start"),
    ):
        pool.judge_all([("5", "#### 5")])


@pytest.mark.parametrize("count", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_answers_are_judged_one_by_one(count):
    answers = hostile_answers(count, seed=0)
    with MathVerifier(workers=2, timeout_s=2.0) as pool:
        verdicts = pool.judge_all([("5", answer) for answer in answers])
        # The workers at the end are well: nothing that was fed to them lingers.
        assert [v.status for v in pool.judge_all([("5", "5")] * 9)] == ["right"] * 9
    assert len(verdicts) == count
    unjudged = {v.reason.split(";")[0] for v in verdicts if v.status == "unjudged"}
    assert unjudged <= {
        *("time limit 2 s", "worker died", "MemoryError while judging"),
        *("RecursionError while judging", "OverflowError while judging"),
    }


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_worker_cannot_take_more_than_a_gibibyte(verifier):
    verifier.judge_all([("5", "#### 5")])
    limits = [resource.prlimit(p, resource.RLIMIT_AS) for p in verifier.worker_pids]
    assert set(limits) == {(2**30, 2**30)}


def test_a_worker_loads_neither_jax_nor_this_package():
    code = (
        "import runpy, sys; module = runpy.run_path(sys.argv[1]);"
        "print(module['judge']('1/2', '0.5')[0], {'jax', 'rlvr_jax'} & {*sys.modules})"
    )
    command = [sys.executable, "-P", "-c", code, math_worker.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "right set()\n"


@pytest.mark.skipif(not DATA.is_dir(), reason="no ../shared/data with real problems")
def test_worked_solutions_of_real_problems_are_right(verifier):
    gsm8k = _records(DATA / "gsm8k" / "test.jsonl")
    mathematics = _records(DATA / "math500" / "test.jsonl")[:150]
    pairs = [(r["answer"].rpartition("#### ")[2], r["answer"]) for r in gsm8k]
    pairs += [(r["answer"], r["solution"]) for r in mathematics]
    verdicts = verifier.judge_all(pairs)
    assert [
        p for p, v in zip(pairs, verdicts, strict=True) if v.status != "right"
    ] == []


def _records(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("gold", "answer", "form", "status"),
    [
        ("b c", " b c\n", "any", "right"),
        ("b c", "b  c", "any", "wrong"),
        ("1/2", "0.5", "any", "wrong"),
        ("", "", "any", "unjudged"),
        ("b", "a <answer> b </answer> c", "tagged", "right"),
        ("b", "b", "tagged", "wrong"),
        ("b", r"\boxed{b}", "boxed", "right"),
    ],
)
def test_exact_is_equality_of_text(gold, answer, form, status):
    assert exact.judge(gold, answer, form).status == status
