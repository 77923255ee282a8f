"""One step's rollouts: problems -> completions -> verdicts -> rewards -> advantages."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.processes import device_get
from rlvr_jax.config import Config, TrainConfig
from rlvr_jax.data import Difficulty, Pool, ProblemBatch, ProblemOutcome
from rlvr_jax.learn import (
    combine_rewards,
    correctness_rewards,
    has_signal,
    overlong_penalty,
)
from rlvr_jax.learn.update import TrainState
from rlvr_jax.rewards.parts import judged_completions, reward_parts
from rlvr_jax.rollouts.episodes import episode_metrics
from rlvr_jax.rollouts.external import GradedTraces, external_metrics, read_traces
from rlvr_jax.rollouts.graded import GradedCompletion, grade_completions
from rlvr_jax.rollouts.groups import (
    ProblemGroups,
    add_history_flags,
    merge_outcomes,
    problem_outcomes,
    select_groups,
)
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import sample_completions, slot_metrics
from rlvr_jax.rollouts.scores import (
    CompletionScores,
    confidence_metrics,
    reward_call_metrics,
    score_completions,
)
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.types import (
    ExternalTraces,
    RewardGroups,
    Rollouts,
)


class Rewards(NamedTuple):
    """Rewards and advantages of a step's completions, as fields of `RolloutBatch`."""

    reward_parts: dict[str, Any]
    rewards: Any
    judged: Any
    advantages: Any
    has_signal: Any


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutBatch:
    """A step's training data, on the host, and its metrics.

    Written by `collect_rollouts` or `collect_drawn`, read by the loop. Completions that
    are not `judged` (by `rewards.parts.judged_completions`) have an advantage of 0.
    `has_signal` marks the groups with correct and incorrect completions, regardless of
    the shaped reward. `bands` are the problems' telemetry bands before the step
    (`Difficulty.telemetry_bands`, indices into BANDS, -1 outside the pool). `outcomes`
    and `sampled_tokens` cover every sampled group; `groups` and all arrays cover only
    the groups selected for training. `external` are the groups' external traces, None
    if the run has no such traces; all other fields are about completions only.
    """

    groups: ProblemGroups
    reward_parts: dict[str, Float[np.ndarray, " P G"]]
    rewards: Float[np.ndarray, " P G"]
    judged: Bool[np.ndarray, " P G"]
    advantages: Float[np.ndarray, " P G"]
    has_signal: Bool[np.ndarray, " P"]
    bands: Int[np.ndarray, " P"]
    outcomes: list[ProblemOutcome]
    num_batches: int  # batches of problems sampled, dynamic sampling's included
    sampled_tokens: int
    metrics: dict[str, float]  # of the collection itself
    external: ExternalTraces | None = None

    @property
    def trained_tokens(self) -> int:
        """Returns the number of tokens in one epoch of the update."""
        own = int(self.groups.rollouts.lengths.sum())
        return own + (int(self.external.lengths.sum()) if self.external else 0)


def collect_rollouts(
    setup: RunSetup,
    state: TrainState,
    pool: Pool,
    difficulty: Difficulty,
    *,
    step: int,
    batch_key: Callable[[np.uint32], jax.Array],
    timer: StepTimer,
) -> RolloutBatch:
    """Samples the step's problems with the state's policy, grades and rewards them.

    `batch_key` maps a batch's number to its sampling key. With dynamic sampling, more
    batches follow until enough groups have a signal, or `max_rounds` is reached.
    """
    weights = setup.sampler_layout.place_params(state.params)
    if setup.sampler_layout.reshard is not None:
        timer.lap("reshard")
    rounds, num_fallback = _sample_rounds(
        setup,
        weights,
        pool,
        difficulty,
        step=step,
        weight_version=state.step,
        batch_key=batch_key,
        timer=timer,
    )
    return _make_batch(setup, rounds, difficulty, num_fallback, timer=timer)


def collect_drawn(
    setup: RunSetup,
    problems: ProblemBatch,
    rollouts: Rollouts,
    difficulty: Difficulty,
    *,
    timer: StepTimer,
) -> RolloutBatch:
    """Grades and rewards rollouts, in NumPy, that were sampled steps ago.

    `difficulty` is the current state, not the state when they were sampled.
    """
    groups = ProblemGroups(
        problem_index=problems.problem_index,
        rollouts=rollouts,
        graded=grade_completions(setup, problems.problems, rollouts),
    )
    return _make_batch(setup, [groups], difficulty, problems.num_fallback, timer=timer)


