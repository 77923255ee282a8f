"""One step's experience: problems -> rollouts -> verdicts -> advantages."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from rlvr_jax import evaluate
from rlvr_jax.config import TrainConfig
from rlvr_jax.data.loader import encode_prompts
from rlvr_jax.evaluate import Judged
from rlvr_jax.learn import group_advantages, is_split, overlong_penalty, verdict_rewards
from rlvr_jax.learn.update import TrainState
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.run import Run
from rlvr_jax.sampler import sample
from rlvr_jax.throughput import Clock
from rlvr_jax.types import Problem, Rollouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experience:
    """What a step learns from, on the host. Written by `gather`, read by the loop.

    `split` tells which groups hold a preference by their verdicts alone.
    """

    rollouts: Rollouts
    judged: list[Judged]
    rewards: Float[np.ndarray, " P G"]
    advantages: Float[np.ndarray, " P G"]
    split: Bool[np.ndarray, " P"]


def gather(
    run: Run,
    problems: Sequence[Problem],
    state: TrainState,
    *,
    key: jax.Array,
    sampling: Sampling,
    clock: Clock,
) -> Experience:
    """Returns the judged completions of `problems` under the state's policy."""
    config = run.config.train
    prompts = encode_prompts(problems, run.tokenizer, bucket=run.config.prompt_bucket)
    rollouts = sample(
        run.graphdef,
        state.params,
        run.place(prompts),
        sampling,
        key=key,
        weight_version=state.step,
        samples_per_prompt=config.samples_per_prompt,
        max_new_tokens=config.sampling.max_new_tokens,
    )
    rollouts = jax.device_get(rollouts)
    clock.lap("rollout")
    judged = evaluate.completions(run, problems, rollouts)
    rewards_PG, advantages_PG, split_P = jax.device_get(
        _measured(_statuses(judged, len(problems)), rollouts.lengths, config)
    )
    clock.lap("judge")
    return Experience(
        rollouts=rollouts,
        judged=judged,
        rewards=rewards_PG,
        advantages=advantages_PG,
        split=split_P,
    )


def _statuses(judged: Sequence[Judged], P: int) -> tuple[np.ndarray, np.ndarray]:
    right_B = np.array([one.verdict.status == "right" for one in judged])
    judged_B = np.array([one.verdict.status != "unjudged" for one in judged])
    return right_B.reshape(P, -1), judged_B.reshape(P, -1)


@functools.partial(jax.jit, static_argnames="config")
def _measured(
    statuses: tuple[Any, Any], lengths_B: Any, config: TrainConfig
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns rewards and advantages [P, G], and which groups are split by verdict."""
    verdict_PG = verdict_rewards(*statuses)
    reward_PG = verdict_PG
    if config.overlong_buffer:
        penalty_B = overlong_penalty(
            lengths_B,
            max_length=config.sampling.max_new_tokens,
            buffer=config.overlong_buffer,
        )
        reward_PG = reward_PG + penalty_B.reshape(reward_PG.shape)
    advantages_PG = group_advantages(
        reward_PG, baseline=config.advantage.baseline, scale=config.advantage.scale
    )
    return reward_PG, advantages_PG, is_split(verdict_PG)
