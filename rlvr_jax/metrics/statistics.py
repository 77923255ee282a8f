"""pass@k and maj@k of graded samples, by level, type, band and strategy. No JAX.

Intervals are over problems (`metrics.bootstrap`). References:
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

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import mean_interval
from rlvr_jax.types import BANDS, Band, VerdictStatus


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProblemResult:
    """One held-out problem and its n judged samples. Written by `evaluate`.

    All tuples run over the samples. `answers` are values, equal where the verifier
    reads them as equal, and None where a completion gives none. `strategies` is empty
    for tasks without strategies, and `states_gold` if a gold is not a number. `band` is
    the problem's band before RL, None if the run has no evaluation before RL.
    """

    id: str
    level: int
    type: str
    statuses: tuple[VerdictStatus, ...]
    answers: tuple[str | None, ...]
    lengths: tuple[int, ...]
    finished: tuple[bool, ...]
    strategies: tuple[str, ...] = ()
    states_gold: tuple[bool, ...] = ()  # or is correct: `metrics.lenient`
    band: Band | None = None

    def __post_init__(self) -> None:
        """Raises ValueError if the fields do not describe the same samples."""
        sizes = {len(self.answers), len(self.lengths), len(self.finished), self.n}
        if self.states_gold:
            sizes.add(len(self.states_gold))
        if self.strategies:
            sizes.add(len(self.strategies))
        if len(sizes) > 1 or self.n == 0:
            raise ValueError(
                f"problem {self.id}: {self.n} statuses, {len(self.answers)} answers, "
                f"{len(self.lengths)} lengths, {len(self.finished)} finished, "
                f"{len(self.states_gold)} states_gold, "
                f"{len(self.strategies)} strategies; give one of each per sample"
            )

    @property
    def n(self) -> int:
        """Returns the number of samples."""
        return len(self.statuses)

    @property
    def correct(self) -> tuple[bool, ...]:
        """Returns whether each sample is correct; unverified ones are not."""
        return tuple(status == "correct" for status in self.statuses)


def pass_at_k(n: npt.ArrayLike, c: npt.ArrayLike, k: npt.ArrayLike) -> Any:
    """Returns the probability that k of n samples, c correct, contain a correct one.

    The k samples are drawn without replacement: 1 - C(n-c, k) / C(n, k). It is computed
    as 1 - prod_{j<k} (n-c-j) / (n-j), which never overflows. Arrays broadcast; single
    counts give a float. Counts are whole numbers, as int or float (4, 4.0).

    Raises ValueError if the counts contradict each other.
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
        ((drawn < 1) | (drawn > total), "k must be in 1..n"),
        ((right < 0) | (right > total), "c must be in 0..n"),
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
    answers: Sequence[Hashable | None], correct: Sequence[bool], k: int
) -> float:
    """Returns the chance that the most frequent answer among k of n samples is right.

    It is the exact expectation over all ordered draws of k samples without replacement;
    k = n is the usual majority vote. A tie goes to the answer that comes first in the
    draw, so tied answers are equally likely to win. None abstains: it never wins, and a
    draw with only None is wrong. An answer counts as right if its first sample was
    judged right.

    The chance that an answer with m of the n samples wins with j votes is
        C(m, j) [x^(k-j)] sum_t e_t(x) / (t + 1) / C(n, k).
    Here e_t counts the ways in which t other answers tie at j and the rest stay below.
    """
    n = len(answers)
    if len(correct) != n:
        raise ValueError(f"majority_at_k: {n} answers but {len(correct)} verdicts")
    if not 1 <= k <= n:
        raise ValueError(f"majority_at_k: k must be in 1..n, got n={n}, k={k}")
    is_right = dict(reversed(list(zip(answers, correct, strict=True))))
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

    `ways[t, d]` counts draws of d samples in which t answers tie at `votes`. With t
    ties, the t + 1 best answers share the win equally.
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