def _make_batch(
    setup: RunSetup,
    rounds: list[ProblemGroups],
    difficulty: Difficulty,
    num_fallback: int,
    *,
    timer: StepTimer,
) -> RolloutBatch:
    """Returns the step's batch, selected from all rounds sampled for it."""
    config = setup.config
    groups = select_groups(
        rounds, config.train.batch_size, config.dynamic_sampling.is_preferred
    )
    prior = difficulty.gather(groups.problem_index.tolist())
    bands_P, posterior_P = (
        np.where(groups.problem_index >= 0, find_bands(config.difficulty), -1)
        for find_bands in (prior.telemetry_bands, prior.posterior_bands)
    )
    groups = dataclasses.replace(
        groups, graded=add_history_flags(groups, prior, bands_P, posterior_P)
    )
    raw_scores, calls = _score(setup, groups)
    beliefs = _read_beliefs(prior, hard_below=config.difficulty.hard_below)
    rewards = _compute_rewards(config, groups, raw_scores, beliefs)
    external = None
    if config.train.loss.has_external_traces:
        external = _collect_traces(setup, groups, rewards, beliefs)
    timer.lap("verify")
    return RolloutBatch(
        groups=groups,
        external=external,
        **rewards._asdict(),
        bands=bands_P,
        outcomes=merge_outcomes(
            [outcome for sampled in rounds for outcome in problem_outcomes(sampled)]
        ),
        num_batches=len(rounds),
        sampled_tokens=sum(int(sampled.rollouts.mask.sum()) for sampled in rounds),
        metrics={
            "curriculum/fallback": num_fallback / sum(map(len, rounds)),
            **slot_metrics([sampled.rollouts for sampled in rounds]),
            **episode_metrics([sampled.rollouts for sampled in rounds]),
            **confidence_metrics(raw_scores, [g.verdict for g in groups.graded]),
            **reward_call_metrics(calls),
            **_collection_metrics(setup, groups, rounds=len(rounds)),
            **(external_metrics(external, rewards.advantages) if external else {}),
        },
    )


def _sample_rounds(
    setup: RunSetup,
    weights: Any,
    pool: Pool,
    difficulty: Difficulty,
    *,
    step: int,
    weight_version: Any,
    batch_key: Callable[[np.uint32], jax.Array],
    timer: StepTimer,
) -> tuple[list[ProblemGroups], int]:
    """Returns the step's groups, batch by batch, and the number of fallback rows."""
    config = setup.config
    rounds: list[ProblemGroups] = []
    num_fallback = 0
    while len(rounds) <= config.dynamic_sampling.max_rounds:
        current = dataclasses.replace(
            difficulty, num_batches=difficulty.num_batches + len(rounds)
        )
        asked = [index for groups in rounds for index in groups.problem_index.tolist()]
        batch = pool.next_batch(current, step, config.train.batch_size, asked=asked)
        again = config.dynamic_sampling.problems_again(rounds, config.train.batch_size)
        if again:
            batch = batch.with_first(again)
        num_fallback += batch.num_fallback
        rollouts = sample_completions(
            setup,
            SampleRequest(
                problems=batch.problems,
                weights=weights,
                sampling=config.train.sampling,
                num_samples=config.train.group_size,
                key=batch_key(np.uint32(current.num_batches)),
                weight_version=weight_version,
            ),
        )
        timer.lap("rollout")
        graded = grade_completions(setup, batch.problems, rollouts)
        timer.lap("verify")
        rounds.append(
            ProblemGroups(
                problem_index=batch.problem_index, rollouts=rollouts, graded=graded
            )
        )
        if config.dynamic_sampling.is_enough(rounds, config.train.batch_size):
            break
    return rounds, num_fallback


def _collection_metrics(
    setup: RunSetup, groups: ProblemGroups, *, rounds: int
) -> dict[str, float]:
    """Returns metrics of resharding and dynamic sampling, if they are on."""
    metrics: dict[str, float] = {}
    if setup.sampler_layout.reshard is not None:
        metrics["reshard/bytes"] = float(setup.sampler_layout.bytes_received)
    if setup.config.dynamic_sampling.max_rounds:
        with_signal = min(1.0, groups.count_with_signal() / len(groups))
        metrics |= {
            "dynamic_sampling/batches": float(rounds),
            "dynamic_sampling/zero_variance": 1 - with_signal,
        }
    return metrics


def _score(setup: RunSetup, groups: ProblemGroups) -> CompletionScores:
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


def _read_beliefs(prior: Difficulty, *, hard_below: float) -> dict[str, Any]:
    """Returns what was known of the problems before the step, for `RewardGroups`."""
    return {
        "pass_rate": prior.mean.astype(np.float32),
        "overhard": prior.mean < hard_below,
        "confidence": (1.0 - prior.cdf(hard_below)).astype(np.float32),
    }


def _compute_rewards(
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


def _collect_traces(
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
