"""Rewards as classes: ours, one file each, and a user's through the same door."""

import math
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.calls import CallLimits
from job_jax.config_io import override
from job_jax.schema import ConfigError
from rlvr_jax import pipeline
from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.config import Config, RewardConfig, VerifierConfig
from rlvr_jax.config.rewards import REWARDS
from rlvr_jax.rewards.function import FunctionReward
from rlvr_jax.rewards.parts import (
    judged_completions,
    load_reward,
    reward_parts,
    verifiers_of_rewards,
)
from rlvr_jax.rollouts import scores as scores_module
from rlvr_jax.rollouts.scores import score_completions
from rlvr_jax.rollouts.try_rewards import try_rewards
from rlvr_jax.run.checks import check_new_run
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.grader import Grader

PROBLEMS = [
    Problem(id=name, prompt="", gold=gold, verifier="exact", source="test")
    for name, gold in (("a", "3"), ("a", "3"), ("b", "4"), ("b", "4"))
]
TEXTS = ["3", "3", "3", "9"]
RIGHT = jnp.array([[True, False], [False, True]])
VERIFIED = jnp.array([[True, True], [True, False]])


class Votes(Reward):
    """A user's reward: how many completions of the step say the same."""

    def score(self, completions: CompletionTexts) -> Scores:
        texts = completions.texts
        return Scores([float(texts.count(text)) for text in texts])


class Strict(Votes):
    """A user's verdict, which has no opinion on "9"."""

    is_verdict = True

    def score(self, completions):
        return Scores([None if text == "9" else 1.0 for text in completions.texts])

    def to_rewards(self, scores, correct, verified):
        return jnp.where(jnp.isnan(scores), -5.0, scores + jnp.where(correct, 1, 0))


class Asks(Votes):
    """A user's reward that scores with the judge."""

    verifiers = ("judge",)


class Short(Reward):
    def score(self, completions):
        return Scores([1.0])


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    module = types.ModuleType("votes_of_a_user")
    for kind in (Votes, Strict, Asks, Short, Raises, ReturnsAList, Huge, Infinite):
        setattr(module, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "votes_of_a_user", module)


def scored(name):
    config = RewardConfig(names=(name,))
    with Grader(VerifierConfig()) as grader:
        return score_completions(
            config, PROBLEMS, TEXTS, judge=grader, seed=0, group_size=2
        ).values[name]


def test_a_users_class_scores_a_step():
    assert scored("votes_of_a_user:Votes").tolist() == [3, 3, 3, 1]


def test_all_processes_take_the_scores_of_the_first(monkeypatch):
    """A class may score otherwise in each, as a service does."""
    told = []

    def broadcast(read):
        told.append(read())
        return [7.0, None, math.nan, 0.5]

    monkeypatch.setattr(scores_module, "broadcast", broadcast)
    np.testing.assert_array_equal(
        scored("votes_of_a_user:Votes"), [7, math.nan, math.nan, 0.5]
    )
    assert told == [[3, 3, 3, 1]]


def test_a_users_class_says_what_its_scores_are_worth():
    name = "votes_of_a_user:Strict"
    scores = jnp.asarray(scored(name)).reshape(2, 2)
    config = RewardConfig(names=(name,))
    parts = reward_parts(RIGHT, VERIFIED, {name: scores}, config=config)
    np.testing.assert_array_equal(parts[name], [[2, 1], [1, -5]])


def test_a_users_verdict_decides_who_is_judged():
    """Without a verdict one opinion is enough; with it, all verdicts must agree."""
    strict, votes = "votes_of_a_user:Strict", "votes_of_a_user:Votes"
    scores = {
        strict: jnp.array([[1, math.nan], [1, 1]]),
        votes: jnp.array([[math.nan, 1], [1, 1]]),
    }
    config = RewardConfig(names=(votes, strict), weights=(1.0, 1.0))
    found = judged_completions(VERIFIED, scores, config=config)
    np.testing.assert_array_equal(found, [[True, False], [True, True]])
    config = RewardConfig(names=("correctness", strict), weights=(1.0, 1.0))
    found = judged_completions(VERIFIED, scores, config=config)
    np.testing.assert_array_equal(found, [[True, False], [True, False]])


def test_scores_that_are_none_are_refused():
    with pytest.raises(ConfigError, match="returned 1 scores for 4 completions"):
        scored("votes_of_a_user:Short")
    with pytest.raises(ConfigError, match="returned inf, which is not a finite number"):
        scored("votes_of_a_user:Infinite")