def summarize_results(
    results: Sequence[ProblemResult],
    *,
    k: Sequence[int],
    resamples: int,
    seed: int,
) -> dict[str, Any]:
    """Returns the JSON dict that summary.json holds under eval.before and eval.after.

    It holds pass@k and maj@k for each k, the fractions of truncated and unverified
    samples and the mean length. If golds are numbers, `lenient` is the share of samples
    that are correct or state the gold anywhere. Each is given overall, by level, by
    type, by both, and by band if problems have one. Tasks with strategies also have,
    for each type, P(strategy | type) as `share` and P(correct | strategy, type) as
    `pass`. An unverified sample counts as not correct. Every {"mean", "low", "high"} is
    a mean over problems with its 95 % interval, whose ends are null if only one problem
    counts (`bootstrap.mean_interval`).
    """
    if not results:
        raise ValueError("summarize_results: no results; evaluate at least one problem")
    interval = functools.partial(mean_interval, resamples=resamples, seed=seed)
    curves = {
        r.id: (
            [pass_at_k(r.n, sum(r.correct), i) for i in k],
            [majority_at_k(r.answers, r.correct, i) for i in k],
        )
        for r in results
    }
    if len(curves) < len(results):
        raise ValueError(
            f"summarize_results: {len(results)} results, {len(curves)} ids"
        )

    scores = functools.partial(_scores, curves=curves, k=k, interval=interval)
    by_level = _group_by(results, lambda r: r.level)
    by_type = _group_by(results, lambda r: r.type)
    banded = [r for r in results if r.band is not None]
    by_band = _group_by(banded, lambda r: BANDS.index(r.band))
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
                for name, part in _group_by(among, lambda r: r.type).items()
            }
            for n, among in by_level.items()
        },
        "strategies": {
            name: _strategy_metrics(among, interval)
            for name, among in by_type.items()
            if any(r.strategies for r in among)
        },
    }


def _scores(
    results: Sequence[ProblemResult],
    *,
    curves: Mapping[str, tuple[list[float], list[float]]],
    k: Sequence[int],
    interval: Callable[..., Interval],
) -> dict[str, Any]:
    """Returns pass@k, maj@k, mean length and fractions over the given problems."""
    samples = sum(r.n for r in results)
    return {
        "problems": len(results),
        "samples": samples,
        **{
            name: {
                str(i): Interval(*point).to_json()
                for i, *point in zip(
                    k, *interval([curves[r.id][row] for r in results]), strict=True
                )
            }
            for row, name in enumerate(("pass@k", "maj@k"))
        },
        **_lenient(results, interval),
        "length_mean": sum(sum(r.lengths) for r in results) / samples,
        "truncated": sum(r.finished.count(False) for r in results) / samples,
        "unverified": sum(r.statuses.count("unverified") for r in results) / samples,
    }


def _lenient(
    results: Sequence[ProblemResult], interval: Callable[..., Interval]
) -> dict[str, Any]:
    """Returns lenient accuracy, {} if a problem's gold is not a number."""
    if not all(r.states_gold for r in results):
        return {}
    return {"lenient": interval([np.mean(r.states_gold) for r in results]).to_json()}


def _group_by(
    results: Sequence[ProblemResult], key: Callable[[ProblemResult], Any]
) -> dict[Any, list[ProblemResult]]:
    groups: dict[Any, list[ProblemResult]] = {}
    for result in sorted(results, key=key):
        groups.setdefault(key(result), []).append(result)
    return groups


def _strategy_metrics(
    results: Sequence[ProblemResult], interval: Callable[..., Interval]
) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for name in sorted({s for r in results for s in r.strategies}):
        used = [r.strategies.count(name) for r in results]
        num_correct = [
            list(zip(r.strategies, r.correct, strict=True)).count((name, True))
            for r in results
        ]
        metrics[name] = {
            "n": sum(used),
            "share": interval(used, denominators=[r.n for r in results]).to_json(),
            "pass": interval(num_correct, denominators=used).to_json(),
        }
    return metrics
