"""Effects within prompts: how a latent tells right from wrong rollouts of one prompt.

A latent that marks hard prompts is high where rollouts fail, but does not predict which
rollout of a prompt fails. So a rollout is compared only with others of its prompt:

    covariance_p = sum_i (m_i - mean m) (y_i - mean y)     over rollouts i of prompt p
    effect       = sum_p covariance_p / sqrt(sum_p |m|^2_p  sum_p |y|^2_p)

Here m_i is a rollout's mean activation, y_i its outcome (1 correct, 0 incorrect), and
|.|^2_p the sum of squares around the prompt's mean. The effect is the correlation of
the two after subtracting each prompt's mean, and is in [-1, 1]. Prompts are the units
of the standard error (linearized, as for a ratio estimator) and of the p-value
(sign-flip).
"""

import dataclasses
from typing import NamedTuple, Self

import numpy as np
from jaxtyping import Float, Int

from sae_jax.stats.features import OutcomeMoments
from sae_jax.stats.significance import sign_flip_p_values


class WithinPromptEffect(NamedTuple):
    """Effects of latents with their standard errors over prompts."""

    value: Float[np.ndarray, " Z"]
    error: Float[np.ndarray, " Z"]

    def take(self, latents: Int[np.ndarray, " K"]) -> "WithinPromptEffect":
        """Returns the effects of some of the latents."""
        return WithinPromptEffect(self.value[latents], self.error[latents])


@dataclasses.dataclass(frozen=True, kw_only=True)
class WithinPromptSums:
    """Sums over each prompt's rollouts around their mean. Made by `within_prompts`.

    Holds the N prompts that have both a correct and an incorrect rollout.
    """

    covariance: Float[np.ndarray, "N Z"]  # of activation and outcome
    activation_scatter: Float[np.ndarray, "N Z"]
    outcome_scatter: Float[np.ndarray, " N"]

    def take(self, prompts: Int[np.ndarray, " M"]) -> Self:
        """Returns the sums of some of the prompts."""
        return type(self)(
            covariance=self.covariance[prompts],
            activation_scatter=self.activation_scatter[prompts],
            outcome_scatter=self.outcome_scatter[prompts],
        )

    def effect(self) -> WithinPromptEffect:
        """Returns every latent's effect; 0 with error 0 if a latent does not vary.

        With one prompt the error is unknown, so it is NaN.
        """
        squares_Z = self.activation_scatter.sum(axis=0)
        outcome = self.outcome_scatter.sum()
        varies_Z = (squares_Z > 0) & (outcome > 0)
        norm_Z = np.sqrt(np.where(varies_Z, squares_Z * outcome, 1.0))
        value_Z = np.where(varies_Z, self.covariance.sum(axis=0) / norm_Z, 0.0)
        size_NZ = self.activation_scatter / np.where(varies_Z, squares_Z, 1.0)
        size_NZ = size_NZ + (self.outcome_scatter / max(outcome, 1e-300))[:, None]
        influence_NZ = self.covariance / norm_Z - 0.5 * value_Z * size_NZ
        N = len(self.outcome_scatter)
        correction = N / (N - 1) if N > 1 else np.nan
        error_Z = np.sqrt(correction * (influence_NZ**2).sum(axis=0))
        return WithinPromptEffect(value_Z, np.where(varies_Z, error_Z, 0.0))

    def p_values(self, latents: Int[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
        """Returns two-sided p-values for no effect, by random sign flips of prompts."""
        return sign_flip_p_values(self.covariance[:, latents])


def within_prompts(moments: OutcomeMoments) -> WithinPromptSums:
    """Returns the sums within each prompt that has both outcomes.

    >>> moments = OutcomeMoments(  # incorrect rollouts of 1 and 3, a correct one of 5
    ...     num_rollouts=np.array([[2.0, 1.0]]),
    ...     sums=np.array([[[4.0], [5.0]]]),
    ...     squares=np.array([[[10.0], [25.0]]]),
    ... )
    >>> within_prompts(moments).effect().value.round(3).tolist()
    [0.866]
    """
    has_both_P = (moments.num_rollouts > 0).all(axis=1)
    n_N2 = moments.num_rollouts[has_both_P]
    total_N1 = n_N2.sum(axis=1, keepdims=True)
    sums_N2Z = moments.sums[has_both_P]
    squares_NZ = moments.squares[has_both_P].sum(axis=1)
    scatter_NZ = squares_NZ - sums_N2Z.sum(axis=1) ** 2 / np.maximum(total_N1, 1)
    # Rounding leaves this much scatter in a constant, which has none.
    scatter_NZ = np.where(scatter_NZ > 1e-12 * squares_NZ, scatter_NZ, 0.0)
    outcome_N = n_N2.prod(axis=1) / np.maximum(total_N1[:, 0], 1)
    means_N2Z = sums_N2Z / n_N2[:, :, None]
    difference_NZ = np.where(scatter_NZ > 0, means_N2Z[:, 1] - means_N2Z[:, 0], 0.0)
    return WithinPromptSums(
        covariance=outcome_N[:, None] * difference_NZ,
        activation_scatter=scatter_NZ,
        outcome_scatter=outcome_N,
    )
