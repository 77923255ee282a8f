"""Chooses latents by their effect on one half of the prompts, confirms on the other.

The K latents of largest effect within prompts (`within_prompts`) on the first half are
candidates. Their effects there are biased upwards by this choice. So only the second
half decides whether the effect exists in the same direction (one-sided sign-flip test,
prompts as units; Benjamini-Hochberg over the K), and how large it is. That estimate
still has a standard error, so it is shrunk by the positive-part rule

    shrunken = effect max(0, 1 - (error / effect)^2)

https://doi.org/10.2307/2284155 (Efron and Morris, 1973) has the rule for many means;
its use here, one latent at a time, is ours.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from sae_jax.stats.significance import benjamini_hochberg
from sae_jax.stats.within_prompts import WithinPromptEffect, WithinPromptSums

_MIN_PROMPTS = 2  # in a half, because one prompt has no standard error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Confirmation:
    """The test of K candidate latents. Made by `confirm_effects`.

    `first` has every latent's effect on the first half, and `second` the candidates'
    effects on the second. `num_prompts` counts the prompts with both outcomes in each
    half. `halves_correlation` correlates the two halves' effects over all latents that
    could be chosen, not only the candidates.
    """

    latents: Int[np.ndarray, " K"]
    first: Float[np.ndarray, " Z"]
    second: WithinPromptEffect
    q_values: Float[np.ndarray, " K"]
    num_prompts: tuple[int, int]
    halves_correlation: float

    @property
    def sign_agreement(self) -> float:
        """Returns the share of candidates with effects of one sign on both halves."""
        first_K = self.first[self.latents]
        same_K = np.sign(first_K) == np.sign(self.second.value)
        return float(same_K.mean()) if len(same_K) else 0.0

    @property
    def shrunken(self) -> Float[np.ndarray, " K"]:
        """Returns the effects on the second half, each shrunk by its error."""
        value_K, error_K = self.second
        safe_K = np.where(value_K == 0, 1.0, value_K)
        return value_K * np.maximum(0.0, 1.0 - (error_K / safe_K) ** 2)

    def confirmed(self, fdr: float) -> Bool[np.ndarray, " K"]:
        """Returns which candidates the second half confirms, at this FDR."""
        return (self.q_values <= fdr) & (self.shrunken != 0)


def confirm_effects(
    sums: WithinPromptSums,
    usable: Bool[np.ndarray, " Z"],
    *,
    num_candidates: int,
    seed: int,
) -> Confirmation | None:
    """Returns the candidates and their test; None with fewer than two prompts a half.

    `usable` marks the latents that may be chosen; the seed draws the halves.

    >>> random = np.random.default_rng(1)
    >>> sums = WithinPromptSums(
    ...     covariance=random.normal(size=(40, 3)) + np.array([[0.0, 2.0, 0.0]]),
    ...     activation_scatter=np.full((40, 3), 4.0), outcome_scatter=np.full(40, 2.0),
    ... )
    >>> found = confirm_effects(sums, np.ones(3, bool), num_candidates=2, seed=0)
    >>> found.latents[found.confirmed(0.05)].tolist()
    [1]
    """
    N = len(sums.outcome_scatter)
    if N < 2 * _MIN_PROMPTS:
        return None
    order_N = np.random.default_rng(seed).permutation(N)
    first, second = sums.take(order_N[: N // 2]), sums.take(order_N[N // 2 :])
    first_Z, (second_Z, error_Z) = first.effect().value, second.effect()
    ranked = np.argsort(-np.abs(first_Z), kind="stable")
    ranked = ranked[usable[ranked] & (first_Z[ranked] != 0)]
    latents_K = ranked[:num_candidates]
    p_K = second.p_values(latents_K)
    same_K = np.sign(first_Z[latents_K]) == np.sign(second_Z[latents_K])
    return Confirmation(
        latents=latents_K,
        first=first_Z,
        second=WithinPromptEffect(second_Z[latents_K], error_Z[latents_K]),
        q_values=benjamini_hochberg(np.where(same_K, p_K / 2, 1 - p_K / 2)),
        num_prompts=(N // 2, N - N // 2),
        halves_correlation=_correlation(first_Z[ranked], second_Z[ranked]),
    )


def _correlation(a: Float[np.ndarray, " K"], b: Float[np.ndarray, " K"]) -> float:
    """Returns the correlation of two lists, or 0 if one of them does not vary."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
