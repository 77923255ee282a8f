"""How mathematics is read and judged, and that no item can affect the others."""

import os
import resource
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.storm.hostile import hostile_answers
from rlvr_jax.types import Problem
from rlvr_jax.verifiers import math_pool, math_worker
from rlvr_jax.verifiers.answers.limits import describe_cost
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.math_pool import MathPool

# Sums for which sympy spends a long time on a closed form.
SLOW = r"\boxed{\sum_{n=1}^{\infty}\frac{1}{n^{99}+1}}"
OTHER_SLOW = SLOW.replace("99", "98")


def _worker_pids(pool: MathPool) -> list[int]:
    return [worker.process.pid for worker in pool._workers]


CASES = r"\begin{cases} x=1 \\ y=2 \end{cases}"
RIGHT = [
    ("72", "48/2 = 24\n#### 72"),
    ("72", "#### 72.0"),
    ("72", r"\boxed{x=72}"),
    ("72", r"\boxed{72\text{ clips}}"),
    ("1/2", r"\boxed{\frac12}"),
    ("1/2", r"\boxed{\dfrac{2}{4}}"),
    (r"\frac{1}{2}", "the answer is 0.5"),
    ("1/3", "0.333333"),
    ("0.0123456789", "0.012346"),
    ("1.325e-27", r"1.3250 \times 10^{-27}"),
    ("-3./2", r"\boxed{-1.5}"),
    ("2y=4x+2", r"\boxed{y=2x+1}"),
    ("E_{1},E_{2}", r"\boxed{E_2, E_1}"),
    (r"\frac{1}{3} E_{1}+\frac{2}{3} E_{2}", r"\boxed{\frac{E_1+2E_2}{3}}"),
    (r"\gamma^{2}-1", r"\boxed{(\gamma-1)(\gamma+1)}"),
    (r"x^\gamma", r"\boxed{x^{\gamma}}"),
    (r"2 L_{\odot}", r"\boxed{L_\odot \cdot 2}"),
    (r"m_{\max }=n^{2}-n", r"\boxed{m_{\text{max}} = n(n-1)}"),
    ("f(x) = c", r"\boxed{f(x)=c}"),
    ("x^2 + c", r"\boxed{c+x^2}"),
    (r"\log_2 6", r"\boxed{1+\log_2 3}"),
    (r"\frac{12}{5,\!525}", r"\boxed{\frac{12}{5525}}"),
    (r"\frac \pi4 + 2", r"\boxed{2+\frac{\pi}{4}}"),
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
    *((text, text) for text in (r"\frac{1}{2}", r"\sqrt{2}", "(1,2)", "A", "abc")),
    *((text, text) for text in (r"\text{A}", r"\pi", "((", "\u6771\u4eac")),
    *((text, rf"\boxed{{{text}}}") for text in ("7" * 2000, r"\frac{1}{0}")),
    (CASES, f" {CASES}\n"),
    ("1/2", r"$\frac{1}{2}$"),
    ("1+x", "x+1"),
    ("1024", "2^{10}"),
    ("5", "so x = 5"),
    ("3/4", "= 3/4"),
    ("1234", "1,234"),
    ("18", "$18"),
    ("1000", r"\boxed{1e3}"),
    ("3/4", r"\boxed{.75}"),
    ("3/2", "1 1/2"),
    ("1/3", r"0.\overline{3}"),
    ("37/30", r"1.2\overline{3}"),
    ("1/2", "\u00bd"),
    ("1/2", "1\u20442"),
    (r"\sqrt{2}", "\u221a2"),
    ("x^2", "x\u00b2"),
    ("90", "90\u00b0"),
    ("12", "3\u00b74"),
    ("123", "\uff11\uff12\uff13"),
    (r"[1,\infty)", "[1, \u221e)"),
    (r"(-\infty,3]\cup[5,7]", "(-\u221e, 3] \u222a [5, 7]"),
    ("-1", r"e^{i\pi}"),
    ("7", r"\boxed{" + "{" * 300 + "7" + "}" * 300 + "}"),
    ("7", r"\boxed{" + r"\left(" * 12 + "7" + r"\right)" * 12 + "}"),
    # 1 + 1/(1 + 1/(1 + ...)), ten deep: a ratio of Fibonacci numbers
    ("144/89", "1+" + r"\frac{1}{1+" * 9 + "1" + "}" * 9 + "+0"),
    ("2,3", r"so \boxed{2} and \boxed{3}."),
    (r"\{-1,4\}", r"$\boxed{4}$, $\boxed{-1}$"),
    ("(2,1),(1,2)", r"\[\boxed{(1, 2)} \quad \text{and} \quad \boxed{(2, 1)}\]"),
    ("x=4,y=5", r"\boxed{x = 4} and \boxed{y = 5}"),
    ("x=4,y=5", r"$x = \boxed{4}$ and $y = \boxed{5}$"),
    (r"\boxed{6} pens and \boxed{8} cups", r"\boxed{6, 8}"),
    ("5", r"\boxed{5}, \boxed{5}"),
    ("1000", "1 000"),
    ("12345678.5", r"\boxed{12\,345\,678.5}"),
    ("1000.99", "1000,99"),
    ("1,22", "1.22"),
    ("0.5", "0,5"),
    ("2.74", "a price of 2,74 $ a piece"),
    ("1000.99", "it costs 1,000.99\u20ac"),
    ("5", "\\boxed{\u00a35}"),
    ("1000.99", "the area is 1,000.99m\u00b2"),
    ("12", r"so the volume is 12\text{ cm}^3"),
    (r"5\text{ cm}", r"\boxed{5\text{ centimeters}}"),
    (r"5\text{ square feet}", r"\boxed{5 \text{ ft}^2}"),
    (r"60\text{ mph}", r"\boxed{60\text{ miles per hour}}"),
    (r"\$5", r"\boxed{5\text{ dollars}}"),
    ("52_8", "52_{8}"),
    ("52_8", "52"),
    (r"1-\frac{1}{\mathrm{e}}", "1-1/e"),
    (r"\frac{50}{3}\%", r"\boxed{16.\overline{6}\%}"),
    ("6:00", r"\boxed{6:00}"),
    ("2", r"\sqrt{2+" * 10 + r"\sqrt{4}" + "}" * 10),  # sqrt(2 + 2) = 2
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
    ("5", r"\boxed{" + "{1+" * 20 + "5" + "}" * 20 + "}"),
    ("2", r"\frac{1}{2}"),
    ("1", "x+1"),
    ("2", r"\sqrt{2}"),
    ("7", r"Final answer: \sqrt{7}"),
    ("2", "(1,2)"),
    ("2", r"2\pi"),
    ("2", "x^2"),
    ("2", "2xy"),
    ("6", "5 or 6"),
    ("6", "the answer is 5 or 6"),
    ("5", "#### 5 or 6"),
    ("5", "1, 2, 3, 4, 5"),
    ("5", "1; 2; 3; 4; 5"),
    ("5", "#### 5; 6"),
    ("6", r"either $5$ or $6$"),
    ("15", "1 2 3 4 5"),  # a sum in the grammar
    ("7", r"so it is \boxed{7"),  # perhaps of 72
    ("5", "5 million"),
    ("5", "the answer is minus 5"),
    ("1/2", "1 1/2"),
    ("3", "1e3"),
    ("0.001", "1/1e3"),
    ("5", r"\boxed{\frac{1}{0}}"),
    ("5", r"\boxed{\frac{1}{1-1}}"),
    ("7" * 2000, "7" * 1999),
    ("5", r"\boxed{9^{9^{9^{9}}}}"),
    ("5", r"\boxed{2^{9999999}}"),
]
UNVERIFIED = [
    ("((", "5"),
    (r"\frac{1}{0}", "5"),
    ("", "5"),
    ("  ", "  "),
    (r"\frac{1", r"\boxed{\frac{1}{2}}"),
]


