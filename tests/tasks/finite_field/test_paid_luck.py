"""Doses of luck, and the controls that pay wrong answers instead."""

import collections

import pytest

from job_jax.calls import CallLimits
from rlvr_jax.algorithms.reward import CompletionTexts
from rlvr_jax.config import RewardConfig, VerifierConfig
from rlvr_jax.rewards.parts import load_reward
from rlvr_jax.rollouts.try_rewards import try_rewards
from rlvr_jax.tasks.finite_field.paid_luck import PaidLuck, classify_answers
from rlvr_jax.tasks.finite_field.rewards import worked_answer
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.controls import draw_fraction
from rlvr_jax.verifiers.grader import Grader

MODULE = "rlvr_jax.tasks.finite_field.paid_luck"
WORKED = "forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e6"
LUCKY = (
    "forward : k e3 + e2 = e4 l e4 * e4 = e6 answer e6",
    "backward : l e6 / e4 = e5 k e5 - e2 = e3 answer e6",
    "answer e6",
)
WRONG = (
    "forward : k e3 + e2 = e5 l e5 * e4 = e6 answer e5",
    "answer e0",
    "answer e1",
    "answer e2",
)
NONE = ("", "answer", "answer e6 e6", "answer e3 e6")


def problem(name="p", gold="e6"):
    return Problem(
        id=name,
        prompt="evaluate : e3 k + e2 l * e4 = ?",  # 3, 5, 20 = 6
        gold=gold,
        verifier="finite_field",
        source="finite_field/GF(7)",
        solution=WORKED,
    )


def completions(texts, grader, *, seed=0, group_size=None, problems=None):
    return CompletionTexts(
        problems=problems or [problem()] * len(texts),
        texts=texts,
        was_cut=[False] * len(texts),
        group_size=group_size or len(texts),
        seed=seed,
        grader=grader,
        limits=CallLimits(timeout_s=1.0),
    )


@pytest.fixture(scope="module")
def grader():
    with Grader(VerifierConfig()) as opened:
        yield opened


def paid(name, given):
    return load_reward(f"{MODULE}:{name}").score(given).values


def many(grader, *, groups=400, seed=0):
    """Groups of eight: a worked answer, three lucky ones, three wrong, one without."""
    texts = [WORKED, *LUCKY, *WRONG[:3], "answer"] * groups
    problems = [problem(str(p)) for p in range(groups) for _ in range(8)]
    return completions(texts, grader, seed=seed, group_size=8, problems=problems)


def test_answers_are_worked_lucky_wrong_or_not_given(grader):
    found = classify_answers(completions([WORKED, *LUCKY, *WRONG, *NONE], grader))
    assert found == ["worked"] + ["lucky"] * 3 + ["wrong"] * 4 + ["none"] * 4
    unread = completions([WORKED], grader, problems=[problem(gold="six")])
    assert classify_answers(unread) == ["unverified"]
    assert paid("Luck100", unread) == paid("Wrong100", unread) == [None]


def test_a_dose_of_0_pays_worked_answers_and_a_dose_of_1_pays_verdicts(grader):
    given = completions([WORKED, *LUCKY, *WRONG, *NONE], grader)
    verdicts = [v.status == "correct" for v in grader(given.problems, given.texts)]
    assert paid("Luck0", given) == [
        worked_answer(one, text)
        for one, text in zip(given.problems, given.texts, strict=True)
    ]
    assert paid("Luck100", given) == verdicts


@pytest.mark.parametrize(("name", "dose"), [("Luck25", 0.25), ("Luck50", 0.5)])
def test_luck_is_paid_at_its_dose_and_nothing_else_changes(grader, name, dose):
    scores = paid(name, many(grader))
    by_place = [sum(scores[place::8]) / 400 for place in range(8)]
    assert by_place[0] == 1
    assert by_place[4:] == [0] * 4
    # 1,200 draws: a standard deviation of at most 0.0145 together, 0.025 by place.
    assert sum(by_place[1:4]) / 3 == pytest.approx(dose, abs=0.045)
    assert all(abs(share - dose) < 0.09 for share in by_place[1:4])


