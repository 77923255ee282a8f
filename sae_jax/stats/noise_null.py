"""Changes of features that noise in the weights does not explain.

Any change of the weights moves a latent the same way in most prompts of the same texts.
So a test over prompts calls nearly every move a finding. Learning differs from other
changes because it moves *some* features farther. So we read the same texts with N draws
of weight noise, and compare each feature with its own N moves under noise:

    t = (m - mean(m_noise)) / (sd(m_noise) sqrt(1 + 1/N)),     N - 1 degrees of freedom

where m is the change of its mean activation (or of its firing rate). The score of a
finding is the two-sided p of its t. A feature that is not a finding, or that moved less
than under noise, has the score 1. Scores are not p-values yet: a latent that fires
seldom moves in large jumps, and was selected because of one. So each draw's own
findings are scored against the N - 1 other draws, and a feature's p-value is its rank
among these scores:

    p = (1 + #{scores of draws <= score}) / (1 + N tested)

If learning were one more draw of noise, it would rank like any other draw. The p-values
are then adjusted by Benjamini-Hochberg, so q <= 0.05 needs N >= 20. The t is Student's
prediction interval, and the rank over all features and draws is SAM's estimate of false
discoveries (https://doi.org/10.1073/pnas.091062498); their combination is ours.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import stdtr

from sae_jax.stats.dynamics import (
    ChangeEstimate,
    Findings,
    Thresholds,
    adjust_p_values,
    find_changes,
)

MIN_DRAWS = 20  # with fewer, no q is 0.05 or less


class _Scores(NamedTuple):
    """Scores of findings; 1 for a feature that is not a finding."""

    mean: Float[np.ndarray, " Z"]
    rate: Float[np.ndarray, " Z"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoiseNull:
    """How N draws of weight noise move one band's features. Made by `from_draws`.

    `mean` and `rate` hold the moves of mean activations and firing rates; `mean_scores`
    and `rate_scores` are the scores of the draws' own findings, in ascending order.
    """

    thresholds: Thresholds
    mean: Float[np.ndarray, "N Z"]
    rate: Float[np.ndarray, "N Z"]
    mean_scores: Float[np.ndarray, " M"]
    rate_scores: Float[np.ndarray, " M"]

    @classmethod
    def from_draws(
        cls, draws: Sequence[ChangeEstimate], thresholds: Thresholds
    ) -> Self:
        """Returns the null of these draws, each read on the texts of one band.

        Raises ValueError if there are fewer than MIN_DRAWS.
        """
        if len(draws) < MIN_DRAWS:
            raise ValueError(
                f"{len(draws)} draws of noise: with fewer than {MIN_DRAWS} nothing can "
                "pass a false discovery rate of 0.05; draw more"
            )
        mean_NZ, rate_NZ = (
            np.stack([np.diff(vars(draw)[name], axis=0)[0] for draw in draws])
            for name in ("mean", "rate")
        )
        scores = [
            _score(
                draw,
                find_changes(draw, thresholds),
                np.delete(mean_NZ, i, axis=0),
                np.delete(rate_NZ, i, axis=0),
            )
            for i, draw in enumerate(draws)
        ]
        return cls(
            thresholds=thresholds,
            mean=mean_NZ,
            rate=rate_NZ,
            mean_scores=_sort_findings([each.mean for each in scores]),
            rate_scores=_sort_findings([each.rate for each in scores]),
        )

    def compare(self, change: ChangeEstimate) -> Findings:
        """Returns the findings of `find_changes` that noise does not explain."""
        found = find_changes(change, self.thresholds)
        tested = change.is_tested(self.thresholds)
        scores = _score(change, found, self.mean, self.rate)
        q_mean, q_rate = (
            adjust_p_values(self._rank(score_Z, pool, tested), score_Z < 1, tested)
            for score_Z, pool in (
                (scores.mean, self.mean_scores),
                (scores.rate, self.rate_scores),
            )
        )
        fdr = self.thresholds.fdr
        return Findings(
            strengthened=found.strengthened & (q_mean <= fdr),
            suppressed=found.suppressed & (q_mean <= fdr),
            emerging=found.emerging & (q_rate <= fdr),
            q_mean=q_mean,
            q_rate=q_rate,
            num_tested=found.num_tested,
        )

    def _rank(
        self,
        score_Z: Float[np.ndarray, " Z"],
        pool: Float[np.ndarray, " M"],
        tested_Z: Bool[np.ndarray, " Z"],
    ) -> Float[np.ndarray, " Z"]:
        as_extreme_Z = np.searchsorted(pool, score_Z, side="right")
        return (1 + as_extreme_Z) / (1 + len(self.mean) * max(tested_Z.sum(), 1))


def _sort_findings(scores: Sequence[Float[np.ndarray, " Z"]]) -> np.ndarray:
    pool = np.concatenate(scores)
    return np.sort(pool[pool < 1])


def _score(
    change: ChangeEstimate,
    found: Findings,
    mean_NZ: Float[np.ndarray, "N Z"],
    rate_NZ: Float[np.ndarray, "N Z"],
) -> _Scores:
    t_mean_Z, t_rate_Z = (
        _student_t(np.diff(both, axis=0)[0], noise_NZ)
        for both, noise_NZ in ((change.mean, mean_NZ), (change.rate, rate_NZ))
    )
    beyond_mean_Z = (found.strengthened & (t_mean_Z > 0)) | (
        found.suppressed & (t_mean_Z < 0)
    )
    beyond_rate_Z = found.emerging & (t_rate_Z > 0)
    freedom = len(mean_NZ) - 1
    return _Scores(
        mean=np.where(beyond_mean_Z, 2 * stdtr(freedom, -np.abs(t_mean_Z)), 1.0),
        rate=np.where(beyond_rate_Z, 2 * stdtr(freedom, -np.abs(t_rate_Z)), 1.0),
    )


def _student_t(
    move_Z: Float[np.ndarray, " Z"], noise_NZ: Float[np.ndarray, "N Z"]
) -> Float[np.ndarray, " Z"]:
    """Returns t of each move; infinite if noise never moves a feature that moved."""
    N = len(noise_NZ)
    apart_Z = move_Z - noise_NZ.mean(axis=0)
    sd_Z = noise_NZ.std(axis=0, ddof=1) * np.sqrt(1 + 1 / N)
    safe_Z = np.where(sd_Z > 0, sd_Z, 1.0)
    never_Z = np.where(apart_Z == 0, 0.0, np.copysign(np.inf, apart_Z))
    return np.where(sd_Z > 0, apart_Z / safe_Z, never_Z)