@pytest.mark.parametrize(
    ("pairs", "status"),
    [(RIGHT, "correct"), (WRONG, "incorrect"), (UNVERIFIED, "unverified")],
)
def test_verdicts(verifier, pairs, status):
    verdicts = verifier.grade_all(pairs)
    assert [
        pair for pair, v in zip(pairs, verdicts, strict=True) if v.status != status
    ] == []


def test_reasons_say_what_could_not_be_read(verifier):
    pairs = [("((", "5"), ("", "5"), ("5", ""), ("5", r"\boxed{\frac{1}}"), ("5", "6")]
    verdicts = verifier.grade_all(pairs)
    assert [v.reason for v in verdicts] == [
        "gold does not parse",
        "gold is empty",
        "no final answer",
        "final answer does not parse",
        "",
    ]
    assert [v.answer for v in verdicts] == [None, None, None, r"\frac{1}", "6"]


def test_order_is_kept_and_nothing_is_lost():
    pairs = [(str(i), f"#### {i + i % 3}") for i in range(600)]
    with MathPool(workers=2, timeout_s=60.0) as pool:
        statuses = [v.status for v in pool.grade_all(pairs)]
    assert statuses == ["incorrect" if i % 3 else "correct" for i in range(600)]


def test_the_end_of_a_very_long_answer_is_read(verifier):
    long = "word " * 200_000
    found, lost = verifier.grade_all([("5", f"{long}#### 5"), ("5", f"#### 5{long}")])
    assert (found.status, lost.status) == ("correct", "incorrect")
    assert found.reason == "only the last 16384 characters were read"
    assert lost.reason == "no final answer; only the last 16384 characters were read"


