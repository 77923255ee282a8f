"""VCRL: a curriculum by the variance of a problem's group rewards."""

import dataclasses

import numpy as np

from job_jax.schema import NonNegativeInt, UnitInterval
from rlvr_jax.data.curricula.adaptive import EpsilonUniform
from rlvr_jax.data.curricula.base import (
    BatchIndices,
    DrawState,
    move_last,
    repeat_to_size,
    sample_without_replacement,
)
from rlvr_jax.data.difficulty import Difficulty


@dataclasses.dataclass(frozen=True, kw_only=True)
class VCRL(EpsilonUniform):
    """Problems whose groups vary, and a memory bank of the ones that varied most.

    VCRL (https://arxiv.org/abs/2509.19803): a batch is drawn uniformly; problems that
    vary less than a threshold are replaced from a bank of problems with high scores.

    Deviations:
      1. A problem is judged by its score so far (a moving average with momentum
         `difficulty.variance_momentum`), not by this step's completions, so none are
         sampled in vain. A problem never tried is kept; one that mostly got no
         verdict is replaced.
      2. The bank is every problem at or above the threshold, drawn in proportion to
         its score; the paper takes the highest score first.
    """

    early_threshold: UnitInterval = 0.3  # least variance score in the early steps
    late_threshold: UnitInterval = 0.8  # least variance score afterwards
    # RL steps that count as early
    early_steps: NonNegativeInt = 20

    def pick_problems(
        self, difficulty: Difficulty, draw: DrawState, batch_size: int
    ) -> BatchIndices:
        """Returns the draw's candidates; ones that vary too little are replaced."""
        rng = draw.rng
        is_early = draw.step < self.early_steps
        threshold = self.early_threshold if is_early else self.late_threshold
        score_N, seldom_judged_N = difficulty.vcrl_score, difficulty.seldom_judged
        shuffled = move_last(rng.permutation(difficulty.size), draw.asked)
        candidates = repeat_to_size(shuffled, batch_size)
        # A comparison with NaN, the score of a problem never tried, is False.
        too_low = (score_N < threshold)[candidates] | seldom_judged_N[candidates]
        varied, dropped = candidates[~too_low], candidates[too_low]
        in_bank_N = (score_N >= threshold) & ~seldom_judged_N
        in_bank_N[varied] = False
        bank = np.flatnonzero(in_bank_N)
        bank = bank[sample_without_replacement(score_N[bank], rng)]
        bank = move_last(bank, draw.asked)
        room = batch_size - len(varied)
        replacements = np.concatenate([bank, dropped])[:room]
        return BatchIndices(
            problems=np.concatenate([varied, replacements]),
            num_fallback=max(0, room - len(bank)),
        )
