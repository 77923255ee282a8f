"""What a set of judged samples says about a policy, with intervals. No JAX.

Samples of one problem resemble each other, so an interval within one run resamples
*problems* (percentile bootstrap), never single samples. Over runs of other seeds it is
Student's t of the runs' means. References:
  pass@k  https://arxiv.org/abs/2107.03374  (the unbiased estimator)
  maj@k   https://arxiv.org/abs/2203.11171  (self-consistency)
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from rlvr_jax.types import BANDS, Band, VerdictStatus

Interval = dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemResult:
    """One held-out problem and its n judged samples. Written by `evaluate`.

    All tuples run over the samples. `answers` are normalised, None where a completion
    gives none; `strategies` is empty where the task knows no strategies. `band` is
    where the problem stood before RL, None where that is not known of any.
    """

    id: str
    level: int
    type: str
    statuses: tuple[VerdictStatus, ...]
    answers: tuple[str | None, ...]
    lengths: tuple[int, ...]
    finished: tuple[bool, ...]
    strategies: tuple[str, ...] = ()
    band: Band | None = None

    def __post_init__(self) -> None:
        """Refuses fields that do not describe the same samples."""
        sizes = {len(self.answers), len(self.lengths), len(self.finished), self.n}
        if self.strategies:
            sizes.add(len(self.strategies))
        if len(sizes) > 1 or self.n == 0:
            raise ValueError(
                f"problem {self.id}: {self.n} statuses, {len(self.answers)} answers, "
                f"{len(self.lengths)} lengths, {len(self.finished)} finished, "
                f"{len(self.strategies)} strategies; give one of each per sample"
            )

    @property
    def n(self) -> int:
        """Returns the number of samples."""
        return len(self.statuses)

    @property
    def rights(self) -> tuple[bool, ...]:
        """Returns for each sample whether it was judged right; unjudged is not."""
        return tuple(status == "right" for status in self.statuses)


def pass_at_k(n: npt.ArrayLike, c: npt.ArrayLike, k: npt.ArrayLike) -> Any:
    """Returns the chance that k of a problem's n samples, c right, hold a right one.

    Without replacement: 1 - C(n-c, k) / C(n, k), multiplied out as
    1 - prod_{j<k} (n-c-j) / (n-j), which overflows for no n. Arrays broadcast;
    single counts give a float. Counts are whole numbers, of either kind (4, 4.0).

    Raises ValueError where the counts contradict each other.
    """
    counts = np.broadcast_arrays(np.asarray(n), np.asarray(c), np.asarray(k))
    for name, array in zip("nck", counts, strict=True):
        whole = array.dtype.kind in "iu"
        if array.dtype.kind == "f":
            whole = bool((np.isfinite(array) & (array == np.floor(array))).all())
        if not whole:
            raise ValueError(f"pass_at_k: {name}={array} must be whole numbers")
    total, right, drawn = (array.astype(np.int64) for array in counts)
    for wrong, rule in (
        ((drawn < 1) | (drawn > total), "k must lie in 1..n"),
        ((right < 0) | (right > total), "c must lie in 0..n"),
    ):
        if wrong.any():
            at = np.unravel_index(np.argmax(wrong), wrong.shape)
            raise ValueError(
                f"pass_at_k: {rule}, got n={total[at]}, c={right[at]}, k={drawn[at]}"
            )
    miss = np.ones(total.shape)
    for j in range(int(drawn.max(initial=0))):
        factor = np.maximum(total - right - j, 0) / np.maximum(total - j, 1)
        miss = np.where(j < drawn, miss * factor, miss)
    return float(1.0 - miss) if miss.ndim == 0 else 1.0 - miss


def majority_at_k(
    answers: Sequence[Hashable | None], rights: Sequence[bool], k: int
) -> float:
    """Returns the chance that the most frequent answer among k of n samples is right.

    The expectation over every ordered draw of k samples without replacement, exact;
    k = n is the usual majority vote. A tie goes to the answer that comes first in the
    draw, which makes tied answers equally likely to win. None abstains: it never wins,
    and a draw of nothing but None is wrong. An answer counts as right when its first
    sample was judged right.

    An answer with m of the n samples wins j votes to at most j with chance
        C(m, j) [x^(k-j)] sum_t e_t(x) / (t + 1) / C(n, k),
    where e_t collects the ways in which t other answers tie at j and the rest stay
    below.
    """
    n = len(answers)
    if len(rights) != n:
        raise ValueError(f"majority_at_k: {n} answers but {len(rights)} rights")
    if not 1 <= k <= n:
        raise ValueError(f"majority_at_k: k must lie in 1..n, got n={n}, k={k}")
    is_right = dict(reversed(list(zip(answers, rights, strict=True))))
    sizes = collections.Counter(answers)
    abstained = sizes.pop(None, 0)
    wins = 0.0
    for answer, size in sizes.items():
        if is_right[answer]:
            others = [m for other, m in sizes.items() if other != answer]
            for votes in range(1, min(size, k) + 1):
                ways = _ways_not_beaten(others, abstained, votes, k - votes)
                wins += math.comb(size, votes) * ways
    return wins / math.comb(n, k)


def _ways_not_beaten(
    others: Sequence[int], abstained: int, votes: int, drawn: int
) -> float:
    """Returns the weighted ways to draw `drawn` of the others, none above `votes`.

    `ways[t, d]` counts draws of d samples in which t answers tie at `votes`; a draw
    with t ties gives each of its t + 1 best answers an equal part of the win.
    """
    ways = np.zeros((drawn // votes + 1, drawn + 1))
    for d in range(min(abstained, drawn) + 1):
        ways[0, d] = math.comb(abstained, d)
    for size in others:
        grown = np.zeros_like(ways)
        for more in range(min(size, votes, drawn) + 1):
            part = math.comb(size, more) * ways[:, : drawn + 1 - more]
            if more < votes:
                grown[:, more:] += part
            else:
                grown[1:, more:] += part[:-1]
        ways = grown
    return float(np.sum(ways[:, drawn] / np.arange(1, len(ways) + 1)))


def bootstrap_interval(
    values: npt.ArrayLike,
    *,
    per: npt.ArrayLike | None = None,
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> Interval:
    """Returns {"mean", "low", "high"} of sum(values) / sum(per) over problems.

    One value a problem; without `per` this is the plain mean. With it, a ratio of
    counts such as P(right | strategy): problems are resampled whole, and resamples
    without a single case are left out. `low` and `high` are percentiles of the
    resampled ratio that hold `level` of it.
    """
    value_N = np.asarray(values, np.float64)
    per_N = np.ones_like(value_N) if per is None else np.asarray(per, np.float64)
    if value_N.ndim != 1 or value_N.shape != per_N.shape or per_N.sum() == 0:
        raise ValueError(
            f"bootstrap_interval: values {value_N.shape} over per {per_N.shape}, "
            f"summing to {per_N.sum()}; give one of each per problem, not all 0"
        )
    draws_RN = _draws(len(value_N), resamples, np.random.default_rng(seed))
    over_R, under_R = draws_RN @ value_N, draws_RN @ per_N
    ratio = over_R[under_R > 0] / under_R[under_R > 0]
    return _percentiles(value_N.sum() / per_N.sum(), ratio, level)


def bootstrap_difference(
    values: npt.ArrayLike,
    others: npt.ArrayLike,
    *,
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> Interval:
    """Returns the interval of mean(values) - mean(others), unlike problems in each.

    Both sides are resampled, each apart. Where they are the same problems,
    `bootstrap_interval` of their differences is narrower.
    """
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    if any(side.ndim != 1 or not side.size for side in sides):
        raise ValueError(
            f"bootstrap_difference: values {sides[0].shape}, others {sides[1].shape}; "
            "give one value a problem, and at least one problem a side"
        )
    rng = np.random.default_rng(seed)
    means = [_draws(len(side), resamples, rng) @ side / len(side) for side in sides]
    return _percentiles(sides[0].mean() - sides[1].mean(), means[0] - means[1], level)


def t_interval(values: npt.ArrayLike, *, level: float = 0.95) -> Interval:
    """Returns the mean of at least two runs, with Student's interval."""
    value_R = np.asarray(values, np.float64)
    if value_R.ndim != 1 or len(value_R) < 2:
        raise ValueError(f"t_interval: {value_R.shape}; an interval needs two runs")
    error = math.sqrt(value_R.var(ddof=1) / len(value_R))
    return _students(value_R.mean(), error, len(value_R) - 1, level)


