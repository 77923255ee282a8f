"""One step's experience: problems -> rollouts -> verdicts -> advantages."""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.processes import on_host
from rlvr_jax import evaluate
from rlvr_jax.config import Config, TrainConfig
from rlvr_jax.data import Difficulty, Pool, Visit, encode_prompts
from rlvr_jax.evaluate import Judged
from rlvr_jax.learn import (
    compose,
    group_advantages,
    is_split,
    overlong_penalty,
    reward_parts,
    verdict_rewards,
)
from rlvr_jax.learn.advantages import capped, shrunk
from rlvr_jax.learn.update import TrainState
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.rewards import confidence_metrics, read_signals
from rlvr_jax.run import Run
from rlvr_jax.sampler import stopped
from rlvr_jax.throughput import Clock
from rlvr_jax.types import BANDS, Problem, Prompts, Rollouts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Groups:
    """Problems asked, each with its G completions, judged. Rollouts are in NumPy."""

    numbers: Int[np.ndarray, " P"]  # of the problems within the pool, -1 outside
    rollouts: Rollouts
    judged: list[Judged]

    def __len__(self) -> int:
        """Returns P."""
        return len(self.numbers)

    def group(self, p: int) -> list[Judged]:
        """Returns the completions of problem p."""
        G = len(self.judged) // len(self)
        return self.judged[p * G : (p + 1) * G]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Experience:
    """What a step learns from, on the host. Written by `gather`, read by the loop.

    `split` tells which groups hold a preference by their verdicts alone, `bands` where
    each problem stood before it was asked (an index into BANDS, -1 outside the pool).
    `visits` are of every group drawn, `groups` and what follows of those learnt from.
    """

    groups: Groups
    reward_parts: dict[str, Float[np.ndarray, " P G"]]
    rewards: Float[np.ndarray, " P G"]
    advantages: Float[np.ndarray, " P G"]
    split: Bool[np.ndarray, " P"]
    bands: Int[np.ndarray, " P"]
    visits: list[Visit]
    draws: int  # batches served, refills included
    sampled: int  # completion tokens of every group drawn
    notes: dict[str, float]  # metrics of how the step came about


def gather(
    run: Run,
    state: TrainState,
    pool: Pool,
    known: Difficulty,
    *,
    step: int,
    draw_key: Callable[[np.uint32], jax.Array],
    sampling: Sampling,
    clock: Clock,
) -> Experience:
    """Returns the judged completions of a step's problems under the state's policy.

    `draw_key` gives a batch's key from the number of its draw.
    """
    config = run.config
    weights = run.layout.weights(state.params)
    if run.layout.reshard is not None:
        clock.lap("reshard")
    rounds: list[Groups] = []
    fallback = 0
    while len(rounds) <= config.curriculum.refill_rounds:
        at = dataclasses.replace(known, draws=known.draws + len(rounds))
        served = pool.serve(at, step, config.train.prompts_per_step)
        fallback += served.fallback
        rollouts = ask(
            run,
            served.problems,
            weights,
            samples_per_prompt=config.train.samples_per_prompt,
            key=draw_key(np.uint32(at.draws)),
            sampling=sampling,
            weight_version=state.step,
        )
        clock.lap("rollout")
        judged = evaluate.completions(run, served.problems, rollouts)
        clock.lap("judge")
        rounds.append(Groups(numbers=served.numbers, rollouts=rollouts, judged=judged))
        if sum(map(_count_split, rounds)) >= config.train.prompts_per_step:
            break
    groups = kept(rounds, config.train.prompts_per_step)
    before = known.take(groups.numbers.tolist())
    bands_P = np.where(groups.numbers >= 0, before.bands(config.difficulty), -1)
    groups = dataclasses.replace(groups, judged=_with_history(groups, before, bands_P))
    signals = _signals(run, groups)
    rewards = _rewarded(config, groups, signals, before=before)
    clock.lap("judge")
    return Experience(
        groups=groups,
        bands=bands_P,
        visits=merged([visit for each in rounds for visit in visits(each)]),
        draws=len(rounds),
        sampled=sum(int(each.rollouts.lengths.sum()) for each in rounds),
        notes={
            "curriculum/fallback": fallback / sum(map(len, rounds)),
            **confidence_metrics(signals, [one.verdict for one in groups.judged]),
            **_notes(run, groups, rounds=len(rounds)),
        },
        **rewards,
    )