def test_threads_may_share_a_verifier(verifier):
    batches = [[(str(i), f"#### {j}") for j in range(40)] for i in range(4)]
    with ThreadPoolExecutor(max_workers=4) as threads:
        for i, verdicts in enumerate(threads.map(verifier.grade_all, batches)):
            assert [v.status == "correct" for v in verdicts] == [
                i == j for j in range(40)
            ]


def test_an_answer_over_its_limit_is_incorrect_and_no_other_item_notices():
    """If it were unverified, it would earn its group's mean."""
    answers = ["#### 5", SLOW, OTHER_SLOW, "#### 6", "#### 5"]
    with MathPool(workers=2, timeout_s=1.0) as pool:
        verdicts = pool.grade_all([("5", answer) for answer in answers])
    assert [v.status for v in verdicts] == [
        *("correct", "incorrect", "incorrect", "incorrect", "correct")
    ]
    assert [v.reason for v in verdicts[1:3]] == ["time limit 1 s"] * 2
    assert [v.failure for v in verdicts] == [None, *["time_limit"] * 2, None, None]


def test_what_ran_over_its_limit_is_not_tried_again(monkeypatch):
    """Other words for the same answer hit the cache, or each would start a worker."""
    started = []

    class Counted(math_pool._Worker):
        def __init__(self, timeout_s):
            started.append(self)
            super().__init__(timeout_s)

    monkeypatch.setattr(math_pool, "_Worker", Counted)
    answers = [f"{words} it is {SLOW}" for words in ("So", "Thus", "Hence", "Yes,")]
    with MathPool(workers=1, timeout_s=1.0) as pool:
        verdicts = pool.grade_all([("5", answer) for answer in answers])
        assert {v.reason for v in verdicts} == {"time limit 1 s"}
        assert len(started) == 1
        assert pool.grade_all([("5", "#### 5")])[0].status == "correct"
        # A later batch does not retry it either; another gold makes another question.
        assert pool.grade_all([("5", SLOW)]) == verdicts[:1]
        assert len(started) == 2
        assert pool.grade_all([("6", SLOW)]) == verdicts[:1]
        pool.grade_all([("5", "#### 5")])
        assert len(started) == 3


def test_answers_over_their_limit_take_no_more_than_their_share_of_a_batch():
    """Once the share is spent, only answers that cost nothing are tried."""
    slow = [SLOW.replace("99", str(power)) for power in range(90, 99)]
    items = [("5", answer) for answer in (*slow[:4], "#### 5", "#### 6", slow[4])]
    with MathPool(workers=1, timeout_s=1.0, overdue_s=2.0) as pool:
        verdicts = pool.grade_all(items)
        assert [v.status for v in verdicts] == [
            *("incorrect", "incorrect", "unverified", "unverified"),
            *("correct", "incorrect", "unverified"),
        ]
        reason = "answers of its batch took 2 s over the time limit"
        assert [v.reason for v in verdicts] == [
            *("time limit 1 s", "time limit 1 s", reason, reason, "", "", reason)
        ]
        # The next batch gets a new share.
        assert [v.status for v in pool.grade_all([items[2], items[4]])] == [
            *("incorrect", "correct")
        ]


def test_a_worker_that_an_answer_crashes_makes_it_incorrect(monkeypatch, tmp_path):
    script = tmp_path / "math_worker.py"
    text = Path(math_worker.__file__).read_text(encoding="utf-8")
    crash = "        item = json.loads(line)\n        'x^2' in line and os.abort()\n"
    script.write_text(text.replace("        item = json.loads(line)\n", crash))
    monkeypatch.setattr(math_pool, "_WORKER_SCRIPT", script)
    with MathPool(workers=1, timeout_s=60.0) as pool:
        verdicts = pool.grade_all([("5", r"\boxed{x^2}"), ("5", "5")])
    assert [(v.status, v.reason) for v in verdicts] == [
        *(("incorrect", "worker died"), ("correct", ""))
    ]