class Raises(Reward):
    def score(self, completions):
        raise KeyError(completions.problems[0].gold)


class ReturnsAList(Reward):
    def score(self, completions):
        return [1.0] * len(completions.texts)


class Huge(Reward):
    def score(self, completions):
        return Scores([1e6] * len(completions.texts))


class Infinite(Reward):
    def score(self, completions):
        return Scores([1.0, math.inf, *completions.texts[2:]])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "'votes_of_a_user:Raises' raised KeyError: '3', tried on problem"),
        ("ReturnsAList", "returned [1.0, 1.0] for 2 texts; `score` must return Scores"),
        ("Short", "returned 1 scores for 2 completions; return one for each"),
        ("Infinite", "returned inf, which is not a finite number; return a finite"),
    ],
)
def test_a_class_that_cannot_score_is_refused_before_the_run(name, message):
    config = RewardConfig(names=(f"votes_of_a_user:{name}",))
    with pytest.raises(ConfigError) as refused:
        try_rewards(config, PROBLEMS)
    assert message in str(refused.value)


def test_a_class_that_can_score_is_tried_unless_it_is_huge():
    for name, score in (("Votes", 2), ("Strict", 1)):
        config = RewardConfig(names=(f"votes_of_a_user:{name}",))
        (line,) = try_rewards(config, PROBLEMS)
        assert line.startswith(
            f"reward 'votes_of_a_user:{name}': {score} for '3', the gold of "
        )
    _, warning = try_rewards(RewardConfig(names=("votes_of_a_user:Huge",)), PROBLEMS)
    assert "is as large as 1e+06" in warning


def test_every_one_of_ours_is_a_class_and_a_function_becomes_one():
    for name in REWARDS.names:
        assert type(load_reward(name)) is REWARDS.load(name)
    assert isinstance(load_reward("math:pow"), FunctionReward)


@pytest.mark.parametrize("name", REWARDS.names)
def test_only_verdicts_leave_the_unverified_unjudged(name):
    """A part that scores everything judges everything, unless it is a verdict."""
    config = RewardConfig(names=(name,))
    scores = {} if name == "correctness" else {name: jnp.ones((2, 2))}
    judged = judged_completions(VERIFIED, scores, config=config)
    reads_verdicts = name in ("correctness", "confidence")
    np.testing.assert_array_equal(judged, VERIFIED if reads_verdicts else True)


def test_a_judge_is_asked_before_a_run_and_nothing_else_is(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "rlvr_jax.verifiers.judge.JudgeVerifier.check_ready",
        lambda self: asked.append(True),
    )
    judge = {"judge.url": "http://x/v1", "judge.model": "m"}
    for name in (*REWARDS.names, "votes_of_a_user:Asks", "votes_of_a_user:Votes"):
        names = {"train.reward.names": name, "task.ask_confidence": "true"}
        config = override(Config(), judge | names)
        pipeline._check_rewards_ready(config)
        assert asked == ([True] if name in ("judge", "votes_of_a_user:Asks") else [])
        asked.clear()


def test_a_users_reward_may_score_with_the_judge():
    judge = {"judge.url": "http://x/v1", "judge.model": "m"}
    names = {"train.reward.names": "votes_of_a_user:Asks"}
    config = override(Config(), judge | names)
    assert verifiers_of_rewards(config.train.reward) == {"judge"}
    check_new_run(config, {}, ["exact"])
    other = override(config, {"train.reward.names": "votes_of_a_user:Votes"})
    with pytest.raises(ConfigError, match="nothing uses a judge"):
        check_new_run(other, {}, ["exact"])


def test_a_coin_depends_on_seed_problem_and_sample_alone():
    def flip(seed, problems, group_size=2):
        completions = CompletionTexts(
            problems=problems,
            texts=[""] * len(problems),
            was_cut=[False] * len(problems),
            group_size=group_size,
            seed=seed,
            grader=None,
            limits=CallLimits(timeout_s=1.0),
        )
        return load_reward("random").score(completions).values

    many = [
        Problem(id=str(i), prompt="", gold="", verifier="exact", source="")
        for i in range(64)
    ]
    rows = [problem for problem in many for _ in range(2)]
    values = flip(3, rows)
    assert flip(3, rows[64:]) == values[64:]
    assert flip(4, rows) != values
    assert values[::2] != values[1::2]
    assert 40 < sum(values) < 88