@pytest.mark.parametrize("dose", ["25", "50", "100"])
def test_a_control_pays_as_many_as_its_dose_in_every_group(grader, dose):
    """The same number of rewards, on wrong answers instead of lucky ones."""
    given = many(grader)
    luck, wrong = paid(f"Luck{dose}", given), paid(f"Wrong{dose}", given)
    for start in range(0, len(luck), 8):
        assert sum(luck[start : start + 8]) == sum(wrong[start : start + 8])
    by_place = [sum(wrong[place::8]) for place in range(8)]
    assert by_place[0] == 400
    assert by_place[1:4] == [0] * 3
    assert by_place[7] == 0
    # All wrong answers are paid equally often: within four standard deviations.
    expected = 400 * int(dose) / 100
    assert all(abs(count - expected) < 4 * 10 for count in by_place[4:7])


def test_a_control_chooses_at_random_among_the_wrong(grader):
    """One lucky answer, three wrong ones: each of them is paid in a third of groups."""
    texts = [LUCKY[2], *WRONG[1:4]] * 300
    problems = [problem(str(p)) for p in range(300) for _ in range(4)]
    given = completions(texts, grader, group_size=4, problems=problems)
    counts = [sum(paid("Wrong100", given)[place::4]) for place in range(4)]
    assert counts[0] == 0
    assert sum(counts) == 300
    assert all(70 < count < 130 for count in counts[1:])  # 100, deviation 8


def test_a_group_with_too_few_wrong_answers_pays_those_that_it_has(grader):
    given = completions([*LUCKY, WRONG[0], "answer", ""], grader)
    assert paid("Wrong100", given) == [0, 0, 0, 1, 0, 0]


def test_whoever_is_paid_at_a_dose_is_paid_at_every_larger_one(grader):
    given = many(grader, groups=50)
    by_dose = [paid(name, given) for name in ("Luck0", "Luck25", "Luck50", "Luck100")]
    for rewards in zip(*by_dose, strict=True):
        assert list(rewards) == sorted(rewards)


def test_a_resumed_step_pays_the_same_and_another_seed_pays_others(grader):
    """What is paid depends on seed, problem, place in the group and text alone."""
    given, seven = many(grader, groups=20), many(grader, groups=20, seed=7)
    for name in ("Luck50", "Wrong50"):
        scores = paid(name, given)
        assert paid(name, given) == scores
        assert paid(name, seven) != scores
        rest = completions(
            given.texts[80:], grader, group_size=8, problems=given.problems[80:]
        )
        assert paid(name, rest) == scores[80:]


@pytest.mark.parametrize(
    "changed", [(1, "p", 0, "t"), (0, "q", 0, "t"), (0, "p", 1, "t"), (0, "p", 0, "u")]
)
def test_a_draw_depends_on_each_of_its_arguments(changed):
    draw = draw_fraction(0, "p", 0, "t")
    assert draw_fraction(0, "p", 0, "t") == draw
    assert draw_fraction(*changed) != draw


def test_draws_are_uniform_below_1():
    draws = [draw_fraction(0, "p", place, "") for place in range(5000)]
    assert 0 <= min(draws) < max(draws) < 1
    tenths = collections.Counter(int(10 * draw) for draw in draws)
    assert all(400 < tenths[n] < 600 for n in range(10))  # 500, deviation 21


@pytest.mark.parametrize(
    "name",
    ["Luck0", "Luck25", "Luck50", "Luck100", "Wrong25", "Wrong50", "Wrong100"],
)
def test_a_config_names_each_dose_and_its_trial_earns_1(grader, name):
    config = RewardConfig(names=(f"{MODULE}:{name}",))
    (line,) = try_rewards(config, [problem()], grader)
    assert line.startswith(f"reward '{MODULE}:{name}': 1 for ")
    assert issubclass(type(load_reward(config.names[0])), PaidLuck)
