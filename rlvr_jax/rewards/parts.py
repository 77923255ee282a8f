"""The reward's parts by name: their rewards, and which completions they judge."""

from collections.abc import Mapping

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.algorithms.reward import Reward
from rlvr_jax.config import RewardConfig
from rlvr_jax.config.rewards import REWARDS
from rlvr_jax.rewards.function import FunctionReward


def load_reward(name: str) -> Reward:
    """Returns the part with this name; a function is wrapped in `FunctionReward`."""
    found = REWARDS.load(name)
    if isinstance(found, type) and issubclass(found, Reward):
        return found()
    return FunctionReward(name, found)


def verifiers_of_rewards(config: RewardConfig) -> set[str]:
    """Returns the verifiers that the parts score with."""
    return {name for part in config.names for name in load_reward(part).verifiers}


def reward_parts(
    correct: Bool[Array, " P G"],
    verified: Bool[Array, " P G"],
    raw_scores: Mapping[str, Float[Array, " P G"]],
    *,
    config: RewardConfig,
) -> dict[str, Float[Array, " P G"]]:
    """Returns the reward of every part that the config names, unweighted.

    `raw_scores` come from `rlvr_jax.rollouts.scores.score_completions`. NaN means no
    score, and earns the mean of its group's other scores.

    Example:
        >>> true = jnp.array([[True, True]])
        >>> config = RewardConfig(names=("correctness",))
        >>> reward_parts(true, true, {}, config=config)["correctness"].tolist()
        [[1.0, 1.0]]
    """
    silent_PG = jnp.full(correct.shape, jnp.nan, jnp.float32)
    return {
        name: load_reward(name).to_rewards(
            raw_scores.get(name, silent_PG), correct, verified
        )
        for name in config.names
    }


def judged_completions(
    verified: Bool[Array, " P G"],
    raw_scores: Mapping[str, Float[Array, " P G"]],
    *,
    config: RewardConfig,
) -> Bool[Array, " P G"]:
    """Returns which completions have their own reward, not their group's mean.

    If a part is a verdict, a completion is judged if all such parts judge it. These
    are correctness, confidence and wrong_label. If all parts are others, such as a
    custom reward, a completion is judged if one of them scores it (ours). The
    arguments are as in `reward_parts`.

    Example:
        >>> verified = jnp.array([[True, False]])
        >>> config = RewardConfig(names=("correctness", "format"), weights=(1.0, 0.5))
        >>> judged_completions(
        ...     verified, {"format": jnp.array([[1.0, 1.0]])}, config=config
        ... ).tolist()
        [[True, False]]
    """
    rewards = {name: load_reward(name) for name in config.names}
    silent_PG = jnp.full(verified.shape, jnp.nan, jnp.float32)
    judged = {
        name: reward.judges(raw_scores.get(name, silent_PG), verified)
        for name, reward in rewards.items()
    }
    verdicts = [judged[name] for name in judged if rewards[name].is_verdict]
    if verdicts:
        return jnp.stack(verdicts).all(axis=0)
    return jnp.stack(list(judged.values())).any(axis=0)
