"""How well an autoencoder describes activations, as sums that add up over batches.

    FVE         1 - sum |x - xhat|^2 / sum |x - mean|^2      over all tokens
    L0          active latents per token
    alive       share of latents that fire at least once
    smoothness  mean over sequences of the mean over latents active in the sequence of
                max_t |f_t - f_{t-1}| / |x_t - x_{t-1}|
    relative    smoothness of f / max_t f along x / mean_t |x_t - x_{t-1}|: 1 is a jump
                from 0 to the peak in one step of mean size; this makes latents with
                large and small activations comparable
    autocorrelation   mean over latents of corr(f_{t-1}, f_t) (`autocorrelation`)
    variation   sum over latents of |f_t - f_{t-1}|, per pair of neighbors; relative:
                divided by the sum of f, so it does not depend on the scale of x

FVE is the fraction of variance explained: predicting the mean scores 0. Smoothness and
variation are from the T-SAE paper (https://arxiv.org/abs/2511.05541). We deviate from
its code as follows:
  1. the high-level reconstruction includes the decoder's bias;
  2. variation is per pair, not per sequence, so that lengths do not matter;
  3. equal neighbors have no slope and are left out;
  4. cosines and slopes are averaged over all tokens or sequences, not over batches.
"""

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float, Int

from sae_jax.sae import TSAE, matmul_float32
from sae_jax.stats.autocorrelation import (
    NeighborSums,
    lag1_autocorrelation,
    sum_neighbors,
)

LATENT_GROUPS = ("high", "low", "all")
# Upper ends of bins of log10 firing rate: below 1e-6, then half decades up to 1.
_DENSITY_EDGES = np.arange(-6.0, 0.5, 0.5)
_BLOCK_ROWS = 2048  # decoder rows whose cosines are in memory at a time


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class QualitySums:
    """Sums over tokens, pairs and sequences; `a + b` covers the tokens of both.

    Made by `measure_quality`, used by `quality_report`. `smoothness` and `sequences`
    have an entry for each of LATENT_GROUPS; a sequence in which no latent of a group
    fires is not counted there. `relative_smoothness` measures each latent in units of
    its peak.
    """

    tokens: Int[Array, ""]
    mean: Float[Array, " D"]
    scatter: Float[Array, ""]  # sum |x - mean|^2
    squared_error: Float[Array, ""]
    squared_error_high: Float[Array, ""]
    cosine: Float[Array, ""]
    firing_count: Int[Array, " Z"]
    activation_sum: Float[Array, " Z"]  # sum of f
    pairs: Int[Array, ""]
    variation: Float[Array, " Z"]
    smoothness: Float[Array, " 3"]
    relative_smoothness: Float[Array, " 3"]
    neighbors: NeighborSums
    sequences: Int[Array, " 3"]

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        total = jax.tree.map(lambda a, b: a + b, self, other)
        share = other.tokens / np.maximum(total.tokens, 1)
        mean_difference = other.mean - self.mean
        return dataclasses.replace(
            total,
            mean=self.mean + mean_difference * share,
            scatter=total.scatter + (mean_difference**2).sum() * self.tokens * share,
        )

    def to_host(self) -> Self:
        """Returns the sums in float64, so that adding a million batches stays exact."""
        return jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))


@jax.jit
def measure_quality(
    tsae: TSAE, x: Float[Array, "S T D"], mask: Bool[Array, "S T"]
) -> QualitySums:
    """Returns the quality sums of S sequences of raw activations, within the mask.

    Two adjacent tokens in the mask are neighbors. Other tokens are ignored and may hold
    anything, including NaN and infinity.

    >>> tsae = TSAE.init(0, width=8, latents=32, group_sizes=(6, 26))
    >>> x = jax.random.normal(jax.random.key(1), (2, 10, 8))
    >>> sums = measure_quality(tsae, x, jnp.ones((2, 10), bool))
    >>> report = quality_report(sums, num_high=tsae.num_high)
    >>> report["tokens"], sorted(report["l0"])
    (20, ['all', 'high', 'low'])
    """
    counted_ST1 = mask[:, :, None]
    x = jnp.where(counted_ST1, x.astype(jnp.float32), 0.0)
    f = jnp.where(counted_ST1, tsae.encode(x), 0.0)
    high_Z = jnp.arange(tsae.latents) < tsae.num_high
    xhat = tsae.decode(f)
    high = dataclasses.replace(tsae, decoder=tsae.decoder[: tsae.num_high])
    tokens = mask.sum()
    mean_D = x.sum((0, 1)) / jnp.maximum(tokens, 1).astype(jnp.float32)
    slopes = _smoothness(x, f, mask, high_Z)
    neighbors_ST1 = (mask[:, 1:] & mask[:, :-1])[:, :, None]
    change = jnp.where(neighbors_ST1, jnp.abs(f[:, 1:] - f[:, :-1]), 0.0)
    return QualitySums(
        tokens=tokens,
        mean=mean_D,
        scatter=_squared_sum(x - mean_D[None, None], counted_ST1),
        squared_error=_squared_sum(x - xhat, counted_ST1),
        squared_error_high=_squared_sum(
            x - high.decode(f[:, :, : tsae.num_high]), counted_ST1
        ),
        cosine=jnp.where(mask, _cosine(x, xhat), 0.0).sum(),
        firing_count=(f > 0).sum((0, 1)),
        activation_sum=f.sum((0, 1)),
        pairs=neighbors_ST1.sum(),
        variation=change.sum((0, 1)),
        smoothness=jnp.stack([total for total, _, _ in slopes]),
        relative_smoothness=jnp.stack([total for _, total, _ in slopes]),
        neighbors=sum_neighbors(f, neighbors_ST1[:, :, 0]),
        sequences=jnp.stack([count for _, _, count in slopes]),
    )


