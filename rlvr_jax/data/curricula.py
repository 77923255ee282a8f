"""Curricula: which problems a step asks, given what is known of their difficulty.

A curriculum is a pure function of (what is known, step): its chance comes from the
seed and the number of the draw, both of which are known to whoever resumes. `Order` is
what it serves, as a grain sampler over one batch; processes share a batch by taking
every `shard_count`-th of its rows.

No problem stands in a batch twice unless fewer than a batch are eligible. Within what
is eligible, those visited least come first, in random order: an epoch without keeping
a position. Where nothing is eligible the whole pool is, and the order says so.
"""

import dataclasses
from typing import Protocol

import grain
import numpy as np
from jaxtyping import Bool, Float, Int

from rlvr_jax.config import Config, CurriculumConfig, DifficultyConfig
from rlvr_jax.data.difficulty import Difficulty
from rlvr_jax.types import BANDS, Band


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """The problems of one batch, by number within the source: a grain sampler.

    `fallback` counts the rows for which no eligible problem was left. Row i goes to
    process i mod shard_count, as grain's loaders ask for them.
    """

    problems: Int[np.ndarray, " P"]
    fallback: int = 0

    def __getitem__(self, index: int) -> grain.RecordMetadata:
        """Returns where row `index` of the batch is to be read."""
        return grain.RecordMetadata(index=index, record_key=int(self.problems[index]))

    def __len__(self) -> int:
        """Returns P."""
        return len(self.problems)

    def shard(self, options: grain.sharding.ShardOptions) -> "Order":
        """Returns one process's rows of the batch."""
        mine = self.problems[options.shard_index :: options.shard_count]
        return Order(problems=mine, fallback=self.fallback)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """What the chance of one batch hangs on, and how far the run is."""

    seed: int
    number: int  # batches served before this one, refills included
    step: int
    steps: int  # of the whole stage

    @property
    def chance(self) -> np.random.Generator:
        """Returns this draw's generator, the same whenever it is asked for."""
        return np.random.default_rng((self.seed, 0xC0FFEE, self.number))


