"""Reward `format`: whether the answer has the form that its verifier expects."""

from rlvr_jax.algorithms.reward import CompletionTexts, Reward, Scores
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import strip_confidence


class Format(Reward):
    """1 if the answer stands where and how its verifier looks for it, else 0."""

    def score(self, completions: CompletionTexts) -> Scores:
        """Returns each text's `Verifier.is_well_formed`, without its confidence."""
        return Scores(
            [
                float(
                    get_verifier(problem.verifier).is_well_formed(
                        problem, strip_confidence(text)
                    )
                )
                for problem, text in zip(
                    completions.problems, completions.texts, strict=True
                )
            ]
        )
