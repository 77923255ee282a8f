"""A custom reward is checked before a run: its signature, and one call of it."""

import math
import sys
import types

import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import RewardConfig
from rlvr_jax.main import main
from rlvr_jax.rollouts.try_rewards import returns_nothing, try_rewards
from rlvr_jax.types import Problem

PROBLEMS = [
    Problem(
        id=name,
        prompt="?",
        gold="4",
        verifier="math",
        source="test",
        solution=solution,
        fields={"lo": 3},
    )
    for name, solution in (("a", None), ("b", "so 4"))
]
ONE = "write f(problem, completion), which returns a number, or f("


@pytest.fixture
def named(monkeypatch):
    """Returns a config whose only reward is the given function."""

    def make(function, weight=1.0, **settings):
        module = types.ModuleType("mine")
        module.f = function
        monkeypatch.setitem(sys.modules, "mine", module)
        return RewardConfig(names=("mine:f",), weights=(weight,), **settings)

    return make


def f(completion, problem):
    return 1.0


class Scorer:
    """Scores, as an object."""

    def __call__(self, problem, completion):
        return 1.0


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        (f, "f(completion, problem)"),
        (lambda problem: 1.0, "<lambda>(problem)"),
        (lambda problem, completion, gold: 1.0, "<lambda>(problem, completion, gold)"),
        (lambda problem, *, completion: 1.0, "<lambda>(problem, *, completion)"),
        (lambda completions, **columns: [1.0], "<lambda>(completions, **columns)"),
        (lambda completions, answer: [1.0], "<lambda>(completions, answer)"),
        (
            lambda prompts, completions, **_: [1.0],
            "<lambda>(prompts, completions, **_)",
        ),
        (lambda: 1.0, "<lambda>()"),
    ],
)
def test_a_wrong_signature_is_refused_in_the_config(named, function, shown):
    with pytest.raises(ConfigError) as refused:
        named(function)
    assert str(refused.value).startswith(f"reward 'mine:f' is {shown}; {ONE}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("thing", "kind"), [(Scorer, "class"), (3, "int"), ("text", "str")]
)
def test_what_cannot_be_called_is_refused(named, thing, kind):
    with pytest.raises(ConfigError, match=rf"'mine:f' is not a function \(a {kind}\);"):
        named(thing)


async def one_async(problem, completion):
    return 1.0


@pytest.mark.parametrize(
    ("function", "score"),
    [
        (lambda problem, completion: True, "1"),
        (lambda problem, completion, strict=False: np.float32(0.5), "0.5"),
        (lambda problem, completion, **more: np.array(1), "1"),
        (lambda *_: [2, 0.0], "2"),
        (lambda problems, completions: np.array([1, 2]), "1"),
        (lambda prompts, completions: (None, math.nan, 1)[1:], "no opinion"),
        (lambda problem, completion: problem.fields["lo"], "3"),
        (one_async, "1"),
        (Scorer(), "1"),
    ],
)
def test_rewards_by_the_protocol_pass_with_their_first_score(named, function, score):
    (line,) = try_rewards(named(function), PROBLEMS)
    trial = repr(r"\boxed{4}")
    assert line == f"reward 'mine:f': {score} for {trial}, the gold of problem 'a'"


def test_a_worked_solution_is_not_called_correct(named):
    (line,) = try_rewards(named(lambda problem, completion: 1), PROBLEMS[1:])
    assert line == "reward 'mine:f': 1 for 'so 4', the worked solution of problem 'b'"


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda problem, completion: completion.index("4"), "ValueError: substring no"),
        (lambda problem, completion: completion and 1, "returned '' (a str), which"),
        (
            lambda problems, completions: [c.index("4") for c in completions],
            "ValueError: substring not found",
        ),
    ],
)
def test_a_reward_that_fails_on_an_empty_completion_is_warned_of(
    named, function, reason
):
    _, line = try_rewards(named(function), PROBLEMS)
    begins = f"warning: reward 'mine:f' fails on an empty completion ({reason}"
    assert line.startswith(begins)


def test_each_is_called_once_on_correct_completions(named):
    calls = []

    def one(problem, completion):
        calls.append((problem.id, completion))
        return 1.0

    def step(problems, completions):
        calls.extend(zip([p.id for p in problems], completions, strict=True))
        return [1.0] * len(problems)

    try_rewards(named(one), PROBLEMS)
    try_rewards(named(step), PROBLEMS)
    try_rewards(named(step), PROBLEMS[1:])
    assert [call for call in calls if call[1]] == [
        ("a", "\\boxed{4}"),
        ("a", "\\boxed{4}"),
        ("b", "so 4"),
        *[("b", "so 4")] * 2,
    ]
    builtin = RewardConfig(names=("correctness", "format"), weights=(1.0, 1.0))
    assert try_rewards(builtin, []) == []


def raises(problem, completion):
    return problem.fields["low"]


def forgets(problem, completion):
    completion.split()


