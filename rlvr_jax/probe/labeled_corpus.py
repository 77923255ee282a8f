"""The policy's completions before RL: their residual stream, and how they came out."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from rlvr_jax.types import Outcome
from sae_jax.data.corpus import Corpus
from sae_jax.data.tokens import Documents


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabeledCorpus:
    """S completions with their activations and outcomes. Made by stage `probe`.

    Document i of `corpus` is completion i, of problem `problem_index[i]`; `outcomes`
    are values of `Outcome`.
    """

    corpus: Corpus
    problem_index: Int[np.ndarray, " S"]
    outcomes: Int[np.ndarray, " S"]

    @property
    def width(self) -> int:
        """Returns the width of the residual stream."""
        return self.corpus.shards.width

    def blocks(self) -> Iterator[tuple[Documents, Int[np.ndarray, " B"]]]:
        """Yields a few completions at a time, with their outcomes.

        A block has activations `x` [B, T, D] and a `mask` [B, T] of the tokens that
        count. Rows of padding count no token, and their outcome is unverified.
        """
        for block in self.corpus.blocks():
            ids_B = self.corpus.block_document_ids(block)
            outcomes_B = np.where(
                ids_B >= 0, self.outcomes[ids_B], int(Outcome.unverified)
            )
            yield block, outcomes_B.astype(np.int32)

    def outcome_direction(
        self,
    ) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
        """Returns the mean correct less the mean incorrect activation, and the mean.

        Means are over tokens; the second one is over all of them.
        """
        sums, counts = np.zeros((len(Outcome), self.width)), np.zeros(len(Outcome))
        for block, outcomes_B in self.blocks():
            x_BD = np.where(block.mask[:, :, None], block.x, 0.0).sum(axis=1)
            np.add.at(sums, outcomes_B, x_BD)
            np.add.at(counts, outcomes_B, block.mask.sum(axis=1))
        means = sums / np.maximum(counts, 1.0)[:, None]
        difference_D = means[Outcome.correct] - means[Outcome.incorrect]
        return difference_D, sums.sum(axis=0) / max(counts.sum(), 1.0)

    def projection_rms(
        self, direction: Float[np.ndarray, " D"], center: Float[np.ndarray, " D"]
    ) -> float:
        """Returns the root mean square over tokens of (x - center) . direction."""
        sum_squares = tokens = 0.0
        for block, _ in self.blocks():
            x_BTD = np.where(block.mask[:, :, None], block.x, 0)
            along_BT = (x_BTD - center) @ direction
            sum_squares += float((along_BT[block.mask] ** 2).sum())
            tokens += int(block.mask.sum())
        return float(np.sqrt(sum_squares / max(tokens, 1.0)))
