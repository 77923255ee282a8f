"""The judge over kinds and forms, the audit of golds, and verdicts on real golds."""

import asyncio
import io
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_jax.calls import CallError, CallLimits
from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.base import VERIFIERS, Verifier, get_verifier
from rlvr_jax.verifiers.built_in.exact import Exact
from rlvr_jax.verifiers.controls import coin_flip, corrupt_gold
from rlvr_jax.verifiers.grader import Grader
from rlvr_jax.verifiers.lines import grade_lines

PROBLEMS = Path(__file__).parents[1] / "problems"


@pytest.fixture(scope="module")
def judge() -> Iterator[Grader]:
    with Grader(VerifierConfig(workers=1, timeout_s=60.0)) as judge:
        yield judge


def _problem(gold: str, kind: str = "math", form: str = "any", name: str = "a"):
    return Problem(
        id=name, prompt="", gold=gold, verifier=kind, source="test", answer_format=form
    )


def test_every_kind_and_form_keeps_its_place(judge):
    asked = [
        (_problem("1/2"), "so 0.5", "correct"),
        (_problem("e3", "finite_field"), "answer e3", "correct"),
        (_problem("5", "numeric", "tagged"), "<answer>5 cm</answer>", "correct"),
        (_problem("b", "exact"), "b", "correct"),
        (_problem("5", "math", "boxed"), "#### 5", "incorrect"),
        (_problem("((", "math"), "5", "unverified"),
    ]
    verdicts = judge(
        [problem for problem, _, _ in asked], [text for _, text, _ in asked]
    )
    assert [verdict.status for verdict in verdicts] == [
        status for _, _, status in asked
    ]


STATED = "<confidence>0.8</confidence>"


@pytest.mark.parametrize(
    ("kind", "form", "text"),
    [
        ("math", "any", f"so 72\n{STATED}"),  # otherwise the last formula is 0.8
        ("math", "any", f"{STATED} it is 72"),
        ("math", "any", "72 <Confidence> 90% </Confidence>"),
        ("math", "any", "72 <confidence>0.8"),  # cut short by the length limit
        ("numeric", "any", f"the answer is 72 {STATED}."),
        ("math", "boxed", rf"\boxed{{72}} {STATED}"),
        ("numeric", "tagged", f"<answer>72{STATED}</answer>"),
        ("exact", "any", f"72\n{STATED}"),
    ],
)
def test_a_stated_confidence_is_no_part_of_the_answer(judge, kind, form, text):
    (verdict,) = judge([_problem("72", kind, form)], [text])
    assert verdict.status == "correct"
    (other,) = judge([_problem("0.8", kind, form)], [text])
    assert other.status == "incorrect"


@pytest.mark.parametrize(
    "text", ["72, with confidence", "<confident>72</confident>", "confidence level 72"]
)
def test_words_that_state_no_confidence_stay(judge, text):
    (verdict,) = judge([_problem(text, "exact")], [text])
    assert verdict.status == "correct"


def test_golds_that_cannot_be_judged_against_are_named(judge):
    problems = [
        _problem("5", name="good"),
        _problem("((", name="bad"),
        _problem("x", "numeric", name="letter"),
        _problem(r"so \boxed{7}", "math", "tagged", name="worked"),
        _problem("b c", "exact", "boxed", name="words"),
        _problem("e1", "finite_field", name="field"),
    ]
    assert judge.invalid_golds(problems) == {
        "bad": "gold does not parse",
        "letter": "gold is not a single number",
    }


class Bare(Verifier):
    """A verifier of a user, who did not expect the gold in a box."""

    def grade(self, problem, completion):
        status = "correct" if completion == problem.gold else "incorrect"
        return Verdict(status=status)


def test_a_verifier_that_refuses_the_gold_is_told_how_it_was_written(judge):
    name = f"{__name__}:Bare"
    assert judge.invalid_golds([_problem("5", name, name="bare")]) == {
        "bare": r"it finds '\\boxed{5}' wrong, which is how state_gold writes the gold"
    }


