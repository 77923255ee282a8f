"""A step's rollouts with problems, or one part of the reward, removed.

Everything else stays: the completions, their keys, and the advantages of the other
problems.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from rlvr_jax.analysis.influence.replay import Replay
from rlvr_jax.config import Config, TrainConfig
from rlvr_jax.learn import combine_rewards
from rlvr_jax.rollouts.collect import RolloutBatch
from rlvr_jax.rollouts.step_rewards import read_beliefs
from rlvr_jax.types import RewardGroups

OVERLONG = "overlong"  # the length penalty, a part without a weight


def without_problems(rollouts: RolloutBatch, places: Sequence[int]) -> RolloutBatch:
    """Returns the rollouts with advantage 0 for every completion of these groups.

    This is the update that the run would have done if all completions of a group had
    earned the same reward. A worked solution that was added to a group gets advantage 0
    too.
    """
    advantages_PG = np.array(rollouts.advantages)
    advantages_PG[[*places]] = 0.0
    external = rollouts.external
    if external is not None:
        traces_P = np.array(external.advantages)
        traces_P[[*places]] = 0.0
        external = dataclasses.replace(external, advantages=traces_P)
    return dataclasses.replace(rollouts, advantages=advantages_PG, external=external)


def find_signals(rollouts: RolloutBatch) -> Bool[np.ndarray, " P"]:
    """Returns which problems have an advantage other than 0, external traces too."""
    has_signal_P = (np.asarray(rollouts.advantages) != 0).any(axis=1)
    if rollouts.external is None:
        return has_signal_P
    return has_signal_P | (np.asarray(rollouts.external.advantages) != 0)


def reward_names(config: Config) -> tuple[str, ...]:
    """Returns the parts of the reward that can be removed."""
    penalty = (OVERLONG,) if config.train.overlong_buffer else ()
    return config.train.reward.names + penalty


def without_reward(replay: Replay, name: str) -> RolloutBatch:
    """Returns the rollouts with the advantages of the reward without one part.

    Nothing is scored again: the other parts keep their values, and the same completions
    count as judged. A `name` that is no part removes nothing.
    """
    config, rollouts = replay.trainer.setup.config, replay.rollouts
    reward = config.train.reward
    weights = [
        0.0 if part == name else weight
        for part, weight in zip(reward.names, reward.weights, strict=True)
    ]
    prior = replay.state.difficulty.gather(rollouts.groups.problem_index.tolist())
    rewards_PG, advantages_PG = _rewards_and_advantages(
        {part: jnp.asarray(one) for part, one in rollouts.reward_parts.items()},
        jnp.asarray(rollouts.judged),
        jnp.asarray(rollouts.groups.rollouts.lengths),
        read_beliefs(prior, hard_below=config.difficulty.hard_below),
        config=config.train,
        weights=tuple(weights),
        has_penalty=OVERLONG in rollouts.reward_parts and name != OVERLONG,
    )
    return dataclasses.replace(
        rollouts,
        rewards=np.asarray(rewards_PG),
        advantages=np.asarray(advantages_PG),
    )


@functools.partial(jax.jit, static_argnames=("config", "weights", "has_penalty"))
def _rewards_and_advantages(
    parts_PG: dict[str, jax.Array],
    judged_PG: jax.Array,
    lengths_B: jax.Array,
    beliefs: dict[str, Any],
    *,
    config: TrainConfig,
    weights: tuple[float, ...],
    has_penalty: bool,
) -> tuple[jax.Array, jax.Array]:
    """Returns rewards and advantages from the parts, as `rollouts.step_rewards` does.

    It is jitted as there, so that the same parts give the same bits.
    """
    reward_PG = combine_rewards([parts_PG[n] for n in config.reward.names], weights)
    if has_penalty:
        reward_PG = reward_PG + parts_PG[OVERLONG]
    groups = RewardGroups(
        rewards=reward_PG,
        judged=judged_PG,
        lengths=lengths_B.reshape(reward_PG.shape),
        **beliefs,
    )
    return reward_PG, config.advantage.guarded_advantages(groups)
