"""How much of a known truth the latents say: correlation, AUROC, linear probes.

A truth is a yes or no per token; a factor with labels (step index, operation, running
value) asks one for each of its values. References:
  mean correlation          https://arxiv.org/abs/2411.13117, of decoder rows there
  probes on a few latents   https://arxiv.org/abs/2511.05541, its code
"""

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelationSums:
    """Co-moments of latents and truths about their means; `a + b` merges them."""

    tokens: Float[Array, ""]
    latent_mean: Float[Array, " Z"]
    truth_mean: Float[Array, " Y"]
    latent_scatter: Float[Array, " Z"]
    truth_scatter: Float[Array, " Y"]
    product: Float[Array, "Z Y"]

    def __add__(self, other: Self) -> Self:
        """Returns the co-moments over the tokens of both."""
        total = jax.tree.map(lambda a, b: a + b, self, other)
        share = other.tokens / np.maximum(total.tokens, 1)
        weight = self.tokens * share
        latents = other.latent_mean - self.latent_mean
        truths = other.truth_mean - self.truth_mean
        return dataclasses.replace(
            total,
            latent_mean=self.latent_mean + latents * share,
            truth_mean=self.truth_mean + truths * share,
            latent_scatter=total.latent_scatter + latents**2 * weight,
            truth_scatter=total.truth_scatter + truths**2 * weight,
            product=total.product + latents[:, None] * truths[None, :] * weight,
        )

    def on_host(self) -> Self:
        """Returns the sums in float64, so that a million batches lose no digit."""
        return jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))

    def correlation(self) -> Float[np.ndarray, "Z Y"]:
        """Returns Pearson's correlation, 0 where either never varies."""
        sums = self.on_host()
        scale = np.sqrt(sums.latent_scatter[:, None] * sums.truth_scatter[None, :])
        return np.where(scale > 0, sums.product / np.where(scale > 0, scale, 1), 0.0)

    def difference(self) -> Float[np.ndarray, "Z Y"]:
        """Returns the mean where a truth holds less that where it does not.

        0 for a truth that never changes.
        """
        sums = self.on_host()
        scatter = sums.truth_scatter[None, :]  # tokens p (1 - p)
        return np.where(
            scatter > 0, sums.product / np.where(scatter > 0, scatter, 1), 0
        )


@jax.jit
def correlation_sums(
    f: Float[Array, "N Z"], truths: Bool[Array, "N Y"], counted: Bool[Array, " N"]
) -> CorrelationSums:
    """Returns the co-moments of latents and truths over the counted tokens."""
    tokens = counted.sum().astype(jnp.float32)

    def centred(values: Float[Array, "N K"]) -> tuple[Array, Array]:
        kept = jnp.where(counted[:, None], values, 0.0)
        mean_K = kept.sum(0) / jnp.maximum(tokens, 1.0)
        return mean_K, jnp.where(counted[:, None], kept - mean_K[None], 0.0)

    latent_mean, latents = centred(f.astype(jnp.float32))
    truth_mean, answers = centred(truths.astype(jnp.float32))
    product = jnp.einsum(
        "nz,ny->zy", latents, answers, precision=jax.lax.Precision.HIGHEST
    )
    return CorrelationSums(
        tokens=tokens,
        latent_mean=latent_mean,
        truth_mean=truth_mean,
        latent_scatter=(latents**2).sum(0),
        truth_scatter=(answers**2).sum(0),
        product=product,
    )


class Assignment(NamedTuple):
    """One latent for each truth, no latent twice."""

    latents: Int[np.ndarray, " Y"]
    mean_correlation: float


def assign(correlation: Float[np.ndarray, "Z Y"]) -> Assignment:
    """Returns the assignment of largest mean |correlation|, and that mean: the MCC.

    The mean correlation coefficient: 1 where every truth has a latent of its own that
    follows it linearly. Needs at least as many latents as truths.
    """
    latents, truths = correlation.shape
    if latents < truths:
        raise ValueError(f"{latents} latents cannot each answer one of {truths} truths")
    strength = np.abs(correlation).T
    _, chosen = scipy.optimize.linear_sum_assignment(strength, maximize=True)
    mean = strength[np.arange(truths), chosen].mean()
    return Assignment(chosen, float(mean))


def auroc(scores: Float[np.ndarray, " N"], truth: Bool[np.ndarray, " N"]) -> float:
    """Returns the chance that a true token scores above a false one; ties count half.

    Exact, from ranks. NaN where the truth is always the same.
    """
    truth = np.asarray(truth, bool)
    trues, falses = int(truth.sum()), int((~truth).sum())
    if not trues or not falses:
        return float("nan")
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(counts) - (counts - 1) / 2
    above = middle_rank[place][truth].sum() - trues * (trues + 1) / 2
    return float(above / (trues * falses))


class Probe(NamedTuple):
    """A linear classifier: the label of largest `f weights + bias`."""

    weights: Float[np.ndarray, "Z C"]
    bias: Float[np.ndarray, " C"]

    def accuracy(
        self, f: Float[np.ndarray, "N Z"], labels: Int[np.ndarray, " N"]
    ) -> float:
        """Returns the share of tokens whose label is the likeliest."""
        return float(((f @ self.weights + self.bias).argmax(axis=1) == labels).mean())


def fit_probe(
    f: Float[np.ndarray, "N Z"],
    labels: Int[np.ndarray, " N"],
    *,
    classes: int,
    penalty: float = 1.0,
) -> Probe:
    """Returns the multinomial logistic regression of labels 0..C-1 on f.

    Minimises sum_n -log p(label_n) + penalty/2 |weights|^2 by L-BFGS; the bias is free.
    """
    tokens, latents = f.shape
    inputs = jnp.asarray(f, jnp.float32)
    one_hot = jax.nn.one_hot(jnp.asarray(labels), classes, dtype=jnp.float32)

    @jax.jit
    @jax.value_and_grad
    def loss(flat: Float[Array, " P"]) -> Float[Array, ""]:
        weights = flat[: latents * classes].reshape(latents, classes)
        logits = (
            jnp.matmul(inputs, weights, precision=jax.lax.Precision.HIGHEST)
            + flat[latents * classes :][None]
        )
        surprise = -(one_hot * jax.nn.log_softmax(logits)).sum()
        return (surprise + penalty / 2 * (weights**2).sum()) / tokens

    def objective(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        value, gradient = loss(jnp.asarray(flat, jnp.float32))
        return float(value), np.asarray(gradient, np.float64)

    found = scipy.optimize.minimize(
        objective,
        np.zeros((latents + 1) * classes),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500},
    ).x
    weights = found[: latents * classes].reshape(latents, classes)
    return Probe(weights, found[latents * classes :])


def telling_latents(sums: CorrelationSums, *, per_truth: int) -> Int[np.ndarray, " K"]:
    """Returns the latents whose mean is highest where a truth holds, against elsewhere.

    The union over truths of the `per_truth` latents of largest difference of means.
    """
    differences = sums.difference()
    order = np.argsort(-differences, axis=0, kind="stable")[:per_truth]
    return np.unique(order[:, differences.any(axis=0)])