@pytest.mark.parametrize(
    ("gold", "fault"),
    [
        ("The answer is twelve apples because I ate none", "its answer ('because')"),
        ("12, since each box holds 4", "explains its answer ('since')"),
        ("Each of the four children gets 12", "is a sentence (6 words in a row)"),
        ("12, and he was left with none of them", "(7 words in a row)"),
        ("twelve", "is a number in words"),
        ("Twenty-five", "is a number in words"),
        (r"\text{one hundred and two}", "is a number in words"),
    ],
)
def test_a_gold_that_is_equal_to_itself_alone_is_a_fault(judge, gold, fault):
    """No policy could ever give an equal answer."""
    assert fault in judge.invalid_golds([_problem(gold, name="prose")])["prose"]
    # `exact` compares text, and `numeric` compares numbers.
    assert judge.invalid_golds([_problem(gold, "exact", name="text")]) == {}


@pytest.mark.parametrize(
    "gold",
    [
        "The answer is 12, because 3 * 4 = 12.",  # marked, and 12 without the rest
        r"Since 3 * 4 = 12 it is \boxed{12}.",
        "twelve apples",
        "two lines",
        r"\text{Alice, Bob, Carol, Dave, Eve and Frank}",
        "all real numbers but 3 and 5",
        "the set of all integers",
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"12 \text{ inches per minute}",
        r"5\text{ hours and }30\text{ minutes and }10\text{ seconds}",
        "therefore",
        "(A)",
    ],
)
def test_a_short_text_is_a_gold(judge, gold):
    assert judge.invalid_golds([_problem(gold)]) == {}


def test_a_custom_verifier_may_find_faults(judge, monkeypatch):
    told = "gold is odd"
    monkeypatch.setattr(Exact, "describe_gold_fault", lambda *_: told)
    problems = [_problem("a", "exact", name="x"), _problem("5", name="fine")]
    assert judge.invalid_golds(problems) == {"x": told}


@pytest.mark.parametrize(
    ("name", "gold"),
    [
        ("gsm8k", lambda r: r["answer"].rpartition("#### ")[2]),
        ("math500", lambda r: r["answer"]),
    ],
)
def test_real_golds_are_right_against_themselves_and_wrong_when_changed(
    judge, name, gold
):
    lines = (PROBLEMS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    problems = [
        _problem(gold(json.loads(line)), name=str(number))
        for number, line in enumerate(lines)
    ]
    assert len(problems) == 50
    assert judge.invalid_golds(problems) == {}
    changed = [rf"\boxed{{{corrupt_gold(problem).gold}}}" for problem in problems]
    verdicts = judge(problems, changed)
    assert [
        (problem.gold, answer, verdict)
        for problem, answer, verdict in zip(problems, changed, verdicts, strict=True)
        if verdict.status != "incorrect"
    ] == []


@pytest.mark.parametrize(
    ("gold", "kind", "label"),
    [
        ("72", "math", "82"),
        ("9.5", "numeric", "8.5"),
        (r"\frac 59", "math", r"\frac 69"),
        ("x", "math", "1"),
        (r"2 + 2, so \boxed{4}", "math", "5"),
        ("e0", "finite_field", "e1"),
        ("e10", "finite_field", "e9"),
    ],
)
def test_a_wrong_label_is_false_and_always_the_same(gold, kind, label):
    assert corrupt_gold(_problem(gold, kind)).gold == label


def test_a_coin_is_fair_and_a_function_of_seed_problem_and_sample():
    tosses = [
        coin_flip(seed, f"p{n}", g)
        for seed in (0, 1)
        for n in range(100)
        for g in range(10)
    ]
    assert 0.45 < sum(tosses) / len(tosses) < 0.55  # 2,000 tosses: std 0.011
    assert tosses[:1000] != tosses[1000:]
    assert coin_flip(3, "a", 1) == coin_flip(3, "a", 1)


@pytest.mark.parametrize(
    ("kind", "form", "text", "formed"),
    [
        ("math", "any", "#### 5", True),
        ("math", "any", "it is 5", False),
        ("math", "boxed", r"\boxed{5}", True),
        ("math", "boxed", r"\boxed{ }", False),
        ("math", "boxed", "#### 5", False),
        ("numeric", "tagged", "<answer>no</answer>", True),
        ("numeric", "tagged", "<answer>5", False),
        ("exact", "any", "word", True),
        ("exact", "any", " ", False),
        ("finite_field", "any", "forward : answer e3 ", True),
        ("finite_field", "any", "answer e3 ;", False),
        ("finite_field", "any", "answer forward", False),
        ("finite_field", "any", "", False),
    ],
)
def test_form_is_apart_from_truth(kind, form, text, formed):
    problem = _problem("7", kind, form)
    assert get_verifier(kind).is_well_formed(problem, text) is formed


def test_every_registered_verifier_is_one():
    for name in VERIFIERS.names:
        assert isinstance(get_verifier(name), Verifier)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("maths", "unknown verifier 'maths'; did you mean 'math'"),
        ("", "unknown verifier ''"),
        ("fractions:Fraction", "is not a subclass of rlvr_jax.verifiers.base.Verifier"),
    ],
)
def test_an_unknown_verifier_is_refused_and_judged_by_no_other(judge, name, message):
    with pytest.raises(ConfigError, match=message):
        judge([_problem("e3", name)], ["answer e3"])