def kept(rounds: Sequence[Groups], count: int) -> Groups:
    """Returns `count` groups of the rounds, those with a signal before the silent ones.

    What is chosen stands in the order it was drawn, so one round of `count` is itself.
    """
    if len(rounds) == 1:
        return rounds[0]
    places = [(r, p) for r, each in enumerate(rounds) for p in range(len(each))]
    silent_first = sorted(places, key=lambda at: not _is_split(rounds[at[0]], at[1]))
    chosen = sorted(silent_first[:count])
    rollouts = _joined([each.rollouts for each in rounds], places, chosen)
    return Groups(
        numbers=np.array([rounds[r].numbers[p] for r, p in chosen]),
        rollouts=rollouts,
        judged=[one for r, p in chosen for one in rounds[r].group(p)],
    )


def visits(groups: Groups) -> list[Visit]:
    """Returns what the groups tell of their problems; of strangers there is no account.

    Answers that could not be read count as one answer.
    """
    found = []
    for p, number in enumerate(groups.numbers.tolist()):
        judged = [one.verdict for one in groups.group(p)]
        judged = [verdict for verdict in judged if verdict.status != "unjudged"]
        counts = collections.Counter(verdict.answer for verdict in judged).values()
        shares = [count / len(judged) for count in counts]
        if number >= 0:
            found.append(
                Visit(
                    problem=number,
                    judged=len(judged),
                    right=sum(verdict.status == "right" for verdict in judged),
                    entropy=sum(-share * math.log(share) for share in shares),
                )
            )
    return found


def merged(found: Sequence[Visit]) -> list[Visit]:
    """Returns one visit for each problem: all groups of a step are of one policy.

    The entropy is the mean of the groups', by their verdicts.
    """
    groups: dict[int, list[Visit]] = {}
    for visit in found:
        groups.setdefault(visit.problem, []).append(visit)
    totals = {name: sum(v.judged for v in group) for name, group in groups.items()}
    return [
        Visit(
            problem=name,
            judged=totals[name],
            right=sum(v.right for v in group),
            entropy=sum(v.entropy * v.judged for v in group) / max(totals[name], 1),
        )
        for name, group in groups.items()
    ]


def ask(
    run: Run,
    problems: Sequence[Problem],
    weights: Any,
    *,
    samples_per_prompt: int,
    key: jax.Array,
    sampling: Sampling,
    weight_version: Any,
) -> Rollouts:
    """Returns the completions, in NumPy; `weights` are `run.layout.weights` of some."""
    prompts = encode_prompts(problems, run.tokenizer, bucket=run.config.prompt_bucket)
    rollouts = run.sample(
        weights,
        run.place(prompts),
        sampling,
        key=key,
        weight_version=weight_version,
        samples_per_prompt=samples_per_prompt,
        max_new_tokens=run.config.train.sampling.max_new_tokens,
    )
    return stopped(on_host(rollouts), run.tokenizer)


def _is_split(groups: Groups, p: int) -> bool:
    """Returns whether a group's verdicts disagree: what was unjudged has no say."""
    statuses = {one.verdict.status for one in groups.group(p)}
    return {"right", "wrong"} <= statuses


def _count_split(groups: Groups) -> int:
    return sum(_is_split(groups, p) for p in range(len(groups)))