def _smoothness(
    x: Float[Array, "S T D"],
    f: Float[Array, "S T Z"],
    mask: Bool[Array, "S T"],
    high_Z: Bool[Array, " Z"],
) -> list[tuple[Float[Array, ""], Float[Array, ""], Int[Array, ""]]]:
    """Returns for each group two sums over sequences, and the number of sequences.

    The first sum is of absolute smoothness, the second of relative smoothness.
    """
    step_ST = jnp.linalg.norm(x[:, 1:] - x[:, :-1], axis=-1)
    moves_ST = mask[:, 1:] & mask[:, :-1] & (step_ST > 0)
    slope_STZ = jnp.where(
        moves_ST[:, :, None],
        jnp.abs(f[:, 1:] - f[:, :-1]) / jnp.where(moves_ST, step_ST, 1.0)[:, :, None],
        0.0,
    )
    steepest_SZ = slope_STZ.max(axis=1, initial=0.0)
    moves_S = jnp.maximum(moves_ST.sum(axis=1), 1).astype(jnp.float32)
    step_S = jnp.where(moves_ST, step_ST, 0.0).sum(axis=1) / moves_S
    peak_SZ = f.max(axis=1)
    relative_SZ = steepest_SZ * step_S[:, None] / jnp.where(peak_SZ > 0, peak_SZ, 1.0)
    active_SZ = (f > 0).any(axis=1) & moves_ST.any(axis=1, keepdims=True)
    slopes = []
    for members_Z in (high_Z, ~high_Z, jnp.ones_like(high_Z)):
        chosen_SZ = active_SZ & members_Z[None]
        count_S = chosen_SZ.sum(axis=1)
        size_S = jnp.maximum(count_S, 1).astype(jnp.float32)
        absolute, relative = (
            (jnp.where(chosen_SZ, slope_SZ, 0.0).sum(axis=1) / size_S).sum()
            for slope_SZ in (steepest_SZ, relative_SZ)
        )
        slopes.append((absolute, relative, (count_S > 0).sum()))
    return slopes


def _squared_sum(
    difference: Float[Array, "S T D"], counted_ST1: Bool[Array, "S T 1"]
) -> Float[Array, ""]:
    return jnp.where(counted_ST1, difference**2, 0.0).sum()


def _cosine(a: Float[Array, "S T D"], b: Float[Array, "S T D"]) -> Float[Array, "S T"]:
    product = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    safe = jnp.where(product > 0, product, 1.0)
    return jnp.where(product > 0, (a * b).sum(-1) / safe, 0.0)