def welch_interval(
    values: npt.ArrayLike, others: npt.ArrayLike, *, level: float = 0.95
) -> Interval:
    """Returns the interval of mean(values) - mean(others), two or more runs in each.

    Welch's: neither variances nor numbers of runs need be equal.
    """
    sides = [np.asarray(side, np.float64) for side in (values, others)]
    if any(side.ndim != 1 or len(side) < 2 for side in sides):
        raise ValueError(
            f"welch_interval: values {sides[0].shape}, others {sides[1].shape}; an "
            "interval needs two runs a side"
        )
    parts = [side.var(ddof=1) / len(side) for side in sides]
    below = sum(p * p / (len(s) - 1) for p, s in zip(parts, sides, strict=True))
    freedom = sum(parts) ** 2 / below if below > 0 else 1.0
    difference = sides[0].mean() - sides[1].mean()
    return _students(difference, math.sqrt(sum(parts)), freedom, level)


def _draws(
    size: int, resamples: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Returns how often each resample draws each problem: all that sums depend on."""
    return rng.multinomial(size, np.full(size, 1 / size), size=resamples)


def _percentiles(
    mean: float, resampled: npt.NDArray[np.float64], level: float
) -> Interval:
    tail = (1 - level) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return {"mean": float(mean), "low": float(low), "high": float(high)}


def _students(mean: float, error: float, freedom: float, level: float) -> Interval:
    half = float(stdtrit(freedom, (1 + level) / 2)) * error
    return {"mean": float(mean), "low": float(mean - half), "high": float(mean + half)}


def summarise(
    results: Sequence[ProblemResult],
    *,
    k: Sequence[int],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """Returns the JSON dict that summary.json holds under eval.before and eval.after.

    pass@k and maj@k for each k, with the shares of truncated and unjudged samples and
    the mean length: overall, by level, by type and by both, and by band where problems
    have one. For tasks with strategies also, per type, P(strategy | type) as `share`
    and P(right | strategy, type) as `pass`. An unjudged sample counts as not right.
    """
    if not results:
        raise ValueError("summarise: no results; evaluate at least one problem")
    interval = functools.partial(bootstrap_interval, resamples=resamples, seed=seed)
    curves = {
        r.id: (
            [pass_at_k(r.n, sum(r.rights), i) for i in k],
            [majority_at_k(r.answers, r.rights, i) for i in k],
        )
        for r in results
    }
    if len(curves) < len(results):
        raise ValueError(f"summarise: {len(results)} results, {len(curves)} ids")

    scores = functools.partial(_scores, curves=curves, k=k, interval=interval)
    by_level = _grouped(results, lambda r: r.level)
    by_type = _grouped(results, lambda r: r.type)
    banded = [r for r in results if r.band is not None]
    by_band = _grouped(banded, lambda r: BANDS.index(r.band))
    return {
        **scores(results),
        **(
            {"by_band": {BANDS[i]: scores(g) for i, g in by_band.items()}}
            if by_band
            else {}
        ),
        "by_level": {str(n): scores(among) for n, among in by_level.items()},
        "by_type": {name: scores(among) for name, among in by_type.items()},
        "by_level_type": {
            str(n): {
                name: scores(part)
                for name, part in _grouped(among, lambda r: r.type).items()
            }
            for n, among in by_level.items()
        },
        "strategies": {
            name: _strategies(among, interval)
            for name, among in by_type.items()
            if any(r.strategies for r in among)
        },
    }


def _scores(
    among: Sequence[ProblemResult],
    *,
    curves: Mapping[str, tuple[list[float], list[float]]],
    k: Sequence[int],
    interval: Callable[..., Interval],
) -> dict[str, Any]:
    """Returns pass@k, maj@k and shares over some problems, from each one's curves."""
    samples = sum(r.n for r in among)
    return {
        "problems": len(among),
        "samples": samples,
        **{
            name: {
                str(i): interval([curves[r.id][row][column] for r in among])
                for column, i in enumerate(k)
            }
            for row, name in enumerate(("pass@k", "maj@k"))
        },
        "length_mean": sum(sum(r.lengths) for r in among) / samples,
        "truncated": sum(r.finished.count(False) for r in among) / samples,
        "unjudged": sum(r.statuses.count("unjudged") for r in among) / samples,
    }


def _grouped(
    results: Sequence[ProblemResult], key: Callable[[ProblemResult], Any]
) -> dict[Any, list[ProblemResult]]:
    groups: dict[Any, list[ProblemResult]] = {}
    for result in sorted(results, key=key):
        groups.setdefault(key(result), []).append(result)
    return groups


def _strategies(
    among: Sequence[ProblemResult], interval: Callable[..., Interval]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sorted({s for r in among for s in r.strategies}):
        used = [r.strategies.count(name) for r in among]
        right = [
            list(zip(r.strategies, r.rights, strict=True)).count((name, True))
            for r in among
        ]
        found[name] = {
            "n": sum(used),
            "share": interval(used, per=[r.n for r in among]),
            "pass": interval(right, per=used),
        }
    return found
