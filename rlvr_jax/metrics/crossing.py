"""Where two pass@k curves cross. NumPy only.

RL tends to lead its base at small k, and the base RL at large k, for it solves more
problems now and then: https://arxiv.org/abs/2504.13837. Where the two meet tells how
far RL sharpened what was there; the interval of that point is ours.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from job_jax.resampling import Interval, resample_counts
from rlvr_jax.metrics.bootstrap import CONFIDENCE, mean_interval
from rlvr_jax.metrics.statistics import pass_at_k
from rlvr_jax.rollouts.graded import Verdicts

# Samples and correct samples of each problem, by its id.
Counts = Mapping[str, tuple[int, int]]


def count_correct(verdicts: Verdicts) -> Counts:
    """Returns the counts of verdicts; an unverified sample is a sample, not correct."""
    return {
        name: (len(each), sum(status == "correct" for status in each))
        for name, each in verdicts.items()
    }


class Crossing(NamedTuple):
    """The smallest k at which the curve that leads at k = 1 leads no more.

    `leads` says whether that is the first of the two. `k` and the ends of its 95 %
    interval are infinite beyond `max_k`, the most samples that every problem has.
    """

    leads: bool
    k: float
    low: float
    high: float
    max_k: int

    def to_json(self) -> dict[str, Any]:
        """Returns the fields, with null for "beyond max_k"."""
        ends = {"k": self.k, "low": self.low, "high": self.high}
        whole = {n: int(k) if np.isfinite(k) else None for n, k in ends.items()}
        return {"leads": self.leads, **whole, "max_k": self.max_k}


def find_crossing(
    ours: Counts, theirs: Counts, *, resamples: int, seed: int
) -> Crossing | None:
    """Returns where the mean pass@k of `ours` and of `theirs` cross, for whole k.

    Problems are resampled: the same ones for both sides where both have the same, else
    each side apart. In a resample where the leader does not lead at k = 1 they cross
    there. None without a leader at k = 1, and where a side has fewer than two problems.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    max_k = min(n for side in (ours, theirs) for n, _ in side.values())
    is_paired = ours.keys() == theirs.keys()
    rng = np.random.default_rng(seed)
    curves = []
    for side in (ours, theirs):
        names = ours if is_paired else side
        pass_NK = _pass_curves(side, [*names], np.arange(1, max_k + 1))
        draw = np.random.default_rng(seed) if is_paired else rng
        counts_RN = resample_counts(len(side), resamples=resamples, seed=draw)
        everything_1N = np.ones((1, len(side)), np.int64)
        curves.append(np.concatenate([everything_1N, counts_RN]) @ pass_NK / len(side))
    lead_RK = curves[0] - curves[1]  # of all problems, then of each resample
    if abs(lead_RK[0, 0]) < 1e-12:
        return None
    leads = bool(lead_RK[0, 0] > 0)
    k, *resampled = _first_lost(lead_RK if leads else -lead_RK)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], method="inverted_cdf")
    return Crossing(leads, float(k), float(low), float(high), max_k)


def summarize_gain(
    before: Counts, after: Counts, *, k: Sequence[int], resamples: int, seed: int
) -> dict[str, Any]:
    """Returns the JSON dict that summary.json holds under eval.gain.

    pass@k after RL less before for each k, paired by problem, and where the two curves
    cross (`find_crossing`). Both are of the same problems.
    """
    options = {"resamples": resamples, "seed": seed}
    pass_NK, pass_before_NK = (
        _pass_curves(counts, [*after], np.array(k)) for counts in (after, before)
    )
    gain = mean_interval(pass_NK - pass_before_NK, bounds=(-1.0, 1.0), **options)
    crossing = find_crossing(after, before, **options)
    return {
        "pass@k": {
            str(i): Interval(*point).to_json()
            for i, *point in zip(k, *gain, strict=True)
        },
        "crossing": crossing.to_json() if crossing else None,
    }


def _pass_curves(
    counts: Counts, names: Sequence[str], ks: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Returns pass@k of each of these problems for each k, [N, K]."""
    n_N1, c_N1 = np.array([counts[name] for name in names]).T[:, :, None]
    return np.asarray(pass_at_k(n_N1, c_N1, ks))


def _first_lost(lead_RK: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns for each row the first k (from 1) without a lead, infinity for none."""
    lost_RK = lead_RK <= 1e-12
    return np.where(lost_RK.any(axis=1), lost_RK.argmax(axis=1) + 1.0, np.inf)