async def forgets_async(problem, completion):
    completion.split()


def forgets_all(problems, completions):
    _ = [1.0 for _ in problems]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda problem, completion: {"a": 1}, "returned {'a': 1} (a dict), which is"),
        (
            lambda problem, completion: "1",
            "returned '1' (a str), which is not a finite",
        ),
        (lambda problem, completion: [1], "returned [1] (a list), which is not a fini"),
        (lambda problem, completion: np.ones(1), "returned array([1.]) (a ndarray), "),
        (lambda problem, completion: math.inf, "returned inf, which is not a finite "),
        (lambda problem, completion: 1e39, "returned 1e+39, which is not a finite nu"),
        (lambda problem, completion: 10**400, "returned 1000"),
        (lambda p, c: {"a": 1, "b": 2}, "returned {'a': 1, 'b': 2} (a dict), which is"),
        (lambda p, c: {1.0, 2.0}, "returned {1.0, 2.0} (a set), which is not a list"),
        (lambda p, c: "10", "returned '10' (a str), which is not a list of scores"),
        (lambda p, c: 1.0, "returned 1.0, which is not a list of scores"),
        (lambda p, c: np.float64(1), "returned an array of shape (), which is not [B]"),
        (lambda p, c: np.ones((2, 1)), "returned an array of shape (2, 1), which is "),
        (lambda p, c: [[1.0], [2.0]], "returned [1.0] (a list), which is not a finite"),
        (lambda p, c: [1.0, "2"], "returned '2' (a str), which is not a finite number"),
        (lambda p, c: (x for x in [1.0, 2.0]), "returned <generator object "),
        (lambda p, c: [1.0], "returned 1 scores for 2 completions; return one for"),
        (lambda p, c: [1.0] * 3, "returned 3 scores for 2 completions; return one for"),
        (forgets_all, "returned None, which is not a list of scores, tried on problem"),
        (forgets, "returned None, and has no other return; it must return a finite"),
        (
            forgets_async,
            "returned None, and has no other return; it must return a fini",
        ),
        (
            raises,
            "raised KeyError: 'low', tried on problem 'a'; the fields of problem 'a' "
            "are lo (task.record.extra_fields=*,NAME adds",
        ),
        (lambda problem, completion: 1.1e18, "returned 1.1e+18, whose square float32"),
    ],
)
def test_what_is_not_a_score_is_refused_in_one_line(named, function, reason):
    with pytest.raises(ConfigError) as refused:
        try_rewards(named(function), PROBLEMS)
    assert str(refused.value).startswith(f"reward 'mine:f' {reason}")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("score", [None, math.nan])
def test_no_opinion_on_a_correct_completion_is_a_warning(named, score):
    config = named(lambda problem, completion: score if completion else 1.0)
    *_, warning = try_rewards(config, PROBLEMS)
    assert warning.startswith("warning: reward 'mine:f' has no opinion (None or NaN) ")


@pytest.mark.parametrize(
    ("score", "weight", "warns"),
    [
        (1e4, 1.0, False),
        (-1e4, 1.0, False),
        (10001.0, 1.0, True),
        (-10001.0, 1.0, True),
        (10001.0, 1e-6, True),
        (1e3, 11.0, True),
        (1e18, 1.0, True),
    ],
)
def test_large_rewards_are_a_warning(named, score, weight, warns):
    config = named(lambda problem, completion: score, weight)
    _, *warnings = try_rewards(config, PROBLEMS)
    assert ["float32 loses differences" in line for line in warnings] == [True] * warns


def test_a_slow_first_call_is_a_warning(named):
    def hangs(problem, completion):
        while True:
            pass

    (warning,) = try_rewards(named(hangs, timeout_s=0.05), PROBLEMS)
    assert "took longer than train.reward.timeout_s=0.05 on problem 'a'" in warning


def test_a_missing_return_is_told_from_no_opinion():
    assert returns_nothing(forgets)
    assert returns_nothing(lambda p, c: None)
    assert not returns_nothing(lambda p, c: 1.0)
    assert not returns_nothing(lambda p, c: None if c else 1.0)
    assert not returns_nothing(lambda p, c: p)
    assert not returns_nothing(max)


@pytest.mark.parametrize("mode", ["--dry_run", "--workdir={}/run"])
def test_the_command_refuses_before_it_works(tmp_path, monkeypatch, capsys, mode):
    """Nothing is written, and the line names the function and its value."""
    (tmp_path / "bad_score.py").write_text("def f(problem, completion):\n return '1'\n")
    monkeypatch.syspath_prepend(tmp_path)
    settings = {"train.reward.names": "bad_score:f", "mesh.cpu_devices": 8}
    flags = [f"--config.{name}={value}" for name, value in settings.items()]
    assert main(["--config=smoke", mode.format(tmp_path), *flags]) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("error: reward 'bad_score:f' returned '1' (a str), which is")
    assert not (tmp_path / "run/config.json").exists()
