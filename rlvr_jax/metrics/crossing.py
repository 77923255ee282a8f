"""Where two pass@k curves cross. NumPy only.

After RL, a policy tends to beat its base model at small k. The base model wins at large
k, because it solves more problems at least occasionally:
https://arxiv.org/abs/2504.13837. The crossing shows how far RL only sharpened abilities
that the base model already had. The interval around the crossing is ours.
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
    """Returns the counts of verdicts; unverified samples count, but not as correct."""
    return {
        name: (len(each), sum(status == "correct" for status in each))
        for name, each in verdicts.items()
    }


class Crossing(NamedTuple):
    """The smallest k at which the curve that leads at k = 1 stops leading.

    `leads` is true if the first of the two curves leads at k = 1. `max_k` is the number
    of samples that every problem has at least. `k` and the ends of its 95 % interval
    are infinite if they are beyond it.
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
    """Returns where the mean pass@k curves of `ours` and `theirs` cross, for whole k.

    Problems are resampled: together if both sides have the same problems, else
    separately. If the leader does not lead at k = 1 in a resample, the crossing there
    is k = 1. Returns None if neither side leads at k = 1, or if a side has fewer than
    two problems.
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

    It holds pass@k after RL minus before, for each k and paired by problem, and the
    crossing of the two curves (`find_crossing`). Both counts are of the same problems.
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
    """Returns pass@k for each problem and each k, [N, K]."""
    n_N1, c_N1 = np.array([counts[name] for name in names]).T[:, :, None]
    return np.asarray(pass_at_k(n_N1, c_N1, ks))


def _first_lost(lead_RK: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns each row's first k (from 1) without a lead, else infinity."""
    lost_RK = lead_RK <= 1e-12
    return np.where(lost_RK.any(axis=1), lost_RK.argmax(axis=1) + 1.0, np.inf)
