"""The policy's completions before RL, with their residual stream and outcomes."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from job_jax.schema import ConfigError
from rlvr_jax.types import Outcome
from sae_jax.data.corpus import Corpus
from sae_jax.data.tokens import Documents
from sae_jax.stats.features import outcome_moments
from sae_jax.stats.within_prompts import WithinPromptSums, within_prompts


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
        count. In padding rows no token counts, and the outcome is unverified.
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
        """Returns mean correct minus mean incorrect activation, and the overall mean.

        The difference is taken between completions of one problem, and averaged over
        problems with weight n1 n0 / (n1 + n0), for n1 correct and n0 incorrect ones.
        The overall mean is over all tokens. Raises ConfigError if no problem has both.
        """
        sums_SD = np.zeros((len(self.outcomes), self.width))
        tokens_S = np.zeros(len(self.outcomes))
        for block, _ in self.blocks():
            ids_B = self.corpus.block_document_ids(block)
            real_B = ids_B >= 0
            x_BD = np.where(block.mask[:, :, None], block.x, 0.0).sum(axis=1)
            sums_SD[ids_B[real_B]] = x_BD[real_B]
            tokens_S[ids_B[real_B]] = block.mask.sum(axis=1)[real_B]
        means_SD = sums_SD / np.maximum(tokens_S, 1.0)[:, None]
        within = self.within_problems(means_SD)
        difference_D = within.covariance.sum(axis=0)
        if not difference_D.any():
            raise ConfigError(
                "no problem has a correct and an incorrect completion that differ, "
                "so there is no direction from one to the other; use more problems "
                "(probe.num_problems)"
            )
        difference_D = difference_D / within.outcome_scatter.sum()
        return difference_D, sums_SD.sum(axis=0) / max(tokens_S.sum(), 1.0)

    def within_problems(self, means_SK: Float[np.ndarray, "S K"]) -> WithinPromptSums:
        """Returns how K means per completion vary with outcomes within problems."""
        return within_prompts(
            outcome_moments(
                means_SK,
                correct=self.outcomes == Outcome.correct,
                verified=self.outcomes != Outcome.unverified,
                prompts=self.problem_index,
                num_prompts=int(self.problem_index.max()) + 1,
            )
        )

    def project_tokens(
        self, directions: Float[np.ndarray, "K D"]
    ) -> tuple[Float[np.ndarray, "N K"], Int[np.ndarray, " N"]]:
        """Returns x . direction of all N tokens, and the completion of each token."""
        projections, completions = [], []
        for block, _ in self.blocks():
            ids_B = self.corpus.block_document_ids(block)
            projections.append(block.x[block.mask] @ directions.T)
            completions.append(np.repeat(ids_B, block.mask.sum(axis=1)))
        return np.concatenate(projections), np.concatenate(completions)

    def projection_rms(
        self, direction: Float[np.ndarray, " D"], center: Float[np.ndarray, " D"]
    ) -> float:
        """Returns the root mean square over tokens of (x - center) . direction."""
        projection_N1, _ = self.project_tokens(direction[None])
        along_N1 = projection_N1 - center @ direction
        return float(np.sqrt((along_N1**2).sum() / max(len(along_N1), 1)))