class Curriculum(Protocol):
    """Serves batches."""

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns `count` problems for the draw: a pure function of its arguments."""
        ...


class Uniform:
    """Every problem alike: the source shuffled anew every epoch, blind to difficulty.

    It keeps its place by the number of the draw and reads the whole source, of which
    the pool may be the beginning only.
    """

    def __init__(self, size: int, *, seed: int):
        self._order = grain.MapDataset.range(size).shuffle(seed=seed).repeat()

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns the next `count` of the shuffled source."""
        start = draw.number * count
        return Order(
            problems=np.array([self._order[i] for i in range(start, start + count)])
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixture:
    """Fixed shares of the batch from the buckets, or from today's bands. One: a bucket.

    A share that is no whole number of rows is rounded by chance, right on average.
    """

    bands: tuple[int, ...]  # indices into BANDS
    shares: tuple[float, ...]  # of the same length, adding up to 1
    estimate: str
    config: DifficultyConfig

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns each band's rows, band after band."""
        of_N = _by_estimate(known, self.estimate, self.config)
        parts, fallback, chance = [], 0, draw.chance
        ends = np.round(np.cumsum(self.shares), 12)
        # One random shift for all the bounds: every count is its share's, up or down.
        bounds = np.floor(ends * count + chance.random())
        rows = np.diff(bounds, prepend=0.0).astype(int)
        for band, wanted in zip(self.bands, rows, strict=True):
            order = _least_visited(known, of_N == band, int(wanted), chance)
            parts.append(order.problems)
            fallback += order.fallback
        return Order(problems=np.concatenate(parts), fallback=fallback)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EasyToHard:
    """A window of the pool, ranked from easy to hard, that slides over the run.

    Rank is by pass rate (before RL, or the posterior's mean), then by level, then by
    place: without estimates the levels alone decide.
    """

    window: float
    estimate: str
    levels: Int[np.ndarray, " N"]

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns problems of the window at this step."""
        if self.estimate == "initial":
            asked_N = np.maximum(known.first_asked, 1)
            pass_N = known.first_solved / asked_N
        else:
            pass_N = known.mean
        rank_N = np.lexsort((np.arange(known.size), self.levels, -pass_N))
        width = max(1, round(self.window * known.size))
        progress = draw.step / max(draw.steps - 1, 1)
        start = round(min(progress, 1.0) * (known.size - width))
        inside = np.zeros(known.size, bool)
        inside[rank_N[start : start + width]] = True
        return _least_visited(known, inside, count, draw.chance)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """The problems whose posterior mean is closest to a pass rate; ties by chance."""

    target: float

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns the `count` closest."""
        ties_N = draw.chance.permutation(known.size)
        return _cycled(np.lexsort((ties_N, np.abs(known.mean - self.target))), count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Variance:
    """Problems drawn in proportion to the posterior's mean of p (1 - p).

    The learning signal of a group is bounded below by p (1 - p) / (2 beta^2)
    (https://arxiv.org/abs/2504.03380), and a problem never met has its share of it.
    Draws are without replacement: each row is proportional among what is left.
    """

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns `count` draws."""
        return _cycled(_in_proportion(known.spread, draw.chance), count)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Vcrl:
    """Problems whose groups vary, and a memory of those that varied most.

    VCRL (https://arxiv.org/abs/2509.19803): a batch is drawn uniformly; what varies
    less than a threshold is dropped and replaced from a bank of high scores.

    Deviations:
      1. A problem is judged by its score so far (a moving average with the bank's
         momentum), not by this step's completions, so none is sampled to be thrown
         away. One never met is asked.
      2. The bank is every problem at or above the threshold, drawn from in proportion
         to its score; the paper's pops the highest.
    """

    early: float
    late: float
    early_steps: int

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns the draw's candidates, those that vary too little replaced."""
        chance = draw.chance
        threshold = self.early if draw.step < self.early_steps else self.late
        score_N = known.variance
        candidates = _cycled(chance.permutation(known.size), count).problems
        kept = candidates[~(score_N[candidates] < threshold)]
        in_bank = score_N >= threshold
        in_bank[kept] = False
        bank = np.flatnonzero(in_bank)
        bank = bank[_in_proportion(score_N[bank], chance)]
        dropped = candidates[score_N[candidates] < threshold]
        rest = np.concatenate([bank, dropped])[: count - len(kept)]
        return Order(
            problems=np.concatenate([kept, rest]),
            fallback=max(0, count - len(kept) - len(bank)),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filter:
    """Problems whose posterior mean lies within bounds, and those never judged.

    Online difficulty filtering (https://arxiv.org/abs/2504.03380), on what is known
    before the step.
    """

    low: float
    high: float

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns problems within the bounds."""
        inside = (self.low <= known.mean) & (known.mean <= self.high)
        return _least_visited(known, inside | (known.rated == 0), count, draw.chance)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSample:
    """One problem in every row (https://arxiv.org/abs/2504.20571)."""

    problem: int

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns the problem, `count` times."""
        return Order(problems=np.full(count, self.problem))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replay:
    """A share of the batch for problems solved once and lost since, if there are any.

    The other rows are drawn from the rest of the pool.
    """

    share: float

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns the lost ones, then others."""
        chance = draw.chance
        lost = np.flatnonzero(known.lost)
        again = chance.permutation(lost)[: int(self.share * count)]
        others = np.ones(known.size, bool)
        others[again] = False
        rest = _least_visited(known, others, count - len(again), chance)
        return Order(
            problems=np.concatenate([again, rest.problems]), fallback=rest.fallback
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exploring:
    """Another curriculum, but for a share of its rows, drawn from the whole pool.

    Without it a posterior that is wrong about a problem is never put right.
    """

    inner: Curriculum
    share: float

    def serve(self, known: Difficulty, draw: Draw, count: int) -> Order:
        """Returns the inner rows, then the explored ones."""
        done, upto = (int(self.share * count * (draw.number + i)) for i in (0, 1))
        order = self.inner.serve(known, draw, count - (upto - done))
        others = np.ones(known.size, bool)
        others[order.problems] = False
        # A generator of its own: the inner curriculum has used up the draw's.
        chance = np.random.default_rng((draw.seed, 0xE4, draw.number))
        explored = _least_visited(known, others, upto - done, chance)
        return Order(
            problems=np.concatenate([order.problems, explored.problems]),
            fallback=order.fallback,
        )


def make(
    config: Config, *, source_size: int, levels: Int[np.ndarray, " N"]
) -> Curriculum:
    """Returns the curriculum that the config names, over a pool of these levels."""
    c = config.curriculum
    match c.name:
        case "uniform":
            return Uniform(source_size, seed=config.seed)
        case "bucket":
            return _mixture((c.bucket,), (), config)
        case "mixture":
            return _mixture(c.mixture, c.mixture_shares, config)
        case "easy_to_hard":
            return EasyToHard(window=c.window, estimate=c.estimate, levels=levels)
        case "one_sample":
            return OneSample(problem=c.problem)
        case "replay":
            return Replay(share=c.replay_share)
    return Exploring(inner=_adaptive(c), share=c.explore)


def _adaptive(c: CurriculumConfig) -> Curriculum:
    match c.name:
        case "target":
            return Target(target=c.target)
        case "vcrl":
            return Vcrl(
                early=c.vcrl_early, late=c.vcrl_late, early_steps=c.vcrl_early_steps
            )
        case "filter":
            return Filter(low=c.filter_low, high=c.filter_high)
    return Variance()


def _mixture(
    bands: tuple[Band, ...], shares: tuple[float, ...], config: Config
) -> Mixture:
    weights = np.array(shares or (1.0,) * len(bands))
    return Mixture(
        bands=tuple(BANDS.index(band) for band in bands),
        shares=tuple((weights / weights.sum()).tolist()),
        estimate=config.curriculum.estimate,
        config=config.difficulty,
    )


def _by_estimate(
    known: Difficulty, estimate: str, config: DifficultyConfig
) -> Int[np.ndarray, " N"]:
    """Returns the bucket before RL of each problem, or its band by now."""
    return known.buckets(config) if estimate == "initial" else known.bands(config)


def _least_visited(
    known: Difficulty,
    eligible: Bool[np.ndarray, " N"],
    count: int,
    chance: np.random.Generator,
) -> Order:
    """Returns eligible problems, the least visited first; of none eligible, any."""
    fallback = 0 if eligible.any() else count
    chosen = np.flatnonzero(eligible) if eligible.any() else np.arange(known.size)
    ties = chance.permutation(len(chosen))
    ranked = chosen[np.lexsort((ties, known.visits[chosen]))]
    return Order(problems=_cycled(ranked, count).problems, fallback=fallback)


def _in_proportion(
    weights: Float[np.ndarray, " N"], chance: np.random.Generator
) -> Int[np.ndarray, " N"]:
    """Returns all indices in the order of draws without replacement by weight.

    The largest of log(w) plus Gumbel noise is a draw in proportion to w, the largest of
    the others a draw among what is left. What weighs nothing comes last.
    """
    with np.errstate(divide="ignore"):
        keys = np.log(weights) + chance.gumbel(size=len(weights))
    return np.argsort(-keys, kind="stable")


def _cycled(ranked: Int[np.ndarray, " N"], count: int) -> Order:
    """Returns the first `count`, from the start again where there are fewer."""
    return Order(problems=np.resize(ranked, count))