def test_the_command_verify_has_no_judge():
    line = b'{"kind": "judge", "gold": "1", "answer": "1"}'
    (graded,) = grade_lines(io.BytesIO(line), VerifierConfig())
    assert graded["verdict"] == "unverified"
    assert graded["reason"].startswith("line 1: unknown kind 'judge'")


class Moody(Verifier):
    """A verifier that does what the completion says."""

    def grade(self, problem, completion):
        if completion == "raise":
            raise KeyError("mood")
        while completion == "hang":
            pass
        return completion if completion == "text" else Verdict(status="correct")


class AsyncMoody(Verifier):
    """The async version; at most ten at a time, for at most 0.4 seconds each."""

    limits = CallLimits(timeout_s=0.4, concurrency=10)

    async def grade(self, problem, completion):
        if completion == "hang":
            await asyncio.Event().wait()
        return Moody().grade(problem, completion)


@pytest.fixture
def moods(monkeypatch):
    module = types.ModuleType("moods")
    module.Moody, module.AsyncMoody = Moody, AsyncMoody
    monkeypatch.setitem(sys.modules, "moods", module)
    get_verifier.cache_clear()
    with Grader(VerifierConfig(timeout_s=0.5)) as grader:
        yield grader


@pytest.mark.parametrize(
    ("kind", "limit"), [("moods:Moody", "0.5 s"), ("moods:AsyncMoody", "0.4 s")]
)
def test_a_custom_verifier_that_hangs_or_raises_leaves_an_item_unverified(
    moods, capsys, kind, limit
):
    texts = ["hang", "", "raise", "text", ""]
    for _ in range(2):
        verdicts = moods([_problem("1", kind)] * 5, texts)
    assert [(v.status, v.failure) for v in verdicts] == [
        ("unverified", "time_limit"),
        ("correct", None),
        ("unverified", "error"),
        ("unverified", "error"),
        ("correct", None),
    ]
    assert [v.reason for v in verdicts] == [
        *(f"time limit {limit}", "", "KeyError: 'mood'"),
        *("returned 'text', which is not a Verdict", ""),
    ]
    assert capsys.readouterr().err.splitlines() == [  # only the first, once
        f"verifier {kind!r}: time limit {limit} (problem a); such completions count "
        "as unverified; only the first is shown"
    ]