def quality_report(sums: QualitySums, *, num_high: int) -> dict[str, Any]:
    """Returns the metrics of the sums; `num_high` is the high-level group's size.

    Groups without latents, and metrics without data, are left out. `density` counts the
    latents by log10 of their firing rate: `edges` are the bins' upper ends, the first
    bin also has all lower rates, and `never` counts latents that did not fire at all.
    """
    sums = sums.to_host()
    tokens, pairs = sums.tokens, sums.pairs
    if tokens == 0:
        raise ValueError("no token was counted, so there is nothing to report")
    latents = len(sums.firing_count)
    autocorrelation_Z = lag1_autocorrelation(sums.neighbors, pairs=float(pairs))
    members = {
        "high": slice(0, num_high),
        "low": slice(num_high, None),
        "all": slice(None),
    }
    result: dict[str, Any] = {
        "tokens": int(tokens),
        "fve": _fraction_of_variance_explained(sums.squared_error, sums.scatter),
        "fve_high": _fraction_of_variance_explained(
            sums.squared_error_high, sums.scatter
        ),
        "cosine": float(sums.cosine / tokens),
        "density": _firing_density(sums.firing_count / tokens),
        "l0": {},
        "alive": {},
        "smoothness": {},
        "relative_smoothness": {},
        "autocorrelation": {},
        "variation": {},
        "relative_variation": {},
    }
    for i, name in enumerate(LATENT_GROUPS):
        part = members[name]
        if (name == "high" and num_high == latents) or not len(sums.firing_count[part]):
            continue
        result["l0"][name] = float(sums.firing_count[part].sum() / tokens)
        result["alive"][name] = float((sums.firing_count[part] > 0).mean())
        variation, activity = (
            sums.variation[part].sum(),
            sums.activation_sum[part].sum(),
        )
        if sums.sequences[i]:
            for kind in ("smoothness", "relative_smoothness"):
                result[kind][name] = float(vars(sums)[kind][i] / sums.sequences[i])
        if np.isfinite(autocorrelation_Z[part]).any():
            mean = np.nanmean(autocorrelation_Z[part])
            result["autocorrelation"][name] = float(mean)
        if pairs:
            result["variation"][name] = float(variation / pairs)
        if pairs and activity:
            relative = (variation / pairs) / (activity / tokens)
            result["relative_variation"][name] = float(relative)
    return result


def _fraction_of_variance_explained(error: Any, scatter: Any) -> float:
    """Returns 1 - error / scatter; for constant data 1, or -inf if error is not 0."""
    if scatter == 0:
        return 1.0 if error == 0 else float("-inf")
    return float(1.0 - error / scatter)


def _firing_density(rate_Z: Any) -> dict[str, Any]:
    fired = rate_Z[rate_Z > 0]
    bins = np.searchsorted(_DENSITY_EDGES, np.log10(fired), side="left")
    counts = np.bincount(bins, minlength=len(_DENSITY_EDGES))
    return {
        "edges": _DENSITY_EDGES.tolist(),
        "counts": counts.tolist(),
        "never": int((rate_Z == 0).sum()),
    }


class DecoderMatch(NamedTuple):
    """For each latent of one autoencoder, its nearest latent in another."""

    nearest: Int[np.ndarray, " Z"]
    cosine: Float[np.ndarray, " Z"]
    mutual: Bool[np.ndarray, " Z"]  # the partner's nearest is this latent


def match_decoders(
    decoder: Float[Array, "Z D"], other: Float[Array, "Y D"]
) -> DecoderMatch:
    """Returns for each row of `decoder` the row of `other` with the largest cosine.

    Rows that choose each other are the same latent, found twice. This takes Z Y D
    products and no [Z Y] matrix. An optimal assignment takes Z^3 steps, which is hours
    for 24,576 latents. It agrees where it matters: on pairs whose cosine is the largest
    in both their row and their column.

    >>> match = match_decoders(jnp.eye(3), jnp.eye(3)[::-1])
    >>> match.nearest.tolist(), match.mutual.tolist()
    ([2, 1, 0], [True, True, True])
    """
    a, b = _unit_rows(decoder), _unit_rows(other)
    partner, cosine = [], []
    back = np.full(len(b), -np.inf, np.float32)
    back_partner = np.zeros(len(b), np.int64)
    for start in range(0, len(a), _BLOCK_ROWS):
        block = np.asarray(matmul_float32(a[start : start + _BLOCK_ROWS], b.T))
        partner.append(block.argmax(axis=1))
        cosine.append(block.max(axis=1))
        best = block.max(axis=0)
        back_partner = np.where(best > back, start + block.argmax(axis=0), back_partner)
        back = np.maximum(best, back)
    partners = np.concatenate(partner)
    mutual = back_partner[partners] == np.arange(len(a))
    return DecoderMatch(partners, np.concatenate(cosine), mutual)


def seed_cosine(
    decoder: Float[Array, "Z D"], others: list[Float[Array, "Y D"]]
) -> Float[np.ndarray, " Z"]:
    """Returns each latent's mean cosine with its match in autoencoders of other seeds.

    If the latent has no mutual match in an autoencoder (`match_decoders`), that one
    counts as 0. Near 1, the latent depends on the data; near 0, on the seed.

    >>> seed_cosine(jnp.eye(2), [jnp.eye(2), jnp.eye(2)[:1]]).tolist()
    [1.0, 0.5]
    """
    if not others:
        raise ValueError("stability needs the dictionary of at least one other seed")
    matches = [match_decoders(decoder, other) for other in others]
    return np.mean([np.where(m.mutual, m.cosine, 0.0) for m in matches], axis=0)


def _unit_rows(rows: npt.ArrayLike) -> Float[Array, "Z D"]:
    rows = jnp.asarray(rows, jnp.float32)
    norm = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(norm > 0, norm, 1.0)
