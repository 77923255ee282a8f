"""Rules for advantages: each one's numbers by hand, its guard, and how it is named."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config_io import from_json, override, to_json
from job_jax.schema import ConfigError
from rlvr_jax.algorithms.advantages.groups import (
    group_advantages,
)
from rlvr_jax.algorithms.advantages.rule import ADVANTAGES
from rlvr_jax.algorithms.advantages.rules.asymmetric import Asymmetric
from rlvr_jax.algorithms.advantages.rules.negative_only import NegativeOnly
from rlvr_jax.algorithms.advantages.rules.positive_only import PositiveOnly
from rlvr_jax.algorithms.advantages.rules.sign_balance import SignBalance
from rlvr_jax.config import (
    AdvantageConfig,
    AdvantageRule,
    Config,
)
from rlvr_jax.types import (
    RewardGroups,
)

ONE_OF_EIGHT = [1, 0, 0, 0, 0, 0, 0, 0]
SEVEN_OF_EIGHT = [1, 1, 1, 1, 1, 1, 1, 0]
UNANIMOUS = [1, 1, 1, 1, 1, 1, 1, 1]
RULES = [ADVANTAGES.load(name)() for name in ADVANTAGES.names]
NAMES = ADVANTAGES.names


def grouped(rewards, judged=None, **beliefs):
    rewards = jnp.asarray(rewards, jnp.float32)
    P, G = rewards.shape
    fields = {
        "judged": jnp.ones((P, G), bool) if judged is None else jnp.asarray(judged),
        "lengths": jnp.full((P, G), 5, jnp.int32),
        "pass_rate": jnp.full(P, 0.5, jnp.float32),
        "overhard": jnp.zeros(P, bool),
        "confidence": jnp.ones(P, jnp.float32),
    }
    return RewardGroups(rewards=rewards, **(fields | beliefs))


def test_sign_balance_pays_a_success_the_same_however_rare_it_is():
    rare, common = SignBalance().advantages(grouped([ONE_OF_EIGHT, SEVEN_OF_EIGHT]))
    np.testing.assert_allclose(rare, [1] + 7 * [-1 / 7], rtol=1e-6)
    np.testing.assert_allclose(common, 7 * [1 / 7] + [-1], rtol=1e-6)


def test_sign_balance_ignores_the_size_of_a_reward():
    few, many = SignBalance().advantages(grouped([[0.1, 0, 0], [9, -5, 0.5]]))
    np.testing.assert_allclose(few, [1, -0.5, -0.5], rtol=1e-6)
    np.testing.assert_allclose(many, [1, -0.5, -0.5], rtol=1e-6)


def test_sign_balance_gives_a_reward_at_the_groups_mean_nothing():
    """Means that float32 rounds leave residues of 1e-7, which are no sign."""
    shaped = [1.2, 0.2, 0.7, 0.7, 1.2, 0.2, 0.7, 0.7]
    (found,) = SignBalance().advantages(grouped([shaped]))
    np.testing.assert_array_equal(found, [1, -1, 0, 0, 1, -1, 0, 0])
    (found,) = SignBalance().advantages(grouped([[1.0, 0.6, 0.2]]))
    np.testing.assert_array_equal(found, [1, 0, -1])


def test_sign_balance_counts_only_the_judged():
    """One success among three judged: the failures share 1 between two."""
    judged = [[True, True, True, False, False, False, False, False]]
    found = SignBalance().guarded_advantages(grouped([ONE_OF_EIGHT], judged))
    np.testing.assert_allclose(found, [[1, -0.5, -0.5, 0, 0, 0, 0, 0]], rtol=1e-6)


def test_one_sign_is_left_and_it_is_grpos():
    groups = grouped([ONE_OF_EIGHT, SEVEN_OF_EIGHT])
    root = math.sqrt(7)
    positive = PositiveOnly().advantages(groups)
    negative = NegativeOnly().advantages(groups)
    np.testing.assert_allclose(positive[0], [root] + 7 * [0], rtol=1e-6)
    np.testing.assert_allclose(positive[1], 7 * [1 / root] + [0], rtol=1e-6)
    np.testing.assert_allclose(negative[0], [0] + 7 * [-1 / root], rtol=1e-6)
    np.testing.assert_allclose(negative[1], 7 * [0] + [-root], rtol=1e-6)
    np.testing.assert_array_equal(
        positive + negative, group_advantages(groups.rewards, groups.judged)
    )


@pytest.mark.parametrize("rule", [PositiveOnly, NegativeOnly, Asymmetric])
def test_without_division_the_difference_from_the_mean_is_left(rule):
    """3/4 above and 1/4 below the mean; times 0.1 and 1 if asymmetric."""
    (found,) = rule(normalize="none").advantages(grouped([[1, 0, 0, 0]]))
    expected = {
        PositiveOnly: [0.75, 0, 0, 0],
        NegativeOnly: [0, -0.25, -0.25, -0.25],
        Asymmetric: [0.075, -0.25, -0.25, -0.25],
    }
    np.testing.assert_allclose(found, expected[rule], rtol=1e-6)


@pytest.mark.parametrize("rule", [PositiveOnly, NegativeOnly, Asymmetric])
def test_the_baseline_may_leave_the_completion_out(rule):
    """Compared with the other three: 1 - 0 for the success, 0 - 1/3 for a failure."""
    leave_one_out = rule(normalize="none", baseline="rloo")
    (found,) = leave_one_out.advantages(grouped([[1, 0, 0, 0]]))
    third = -1 / 3
    expected = {
        PositiveOnly: [1, 0, 0, 0],
        NegativeOnly: [0, third, third, third],
        Asymmetric: [0.1, third, third, third],
    }
    np.testing.assert_allclose(found, expected[rule], rtol=1e-6)


def test_each_sign_has_its_own_weight():
    rule = Asymmetric(positive_weight=2.0, negative_weight=0.5)
    (found,) = rule.advantages(grouped([ONE_OF_EIGHT]))
    root = math.sqrt(7)
    np.testing.assert_allclose(found, [2 * root] + 7 * [-0.5 / root], rtol=1e-6)


def test_weights_that_teach_nothing_are_refused():
    with pytest.raises(ConfigError, match="make every advantage 0; raise one"):
        Asymmetric(positive_weight=0.0, negative_weight=0.0)
    Asymmetric(positive_weight=0.0)
    Asymmetric(negative_weight=0.0)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_group_without_a_signal_moves_nothing(rule):
    groups = grouped([UNANIMOUS, ONE_OF_EIGHT])
    found = jax.jit(rule.guarded_advantages)(groups)
    np.testing.assert_array_equal(found[0], 0)
    assert np.abs(found[1]).sum() > 0


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_reward_of_the_unjudged_reaches_no_advantage(rule):
    judged = [[True] * 6 + [False] * 2]
    found = [
        rule.guarded_advantages(grouped([[1, 0, 1, 0, 0, 0, *rest]], judged))
        for rest in ([0, 0], [5, -3])
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0][0, 6:], 0)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_rule_has_the_guards_against_luck(rule):
    overhard = jnp.array([True, False])
    groups = grouped(
        [ONE_OF_EIGHT, ONE_OF_EIGHT],
        overhard=overhard,
        confidence=jnp.array([0.25, 1.0]),
    )
    plain = rule.guarded_advantages(groups)
    largest = float(np.abs(plain[0]).max())
    clip = dataclasses.replace(
        rule, overhard_advantage="clip", overhard_clip=largest / 2
    )
    shrink = dataclasses.replace(rule, overhard_advantage="shrink")
    held, smaller = clip.guarded_advantages(groups), shrink.guarded_advantages(groups)
    np.testing.assert_allclose(held[0], plain[0] / 2, rtol=1e-6)
    np.testing.assert_allclose(smaller[0], plain[0] / 4, rtol=1e-6)
    for guarded in (held, smaller):
        np.testing.assert_array_equal(guarded[1], plain[1])


def test_no_two_rules_give_the_same_advantages():
    groups = grouped([ONE_OF_EIGHT, SEVEN_OF_EIGHT, [1, 1, 0, 0, 0, 0, 0, 0]])
    found = [np.asarray(rule.advantages(groups)) for rule in RULES]
    for i, first in enumerate(found):
        for second in found[i + 1 :]:
            assert np.abs(first - second).max() > 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doubtful(AdvantageRule):
    """A user's rule: it reads what was believed before the step."""

    def advantages(self, groups):
        return groups.pass_rate[:, None] * (groups.rewards - 0.5)