@pytest.mark.parametrize(
    ("item", "status"),
    [
        ([r"\frac{1}{2}", r"\boxed{x}"], "incorrect"),
        (["x", r"\boxed{\frac{1}{2}}"], "unverified"),
    ],
)
def test_what_raises_at_the_answer_is_incorrect_and_at_the_gold_unverified(
    monkeypatch, item, status
):
    parse = math_worker._parse_latex

    def parse_no_x(text):
        if text == "x":
            raise RecursionError
        return parse(text)

    monkeypatch.setattr(math_worker, "_parse_latex", parse_no_x)
    reason = "RecursionError while judging"
    assert math_worker._grade_safely(item) == (status, reason, None)


def test_a_stuck_worker_is_replaced():
    with MathPool(workers=1, timeout_s=1.0) as pool:
        pool.grade_all([("5", "#### 5")])
        [stopped] = _worker_pids(pool)
        os.kill(stopped, signal.SIGSTOP)
        verdicts = pool.grade_all([("5", "#### 5")] * 3)
        assert [v.status for v in verdicts] == ["unverified", "correct", "correct"]
        assert _worker_pids(pool) != [stopped]


def test_a_worker_that_dies_costs_the_item_in_its_hands_only():
    with MathPool(workers=1, timeout_s=60.0) as pool:
        verdicts = pool.grade_each([("5", "#### 5"), ("5", SLOW), ("5", "#### 5")])
        assert next(verdicts).status == "correct"
        os.kill(*_worker_pids(pool), signal.SIGKILL)
        died, after = verdicts
        assert (died.status, died.reason) == ("unverified", "worker died")
        assert after.status == "correct"


def test_a_worker_that_dies_idle_costs_nothing():
    with MathPool(workers=1, timeout_s=60.0) as pool:
        pool.grade_all([("5", "#### 5")])
        [pid] = _worker_pids(pool)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert [v.status for v in pool.grade_all([("5", "#### 5")] * 2)] == [
            "correct"
        ] * 2


def test_verdicts_left_unread_do_not_reach_the_next_call(verifier):
    verdicts = verifier.grade_each([("5", "#### 5")] * 9)
    assert next(verdicts).status == "correct"
    verdicts.close()
    assert [v.status for v in verifier.grade_all([("5", "#### 6")] * 9)] == [
        "incorrect"
    ] * 9


def test_workers_that_cannot_start_are_an_error_and_no_verdict(monkeypatch, tmp_path):
    monkeypatch.setattr(math_pool, "_WORKER_SCRIPT", tmp_path / "missing.py")
    with (
        MathPool(workers=1, timeout_s=1.0) as pool,
        pytest.raises(RuntimeError, match="do not start"),
    ):
        pool.grade_all([("5", "#### 5")])


HOSTILE = [
    *(
        r"2^{12!}",
        r"20^{20}!",
        "9!!!!!",
        "33^{33}!!",
        "9^{9^{9}}",
        "{{9^{99}}^{99}}^{99}",
    ),
    *(r"(x+y+z+w)^{999}", r"(x+y+z+w)^{30}", r"((x+y)^{99})^{99}", r"(1+i)^{99999}"),
    r"(\sqrt{2}+\sqrt{3}+\sqrt{5}+\sqrt{7})^{99}",
    *(r"\cos(10^{99999})", r"\binom{10^9}{10^8}", r"\sqrt{10^{9999}+1}", "999999!"),
    *(r"\sum_{n=1}^{10^9} n^n", r"\sum_{k=1}^{99999} \frac{1}{k}"),
    r"\tan(\tan(\tan(\tan(\tan(5)))))",
    "\\begin{vmatrix}"
    + r"\\".join("&".join(f"{row}_{n}" for n in range(6)) for row in "jklmnp")
    + "\\end{vmatrix}",
    r"\frac{1}{1+" * 15 + "1" + "}" * 15,
]


def test_known_ways_to_cost_the_time_limit_are_wrong_and_cost_little():
    """Unverified would earn the group's mean. Each once took over 2 to 6 seconds."""
    with MathPool(workers=2, timeout_s=5.0) as pool:
        verdicts = pool.grade_all([("5", rf"\boxed{{{text}}}") for text in HOSTILE])
    statuses = {t: v.status for t, v in zip(HOSTILE, verdicts, strict=True)}
    assert {t: s for t, s in statuses.items() if s != "incorrect"} == {}