def _joined(
    rollouts: Sequence[Rollouts],
    places: Sequence[tuple[int, int]],
    chosen: Sequence[tuple[int, int]],
) -> Rollouts:
    """Returns the chosen groups of several rounds as one record, padded alike."""
    index = {place: i for i, place in enumerate(places)}
    take_Q = np.array([index[place] for place in chosen])
    width = max(each.prompts.tokens.shape[1] for each in rollouts)

    def wide(tokens_PS: np.ndarray) -> np.ndarray:
        return np.pad(tokens_PS, ((0, 0), (0, width - tokens_PS.shape[1])))

    def take(parts: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.concatenate(parts)
        grouped = whole.reshape(len(places), -1, *whole.shape[1:])[take_Q]
        return grouped.reshape(-1, *whole.shape[1:])

    return Rollouts(
        prompts=Prompts(
            tokens=take([wide(each.prompts.tokens) for each in rollouts]),
            lengths=take([each.prompts.lengths for each in rollouts]),
            uid=take([each.prompts.uid for each in rollouts]),
        ),
        tokens=take([each.tokens for each in rollouts]),
        lengths=take([each.lengths for each in rollouts]),
        logprobs=take([each.logprobs for each in rollouts]),
        finished=take([each.finished for each in rollouts]),
        weight_version=rollouts[0].weight_version,
    )


def _notes(run: Run, groups: Groups, *, rounds: int) -> dict[str, float]:
    """Returns metrics of what a step does only where the config asks for it."""
    notes: dict[str, float] = {}
    if run.layout.reshard is not None:
        notes["reshard/bytes"] = float(run.layout.received)
    if run.config.curriculum.refill_rounds:
        silent = 1 - min(1.0, _count_split(groups) / len(groups))
        notes |= {"refill/batches": float(rounds), "refill/silent": silent}
    return notes


def _with_history(
    groups: Groups, before: Difficulty, bands_P: Int[np.ndarray, " P"]
) -> list[Judged]:
    """Returns the completions with their band, and the flags that the past gives."""
    told = []
    for p, index in enumerate(bands_P.tolist()):
        group = groups.group(p)
        band = BANDS[index] if index >= 0 else None
        right = sum(one.verdict.status == "right" for one in group)
        count = sum(one.verdict.status != "unjudged" for one in group)
        lost = before.last[p] >= 0.5 and count > 0 and right < 0.5 * count
        for one in group:
            status, flags = one.verdict.status, one.flags
            if status == "right" and band == "hard":
                flags += ("lucky_guess",)
            if status == "wrong" and lost:
                flags += ("forgotten",)
            told.append(dataclasses.replace(one, flags=flags, band=band))
    return told


def _signals(run: Run, groups: Groups) -> dict[str, np.ndarray]:
    """Returns what the completions say beside their verdicts, as rewards need it."""
    return read_signals(
        run.config.train.reward,
        [one.problem for one in groups.judged],
        [one.completion for one in groups.judged],
        judge=run.judge,
        seed=run.config.seed,
        samples_per_prompt=run.config.train.samples_per_prompt,
    )


def _rewarded(
    config: Config,
    groups: Groups,
    signals: Mapping[str, np.ndarray],
    *,
    before: Difficulty,
) -> dict[str, Any]:
    """Returns rewards by part and as a whole, advantages, and what is split."""
    P = len(groups)
    hard = config.difficulty.hard_below
    parts, rewards_PG, advantages_PG, split_P = on_host(
        _measured(
            _statuses(groups.judged, P),
            {name: signal.reshape(P, -1) for name, signal in signals.items()},
            groups.rollouts.lengths,
            before.mean < hard,
            (1.0 - before.below(hard)).astype(np.float32),
            config=config.train,
        )
    )
    return {
        "reward_parts": parts,
        "rewards": rewards_PG,
        "advantages": advantages_PG,
        "split": split_P,
    }


def _statuses(judged: Sequence[Judged], P: int) -> tuple[np.ndarray, np.ndarray]:
    right_B = np.array([one.verdict.status == "right" for one in judged])
    judged_B = np.array([one.verdict.status != "unjudged" for one in judged])
    return right_B.reshape(P, -1), judged_B.reshape(P, -1)


@functools.partial(jax.jit, static_argnames="config")
def _measured(
    statuses: tuple[Any, Any],
    signals: dict[str, Any],
    lengths_B: Any,
    over_hard_P: Any,
    trust_P: Any,
    *,
    config: TrainConfig,
) -> tuple[dict[str, jax.Array], jax.Array, jax.Array, jax.Array]:
    """Returns rewards by part, rewards, advantages [P, G], and what verdicts split."""
    parts_PG = reward_parts(*statuses, signals, config=config.reward)
    reward_PG = compose(parts_PG, config=config.reward)
    if config.overlong_buffer:
        penalty_B = overlong_penalty(
            lengths_B,
            max_length=config.sampling.max_new_tokens,
            buffer=config.overlong_buffer,
        )
        parts_PG["overlong"] = penalty_B.reshape(reward_PG.shape)
        reward_PG = reward_PG + parts_PG["overlong"]
    advantages_PG = group_advantages(
        reward_PG, baseline=config.advantage.baseline, scale=config.advantage.scale
    )
    if config.advantage.guard == "cap":
        cap = config.advantage.guard_cap
        advantages_PG = capped(advantages_PG, over_hard_P, cap=cap)
    elif config.advantage.guard == "shrink":
        advantages_PG = shrunk(advantages_PG, trust_P)
    return parts_PG, reward_PG, advantages_PG, is_split(verdict_rewards(*statuses))