def test_a_verifier_that_always_raises_ends_the_run_in_one_line(moods):
    problems = [_problem("1", "moods:Moody"), *[_problem("e1", "finite_field")] * 2]
    moods(problems, ["raise", "", ""])  # a single item may be at fault itself
    with pytest.raises(CallError) as raised:
        moods(problems * 2, ["raise", "answer e1", "answer e1"] * 2)
    assert str(raised.value) == (
        "verifier 'moods:Moody' failed on all of 2 completions; the first: KeyError: "
        "'mood'; the fields of problem 'a' are none (task.record.extra_fields=*,NAME "
        "adds one that a setting reads)"
    )


class Counted:
    """A resource that verifiers share; it counts what happened to it."""

    made = 0
    closed = 0

    def __init__(self):
        Counted.made += 1

    def close(self):
        Counted.closed += 1


class Opened(Verifier):
    """Opened with settings and a shared resource; it grades whole batches."""

    def __init__(self, settings=None, closed=None):
        self.settings, self.closed, self.batches = settings, [], []

    def open(self, session):
        session.share("counted", Counted)
        return type(self)(session.config.timeout_s)

    def grade(self, problem, completion):
        raise NotImplementedError

    def grade_batch(self, items, limits):
        self.batches.append([text for _, text in items])
        return [Verdict(status="correct", reason=f"{self.settings}")] * len(items)

    def close(self):
        self.closed.append(True)


class OpenedToo(Opened):
    pass


def test_a_verifier_is_opened_once_a_grader_shares_and_is_closed(moods, monkeypatch):
    sys.modules["moods"].Opened, sys.modules["moods"].OpenedToo = Opened, OpenedToo
    monkeypatch.setattr(Counted, "made", 0)
    monkeypatch.setattr(Counted, "closed", 0)
    one, other = _problem("1", "moods:Opened"), _problem("1", "moods:OpenedToo")
    with Grader(VerifierConfig(timeout_s=0.75)) as grader:
        assert Counted.made == 0  # nothing is opened before it is needed
        verdicts = grader([one, other, one], ["a", "b", "c"])
        grader([one], ["d"])
        opened = grader.open_verifier("moods:Opened")
    assert [verdict.reason for verdict in verdicts] == ["0.75"] * 3
    assert opened.batches == [["a", "c"], ["d"]]
    assert (Counted.made, Counted.closed, opened.closed) == (1, 1, [True])
    with Grader(VerifierConfig(timeout_s=0.5)) as grader:
        assert grader.open_verifier("moods:Opened") is not opened
        assert grader.open_verifier("moods:Opened").settings == 0.5


def test_golds_that_ones_own_verifier_raises_on_are_named(moods, monkeypatch):
    def grade(self, problem, completion):
        right = bool(completion) and 1 / int(problem.gold) > 0
        return Verdict(status="correct" if right else "incorrect")

    monkeypatch.setattr(Moody, "grade", grade)
    golds = {"good": "1", "zero": "0"}
    problems = [_problem(gold, "moods:Moody", name=n) for n, gold in golds.items()]
    assert moods.invalid_golds(problems) == {
        "zero": "ZeroDivisionError: division by zero"
    }


def test_a_custom_verifier_grades_next_to_ours(judge, monkeypatch, tmp_path):
    (tmp_path / "my_verifiers.py").write_text(
        "from rlvr_jax.types import Verdict\n"
        "from rlvr_jax.verifiers.base import Verifier\n"
        "class Length(Verifier):\n"
        "    def grade(self, problem, completion):\n"
        "        right = len(completion) == int(problem.gold)\n"
        "        return Verdict(status='correct' if right else 'incorrect')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    problems = [_problem("3", "my_verifiers:Length"), _problem("3", "math")] * 2
    verdicts = judge(problems, ["abc", "3", "3", "abc"])
    assert [v.status for v in verdicts] == [
        *("correct", "correct", "incorrect", "incorrect")
    ]
