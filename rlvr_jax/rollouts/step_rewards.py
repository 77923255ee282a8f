"""From a step's graded groups to rewards and advantages, in one jitted program."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from job_jax.processes import device_get
from rlvr_jax.config import Config, TrainConfig
from rlvr_jax.data import Difficulty
from rlvr_jax.learn import (
    combine_rewards,
    correctness_rewards,
    has_signal,
    overlong_penalty,
)
from rlvr_jax.rewards.parts import judged_completions, reward_parts
from rlvr_jax.rollouts.external import GradedTraces, read_traces
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.rollouts.groups import ProblemGroups
from rlvr_jax.rollouts.scores import CompletionScores, score_completions
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import ExternalTraces, RewardGroups


class Rewards(NamedTuple):
    """Rewards and advantages of a step's completions, as fields of `RolloutBatch`."""

    reward_parts: dict[str, Any]
    rewards: Any
    judged: Any
    advantages: Any
    has_signal: Any


def score_groups(setup: RunSetup, groups: ProblemGroups) -> CompletionScores:
    """Returns the scores [B] of the reward parts that read a completion's text."""
    judged = [graded.judged_text for graded in groups.graded]
    return score_completions(
        setup.config.train.reward,
        [graded.problem for graded in groups.graded],
        [text.text for text in judged],
        judge=setup.verifier,
        seed=setup.config.seed,
        group_size=setup.config.train.group_size,
        judged=judged,
    )


def read_beliefs(prior: Difficulty, *, hard_below: float) -> dict[str, Any]:
    """Returns what was known of the problems before the step, for `RewardGroups`."""
    return {
        "pass_rate": prior.mean.astype(np.float32),
        "overhard": prior.mean < hard_below,
        "confidence": (1.0 - prior.cdf(hard_below)).astype(np.float32),
    }


def compute_rewards(
    config: Config,
    groups: ProblemGroups,
    raw_scores: Mapping[str, np.ndarray],
    beliefs: dict[str, Any],
) -> Rewards:
    """Returns the groups' rewards in NumPy."""
    P = len(groups)
    return device_get(
        _rewards_and_advantages(
            _status_arrays(groups.graded, P),
            {name: score.reshape(P, -1) for name, score in raw_scores.items()},
            groups.rollouts.lengths,
            beliefs,
            config=config.train,
        )
    )


def _status_arrays(
    graded: Sequence[GradedCompletion], P: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which completions are correct and which are verified, each [P, G]."""
    statuses = np.array([completion.verdict.status for completion in graded])
    return (
        (statuses == "correct").reshape(P, -1),
        (statuses != "unverified").reshape(P, -1),
    )


@functools.partial(jax.jit, static_argnames="config")
def _rewards_and_advantages(
    statuses: tuple[Any, Any],
    raw_scores: dict[str, Any],
    lengths_B: Any,
    beliefs: dict[str, Any],
    *,
    config: TrainConfig,
) -> Rewards:
    """Returns the groups' rewards and advantages; jitted, and compiled once."""
    parts_PG, reward_PG, judged_PG = _rewards(
        statuses, raw_scores, lengths_B, config=config
    )
    groups = RewardGroups(
        rewards=reward_PG,
        judged=judged_PG,
        lengths=lengths_B.reshape(reward_PG.shape),
        **beliefs,
    )
    return Rewards(
        reward_parts=parts_PG,
        rewards=reward_PG,
        judged=judged_PG,
        advantages=config.advantage.guarded_advantages(groups),
        has_signal=has_signal(correctness_rewards(*statuses)),
    )


def _rewards(
    statuses: tuple[Any, Any],
    raw_scores: dict[str, Any],
    lengths_B: Any,
    *,
    config: TrainConfig,
) -> tuple[dict[str, Any], Any, Any]:
    """Returns the reward parts, the rewards and which are judged, all [P, G]."""
    parts_PG = reward_parts(*statuses, raw_scores, config=config.reward)
    reward_PG = combine_rewards([*parts_PG.values()], config.reward.weights)
    if config.overlong_buffer:
        penalty_B = overlong_penalty(
            lengths_B,
            max_length=config.sampling.max_new_tokens,
            buffer=config.overlong_buffer,
        )
        parts_PG["overlong"] = penalty_B.reshape(reward_PG.shape)
        reward_PG = reward_PG + parts_PG["overlong"]
    _, verified_PG = statuses
    judged_PG = judged_completions(verified_PG, raw_scores, config=config.reward)
    return parts_PG, reward_PG, judged_PG


def collect_traces(
    setup: RunSetup,
    groups: ProblemGroups,
    rewards: Rewards,
    beliefs: dict[str, Any],
) -> ExternalTraces:
    """Returns the groups' external traces, with advantages relative to the groups."""
    problems = [groups.completions_of(p)[0].problem for p in range(len(groups))]
    traces = read_traces(setup, problems)
    return ExternalTraces(
        tokens=traces.tokens,
        lengths=traces.lengths,
        advantages=device_get(
            _trace_advantages(
                traces,
                RewardGroups(
                    rewards=rewards.rewards,
                    judged=rewards.judged,
                    lengths=groups.rollouts.lengths.reshape(rewards.rewards.shape),
                    **beliefs,
                ),
                config=setup.config.train,
            )
        ),
    )


@functools.partial(jax.jit, static_argnames="config")
def _trace_advantages(
    traces: GradedTraces, groups: RewardGroups, *, config: TrainConfig
) -> Any:
    """Returns the advantages [P] of traces; 0 without a trace or without a reward."""
    there_P1 = traces.lengths[:, None] > 0
    raw_scores = {name: score[:, None] for name, score in traces.raw_scores.items()}
    _, reward_P1, judged_P1 = _rewards(
        (there_P1, there_P1), raw_scores, traces.lengths, config=config
    )
    advantages_P = config.advantage.trace_advantages(reward_P1[:, 0], groups)
    return jnp.where((there_P1 & judged_P1)[:, 0], advantages_P, 0.0)
