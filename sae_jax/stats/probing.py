"""How well latents predict known labels: correlation, AUROC, linear probes.

A label is true or false for each token; a factor with several values (step index,
operation, running value) has one label per value. References:
  mean correlation          https://arxiv.org/abs/2411.13117 (there of decoder rows)
  probes on a few latents   https://arxiv.org/abs/2511.05541 (its code)
"""

import dataclasses
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import scipy.stats
from jaxtyping import Array, Bool, Float, Int


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorrelationSums:
    """Co-moments of latents and labels about their means; `a + b` merges two."""

    tokens: Float[Array, ""]
    latent_mean: Float[Array, " Z"]
    label_mean: Float[Array, " Y"]
    latent_scatter: Float[Array, " Z"]
    label_scatter: Float[Array, " Y"]
    product: Float[Array, "Z Y"]

    def __add__(self, other: Self) -> Self:
        """Returns the co-moments over the tokens of both."""
        total = jax.tree.map(lambda a, b: a + b, self, other)
        share = other.tokens / np.maximum(total.tokens, 1)
        weight = self.tokens * share
        latents = other.latent_mean - self.latent_mean
        truths = other.label_mean - self.label_mean
        return dataclasses.replace(
            total,
            latent_mean=self.latent_mean + latents * share,
            label_mean=self.label_mean + truths * share,
            latent_scatter=total.latent_scatter + latents**2 * weight,
            label_scatter=total.label_scatter + truths**2 * weight,
            product=total.product + latents[:, None] * truths[None, :] * weight,
        )

    def to_host(self) -> Self:
        """Returns the sums in float64, so that adding a million batches stays exact."""
        return jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))

    def correlation(self) -> Float[np.ndarray, "Z Y"]:
        """Returns Pearson's correlation, or 0 if either never varies."""
        sums = self.to_host()
        scale = np.sqrt(sums.latent_scatter[:, None] * sums.label_scatter[None, :])
        return np.where(scale > 0, sums.product / np.where(scale > 0, scale, 1), 0.0)

    def mean_difference(self) -> Float[np.ndarray, "Z Y"]:
        """Returns each latent's mean where a label is true minus where it is false.

        It is 0 for a label that never changes.
        """
        sums = self.to_host()
        scatter = sums.label_scatter[None, :]  # tokens p (1 - p)
        return np.where(
            scatter > 0, sums.product / np.where(scatter > 0, scatter, 1), 0
        )


@jax.jit
def correlation_sums(
    f: Float[Array, "N Z"], labels: Bool[Array, "N Y"], mask: Bool[Array, " N"]
) -> CorrelationSums:
    """Returns the co-moments of latents and labels over the tokens in the mask.

    >>> f = jnp.array([[1.0, 0.0], [2.0, 5.0], [3.0, 0.0]])
    >>> sums = correlation_sums(f, f[:, 1:] > 0, jnp.ones(3, bool))
    >>> sums.correlation().round(3).tolist(), assign_latents(sums.correlation()).latents
    ([[0.0], [1.0]], array([1]))
    """
    tokens = mask.sum().astype(jnp.float32)

    def center(values: Float[Array, "N K"]) -> tuple[Array, Array]:
        kept = jnp.where(mask[:, None], values, 0.0)
        mean_K = kept.sum(0) / jnp.maximum(tokens, 1.0)
        return mean_K, jnp.where(mask[:, None], kept - mean_K[None], 0.0)

    latent_mean, latents = center(f.astype(jnp.float32))
    label_mean, label_values = center(labels.astype(jnp.float32))
    product = jnp.einsum(
        "nz,ny->zy", latents, label_values, precision=jax.lax.Precision.HIGHEST
    )
    return CorrelationSums(
        tokens=tokens,
        latent_mean=latent_mean,
        label_mean=label_mean,
        latent_scatter=(latents**2).sum(0),
        label_scatter=(label_values**2).sum(0),
        product=product,
    )


class Assignment(NamedTuple):
    """One latent for each label; no latent is used twice."""

    latents: Int[np.ndarray, " Y"]
    mean_correlation: float


def assign_latents(correlation: Float[np.ndarray, "Z Y"]) -> Assignment:
    """Returns the assignment with the largest mean |correlation|, and that mean.

    The mean is the MCC (mean correlation coefficient). It is 1 if every label has a
    separate latent that follows it linearly. Raises ValueError with fewer latents than
    labels.
    """
    latents, num_labels = correlation.shape
    if latents < num_labels:
        raise ValueError(f"{latents} latents are too few for {num_labels} labels")
    strength = np.abs(correlation).T
    _, chosen = scipy.optimize.linear_sum_assignment(strength, maximize=True)
    mean = strength[np.arange(num_labels), chosen].mean()
    return Assignment(chosen, float(mean))


def auroc(scores: Float[np.ndarray, " N"], labels: Bool[np.ndarray, " N"]) -> float:
    """Returns the probability that a true token scores above a false one; ties half.

    It is exact, from ranks, and NaN if all labels are equal.

    >>> auroc(np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True]))
    0.75
    """
    labels = np.asarray(labels, bool)
    trues, falses = int(labels.sum()), int((~labels).sum())
    if not trues or not falses:
        return float("nan")
    above = scipy.stats.rankdata(scores)[labels].sum() - trues * (trues + 1) / 2
    return float(above / (trues * falses))


class LinearProbe(NamedTuple):
    """A linear classifier: the class with the largest `f weights + bias`."""

    weights: Float[np.ndarray, "Z C"]
    bias: Float[np.ndarray, " C"]

    def accuracy(
        self, f: Float[np.ndarray, "N Z"], labels: Int[np.ndarray, " N"]
    ) -> float:
        """Returns the share of tokens whose most likely class is their label."""
        return float(((f @ self.weights + self.bias).argmax(axis=1) == labels).mean())


def fit_probe(
    f: Float[np.ndarray, "N Z"],
    labels: Int[np.ndarray, " N"],
    *,
    classes: int,
    penalty: float = 1.0,
) -> LinearProbe:
    """Returns the multinomial logistic regression of labels 0..C-1 on f.

    It minimizes sum_n -log p(label_n) + penalty/2 |weights|^2 by L-BFGS; the bias is
    not penalized.

    >>> f, labels = np.array([[0.0], [1.0], [5.0], [6.0]]), np.array([0, 0, 1, 1])
    >>> fit_probe(f, labels, classes=2).accuracy(f, labels)
    1.0
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

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
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
    return LinearProbe(weights, found[latents * classes :])


def top_difference_latents(
    sums: CorrelationSums, *, per_label: int
) -> Int[np.ndarray, " K"]:
    """Returns the latents whose mean rises most where a label is true.

    It is the union over labels of the `per_label` latents with the largest difference.

    >>> f = jnp.array([[1.0, 0.0], [1.0, 5.0]])
    >>> sums = correlation_sums(f, f[:, 1:] > 0, jnp.ones(2, bool))
    >>> top_difference_latents(sums, per_label=1).tolist()
    [1]
    """
    differences = sums.mean_difference()
    order = np.argsort(-differences, axis=0, kind="stable")[:per_label]
    return np.unique(order[:, differences.any(axis=0)])