def test_a_custom_rule_reads_the_beliefs_and_is_saved_by_its_place():
    rule = Doubtful()
    found = rule.guarded_advantages(
        grouped(
            [[1, 0], [1, 0]],
            judged=[[True, True], [True, False]],
            pass_rate=jnp.array([0.2, 0.8]),
        )
    )
    np.testing.assert_allclose(found, [[0.1, -0.1], [0.4, 0]], rtol=1e-6)
    assert rule.tags()["name"].endswith("test_advantage_rules:Doubtful")


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_is_chosen_by_name_and_survives_config_json(name):
    config = override(Config(), {"train.advantage.name": name})
    assert type(config.train.advantage) is ADVANTAGES.load(name)
    assert to_json(config)["train"]["advantage"]["name"] == name
    assert from_json(Config, to_json(config)) == config


def test_a_config_of_before_there_was_a_choice_means_group_relative():
    saved = to_json(override(Config(), {"train.advantage.baseline": "rloo"}))
    del saved["train"]["advantage"]["name"]
    assert from_json(Config, saved).train.advantage == AdvantageConfig(baseline="rloo")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rloo", "name=group_relative with train.advantage.baseline=rloo?"),
        ("grpo", "GRPO's advantages are the default, group_relative"),
        ("gae", "GAE needs a critic, and runs here have none"),
        ("sign_balanced", "did you mean 'sign_balance'?"),
    ],
)
def test_a_name_of_another_kind_says_what_to_write(name, message):
    with pytest.raises(ConfigError) as refused:
        override(Config(), {"train.advantage.name": name})
    assert message in str(refused.value)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "group_relative"])
def test_traces_need_a_rule_that_reads_them(name):
    with pytest.raises(ConfigError) as refused:
        override(
            Config(),
            {
                "train.advantage.name": name,
                "train.loss.external_traces": "rl_plus",
            },
        )
    assert f"advantage.name={name} has none" in str(refused.value)
