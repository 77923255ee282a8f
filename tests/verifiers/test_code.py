"""The verifier `code`: which text is the program, golds, and verdicts."""

import dataclasses

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import VerifierConfig
from rlvr_jax.sandbox import system_calls
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.built_in.code import Code, CodeTests, extract_program
from rlvr_jax.verifiers.controls import corrupt_gold

TESTS = CodeTests(tests="assert f(1) == 2\nassert f(3) == 4", functions=("f",))


def _problem(gold: str = TESTS.to_gold(), solution: str | None = None) -> Problem:
    return Problem(
        id="p", prompt="", gold=gold, verifier="code", source="t", solution=solution
    )


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("x = 1", "x = 1"),
        ("", ""),
        ("```python\nx = 1\n```", "x = 1\n"),
        ("```python\r\nx = 1\r\n```", "x = 1\r\n"),
        ("```\nx\n``` no:\n```py\ny\n```\nso", "y\n"),
        ("Here:\n```python\nx = 1", "x = 1"),  # cut short by the length limit
        ("`x` and ```y```", "`x` and ```y```"),
    ],
)
def test_the_last_block_is_the_program_or_else_the_whole_text(completion, program):
    assert extract_program(completion) == program


def test_verdicts_by_program():
    with Code() as verifier:
        good, bad = "def f(x): return x + 1", "def f(x): return x + 2"
        completions = [
            good,
            bad,
            "",
            f"```\n{good}\n```",
            f"```\n{good}\n```\n```\n{bad}\n```",
        ]
        found = verifier.grade_batch([(_problem(), text) for text in completions])
        assert [v.status for v in found] == [
            *("correct", "incorrect", "incorrect", "correct", "incorrect")
        ]
        assert found[0].answer == found[3].answer == good
        assert found[2].answer is None
        assert found[1].reason == "AssertionError at 'assert f(1) == 2'; f returned 3"


@pytest.mark.parametrize(
    ("body", "tight", "wide", "reason"),
    [
        (
            "    import time\n    while time.process_time() < 1.5: pass",
            {"code_cpu_s": 1},
            {"code_cpu_s": 4},
            "over the limit of 1 s of CPU",
        ),
        (
            "    bytearray(300 << 20)",
            {"code_memory_mb": 200},
            {"code_memory_mb": 500},
            "MemoryError at 'assert f(1) == 2'",
        ),
    ],
)
def test_settings_limit_a_programs_seconds_and_memory(body, tight, wide, reason):
    program = f"def f(x):\n{body}\n    return x + 1"
    with Code(VerifierConfig(**tight)) as verifier:
        verdict = verifier.grade(_problem(), program)
    assert (verdict.status, verdict.reason) == ("incorrect", reason)
    with Code(VerifierConfig(**wide)) as verifier:
        assert verifier.grade(_problem(), program).status == "correct"


def test_a_completion_continues_the_prefix():
    gold = dataclasses.replace(TESTS, prefix="def f(x):\n").to_gold()
    with Code() as verifier:
        for text in ("    return x + 1", "    pass\ndef f(x): return x + 1"):
            assert verifier.grade(_problem(gold), text).status == "correct"


def test_a_gold_may_be_python_whose_unbound_names_are_the_programs():
    gold = "import math\ndef check(g):\n    assert g(1) == abs(-2)\nk = 3\ncheck(f)\n"
    gold += "assert math.isclose(h(k), 3.0)"
    assert CodeTests.from_gold(gold) == CodeTests(tests=gold, functions=("f", "h"))


@pytest.mark.parametrize(
    ("gold", "reason"),
    [
        ("assert f(", "gold is not valid Python at its line 1"),
        ('{"tests": "assert f(1)"}', "gold has no tests ('functions')"),
        ('{"functions": [], "test": ""}', "gold has no tests"),
    ],
)
def test_a_gold_that_cannot_be_read_is_unverified(gold, reason):
    with Code() as verifier:
        verdict = verifier.grade(_problem(gold), "def f(x): return 1")
    assert verdict.status == "unverified"
    assert reason in verdict.reason


def test_a_wrong_label_fails_the_solution():
    solution = "def f(x): return x + 1"
    false = corrupt_gold(_problem())
    assert CodeTests.from_gold(false.gold).tests.endswith("assert f(3) == 5")
    with Code() as verifier:
        assert verifier.grade(_problem(), solution).status == "correct"
        assert verifier.grade(false, solution).status == "incorrect"


def test_form_is_a_program_at_all():
    verifier = get_verifier("code")
    assert verifier.is_well_formed(_problem(), "def f(:")
    assert not verifier.is_well_formed(_problem(), "```python\n \n```")
    assert verifier.find_mark(_problem(), r"\boxed{1}") is None
    assert verifier.state_gold(_problem(solution="x")) == "x"


def test_a_machine_without_a_jail_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(system_calls.platform, "system", lambda: "Darwin")
    with Code() as verifier:
        for act in (verifier.check_ready, lambda: verifier.grade(_problem(), "x")):
            with pytest.raises(ConfigError, match="needs Linux on"):
                act()
