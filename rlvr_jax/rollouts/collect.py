"""One step's rollouts: problems -> completions -> verdicts -> rewards -> advantages."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
from flax import nnx
from jaxtyping import Bool, Float, Int

from rlvr_jax.data import Difficulty, Pool, ProblemBatch, ProblemOutcome
from rlvr_jax.learn.update import TrainState
from rlvr_jax.rollouts.episodes import episode_metrics
from rlvr_jax.rollouts.external import external_metrics
from rlvr_jax.rollouts.graded import grade_completions
from rlvr_jax.rollouts.groups import (
    ProblemGroups,
    add_history_flags,
    merge_outcomes,
    problem_outcomes,
    select_groups,
)
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import sample_completions, slot_metrics
from rlvr_jax.rollouts.scores import confidence_metrics, reward_call_metrics
from rlvr_jax.rollouts.step_rewards import (
    collect_traces,
    compute_rewards,
    read_beliefs,
    score_groups,
)
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.types import ExternalTraces, Rollouts

# Tags of a step's random choices: which groups are left out, and which problems make
# room for problems that are sampled again.
_SURPLUS_DRAW, _ROOM_DRAW = 0x50, 0x51


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
        rounds,
        config.train.batch_size,
        np.random.default_rng((config.seed, difficulty.num_batches, _SURPLUS_DRAW)),
        config.dynamic_sampling.is_preferred,
    )
    prior = difficulty.gather(groups.problem_index.tolist())
    bands_P, posterior_P = (
        np.where(groups.problem_index >= 0, find_bands(config.difficulty), -1)
        for find_bands in (prior.telemetry_bands, prior.posterior_bands)
    )
    groups = dataclasses.replace(
        groups, graded=add_history_flags(groups, prior, bands_P, posterior_P)
    )
    raw_scores, calls = score_groups(setup, groups)
    beliefs = read_beliefs(prior, hard_below=config.difficulty.hard_below)
    rewards = compute_rewards(config, groups, raw_scores, beliefs)
    external = None
    if config.train.loss.has_external_traces:
        external = collect_traces(setup, groups, rewards, beliefs)
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
    weights: nnx.State,
    pool: Pool,
    difficulty: Difficulty,
    *,
    step: int,
    weight_version: jax.Array | np.int32,
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
            draw = (config.seed, current.num_batches, _ROOM_DRAW)
            batch = batch.with_first(again, np.random.default_rng(draw))
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