@pytest.mark.parametrize(
    ("text", "is_parsed"),
    [
        *(
            (text, True)
            for text in ("2^{2^{10}}", "10^{1000}", "2023!", "5!!", "x^{99999}")
        ),
        *((text, True) for text in (r"\binom{2023}{1011}", r"2^{1000+1000+1000}")),
        *(
            (text, True)
            for text in (r"\frac{1}{2^{99}}", "x^{y^{z}}", "90^\\circ", "1!!!!")
        ),
        *(
            (text, True)
            for text in (r"\sum_{n=1}^{\infty} 2^{-n}", "^", "_", "((", "}")
        ),
        *((text, True) for text in ("1^{99999}", r"\sum_{k=1}^{9999} k", "2^{-99}")),
        *(
            (text, False)
            for text in ("10^{20001}", "2^3^4^5^6", r"\frac{1}{10^{99999}}")
        ),
        *(
            (text, False)
            for text in ("x^{2^{9^{9}}}", r"\prod_{k=1}^{10001} k", "9999!")
        ),
    ],
)
def test_expensive_answers_are_recognized_by_their_text(text, is_parsed):
    assert (describe_cost(text) == "") is is_parsed


@pytest.mark.parametrize(
    "count", [200, pytest.param(10_000, marks=pytest.mark.exhaustive)]
)
def test_hostile_answers_are_judged_one_by_one(count):
    answers = hostile_answers(count, seed=0)
    with MathPool(workers=2, timeout_s=2.0) as pool:
        verdicts = pool.grade_all([("5", answer) for answer in answers])
        # Afterwards the workers are healthy: nothing from these inputs lingers.
        assert [v.status for v in pool.grade_all([("5", "5")] * 9)] == ["correct"] * 9
    assert len(verdicts) == count
    # On a crowded machine even a plain number may time out.
    unverified = {v.reason.split(";")[0] for v in verdicts if v.status == "unverified"}
    assert unverified <= {"time limit 2 s"}


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_worker_cannot_take_more_than_a_gibibyte(verifier):
    verifier.grade_all([("5", "#### 5")])
    limits = [resource.prlimit(p, resource.RLIMIT_AS) for p in _worker_pids(verifier)]
    assert set(limits) == {(2**30, 2**30)}


def test_a_worker_does_not_load_jax_or_its_dependents():
    code = (
        "import runpy, sys; module = runpy.run_path(sys.argv[1]);"
        "print(module['grade']('1/2', '0.5')[0], *{'jax', 'numpy'} & {*sys.modules},"
        "*[name for name in sys.modules if name.startswith('rlvr_jax.verifiers.')"
        " and not name.startswith('rlvr_jax.verifiers.answers')])"
    )
    command = [sys.executable, "-P", "-c", code, math_worker.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "correct\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("1+" * 300 + "1", "is not parsed: over 500 characters"),
        ("{1+" * 20 + "5" + "}" * 20, "is not parsed: brackets over 12 deep"),
        ("2^{9^{9}}", "is not parsed: a number with over 20000 digits"),
        (r"\sum_{k=1}^{99999} k", "is not parsed: a sum with over 10000 terms"),
        (
            r"\det\begin{pmatrix}" + r"a & b & c & d & f \\" * 5 + r"\end{pmatrix}",
            "is not parsed: a determinant over 4 by 4",
        ),
        (
            "2^{9999999}",
            "is not parsed: a tower of powers, or an exponent with six digits",
        ),
    ],
)
def test_answers_over_our_limits_are_wrong_and_say_so(verifier, answer, reason):
    """Unverified would earn the group's mean, and a policy would learn to write it."""
    mine, as_gold = verifier.grade_all([("5", rf"\boxed{{{answer}}}"), (answer, "5")])
    assert (mine.status, mine.reason) == ("incorrect", f"final answer {reason}")
    assert (as_gold.status, as_gold.reason) == ("unverified", f"gold {reason}")


@pytest.mark.parametrize(
    ("gold", "answer", "form", "status"),
    [
        ("b c", " b c\n", "any", "correct"),
        ("b c", "b  c", "any", "incorrect"),
        ("1/2", "0.5", "any", "incorrect"),
        ("", "", "any", "unverified"),
        ("b", "a <answer> b </answer> c", "tagged", "correct"),
        ("b", "b", "tagged", "incorrect"),
        ("b", r"\boxed{b}", "boxed", "correct"),
    ],
)
def test_exact_is_equality_of_text(gold, answer, form, status):
    problem = Problem(
        id="p",
        prompt="",
        gold=gold,
        verifier="exact",
        source="test",
        answer_format=form,
    )
    assert get_verifier("exact").grade(problem, answer).status == status
