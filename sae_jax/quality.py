"""How well a dictionary describes activations, as sums that merge over batches.

    FVE         1 - sum |x - xhat|^2 / sum |x - mean|^2      over all tokens
    L0          latents above their threshold, per token
    alive       share of latents that fire at least once
    smoothness  mean over sequences of the mean over latents active in the sequence of
                max_t |f_t - f_{t-1}| / |x_t - x_{t-1}|
    variation   sum over latents of |f_t - f_{t-1}|, per pair of neighbours; relative:
                divided by the sum of f, which does not change with the scale of x

FVE has this one formula: predicting the mean scores 0. Smoothness and variation are of
the T-SAE paper (https://arxiv.org/abs/2511.05541). Deviations from its code:
  1. the high-level reconstruction has the decoder's bias;
  2. variation is per pair and not per sequence, so that lengths do not matter;
  3. neighbours that are equal have no slope, and are left out;
  4. cosines and slopes are averaged over all tokens or sequences, not over batches.
"""

import dataclasses
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sae_jax.sae import TSAE

GROUPS = ("high", "low", "all")
# Firing rates by half decades of tokens, below 1e-6 to 1; the first bin is "never".
_DENSITY_EDGES = np.arange(-6.0, 0.5, 0.5)
_BLOCK = 2048  # rows of a decoder whose cosines are held at once


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class QualitySums:
    """Sums over tokens, pairs and sequences. Written by `measure`, read by `report`.

    `a + b` is what the tokens of both would have given. `smoothness` and `sequences`
    run over GROUPS: a sequence in which no latent of a group fires has no slope there.
    """

    tokens: Int[Array, ""]
    mean: Float[Array, " D"]
    scatter: Float[Array, ""]  # sum |x - mean|^2
    error: Float[Array, ""]
    error_high: Float[Array, ""]
    cosine: Float[Array, ""]
    firing: Int[Array, " Z"]
    activity: Float[Array, " Z"]  # sum of f
    pairs: Int[Array, ""]
    variation: Float[Array, " Z"]
    smoothness: Float[Array, " 3"]
    sequences: Int[Array, " 3"]

    def __add__(self, other: Self) -> Self:
        """Returns the sums over the tokens of both."""
        total = jax.tree.map(lambda a, b: a + b, self, other)
        share = other.tokens / np.maximum(total.tokens, 1)
        apart = other.mean - self.mean
        return dataclasses.replace(
            total,
            mean=self.mean + apart * share,
            scatter=total.scatter + (apart**2).sum() * self.tokens * share,
        )

    def on_host(self) -> Self:
        """Returns the sums in float64, so that a million batches lose no digit."""
        return jax.tree.map(lambda a: np.asarray(a, np.float64), jax.device_get(self))


@jax.jit
def measure(
    tsae: TSAE, x: Float[Array, "S T D"], counted: Bool[Array, "S T"]
) -> QualitySums:
    """Returns the sums of sequences of raw activations; only `counted` tokens enter.

    Two counted tokens side by side are neighbours. What stands at other places, NaN or
    infinity included, is not read.
    """
    counted_ST1 = counted[:, :, None]
    x = jnp.where(counted_ST1, x.astype(jnp.float32), 0.0)
    f = jnp.where(counted_ST1, tsae.encode(x), 0.0)
    high_Z = jnp.arange(tsae.latents) < tsae.high
    xhat = tsae.decode(f)
    high = dataclasses.replace(tsae, decoder=tsae.decoder[: tsae.high])
    tokens = counted.sum()
    mean_D = x.sum((0, 1)) / jnp.maximum(tokens, 1).astype(jnp.float32)
    slopes = _smoothness(x, f, counted, high_Z)
    neighbours_ST1 = (counted[:, 1:] & counted[:, :-1])[:, :, None]
    change = jnp.where(neighbours_ST1, jnp.abs(f[:, 1:] - f[:, :-1]), 0.0)
    return QualitySums(
        tokens=tokens,
        mean=mean_D,
        scatter=_square(x - mean_D[None, None], counted_ST1),
        error=_square(x - xhat, counted_ST1),
        error_high=_square(x - high.decode(f[:, :, : tsae.high]), counted_ST1),
        cosine=jnp.where(counted, _cosine(x, xhat), 0.0).sum(),
        firing=(f > 0).sum((0, 1)),
        activity=f.sum((0, 1)),
        pairs=neighbours_ST1.sum(),
        variation=change.sum((0, 1)),
        smoothness=jnp.stack([total for total, _ in slopes]),
        sequences=jnp.stack([count for _, count in slopes]),
    )


def _smoothness(
    x: Float[Array, "S T D"],
    f: Float[Array, "S T Z"],
    counted: Bool[Array, "S T"],
    high_Z: Bool[Array, " Z"],
) -> list[tuple[Float[Array, ""], Int[Array, ""]]]:
    """Returns per group the sum over sequences of their smoothness, and how many."""
    step_ST = jnp.linalg.norm(x[:, 1:] - x[:, :-1], axis=-1)
    moved_ST = counted[:, 1:] & counted[:, :-1] & (step_ST > 0)
    slope_STZ = jnp.where(
        moved_ST[:, :, None],
        jnp.abs(f[:, 1:] - f[:, :-1]) / jnp.where(moved_ST, step_ST, 1.0)[:, :, None],
        0.0,
    )
    steepest_SZ = slope_STZ.max(axis=1, initial=0.0)
    active_SZ = (f > 0).any(axis=1) & moved_ST.any(axis=1, keepdims=True)
    slopes = []
    for members_Z in (high_Z, ~high_Z, jnp.ones_like(high_Z)):
        chosen_SZ = active_SZ & members_Z[None]
        count_S = chosen_SZ.sum(axis=1)
        total_S = jnp.where(chosen_SZ, steepest_SZ, 0.0).sum(axis=1)
        mean_S = total_S / jnp.maximum(count_S, 1).astype(jnp.float32)
        slopes.append((mean_S.sum(), (count_S > 0).sum()))
    return slopes


def _square(
    difference: Float[Array, "S T D"], counted_ST1: Bool[Array, "S T 1"]
) -> Float[Array, ""]:
    return jnp.where(counted_ST1, difference**2, 0.0).sum()


def _cosine(a: Float[Array, "S T D"], b: Float[Array, "S T D"]) -> Float[Array, "S T"]:
    product = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    safe = jnp.where(product > 0, product, 1.0)
    return jnp.where(product > 0, (a * b).sum(-1) / safe, 0.0)


def report(sums: QualitySums, *, high: int) -> dict[str, Any]:
    """Returns the figures of the sums; `high` is the size of the high-level group.

    A group without latents, or a figure over nothing, is left out. `density` counts
    the latents by log10 of their firing rate: `edges` are the bins' upper ends, the
    first of them holding everything below, and `never` those that did not fire at all.
    """
    sums = sums.on_host()
    tokens, pairs = sums.tokens, sums.pairs
    if tokens == 0:
        raise ValueError("no token was counted; there is nothing to report")
    latents = len(sums.firing)
    members = {"high": slice(0, high), "low": slice(high, None), "all": slice(None)}
    result: dict[str, Any] = {
        "tokens": int(tokens),
        "fve": _fraction_explained(sums.error, sums.scatter),
        "fve_high": _fraction_explained(sums.error_high, sums.scatter),
        "cosine": float(sums.cosine / tokens),
        "density": _density(sums.firing / tokens),
        "l0": {},
        "alive": {},
        "smoothness": {},
        "variation": {},
        "relative_variation": {},
    }
    for i, name in enumerate(GROUPS):
        part = members[name]
        if (name == "high" and high == latents) or not len(sums.firing[part]):
            continue
        result["l0"][name] = float(sums.firing[part].sum() / tokens)
        result["alive"][name] = float((sums.firing[part] > 0).mean())
        variation, activity = sums.variation[part].sum(), sums.activity[part].sum()
        if sums.sequences[i]:
            result["smoothness"][name] = float(sums.smoothness[i] / sums.sequences[i])
        if pairs:
            result["variation"][name] = float(variation / pairs)
        if pairs and activity:
            relative = (variation / pairs) / (activity / tokens)
            result["relative_variation"][name] = float(relative)
    return result


def _fraction_explained(error: Any, scatter: Any) -> float:
    """Returns 1 - error / scatter; constant data are explained by any exact copy."""
    if scatter == 0:
        return 1.0 if error == 0 else float("-inf")
    return float(1.0 - error / scatter)


def _density(rate_Z: Any) -> dict[str, Any]:
    fired = rate_Z[rate_Z > 0]
    bins = np.searchsorted(_DENSITY_EDGES, np.log10(fired), side="left")
    counts = np.bincount(bins, minlength=len(_DENSITY_EDGES))
    return {
        "edges": _DENSITY_EDGES.tolist(),
        "counts": counts.tolist(),
        "never": int((rate_Z == 0).sum()),
    }


class DecoderMatch(NamedTuple):
    """For each latent of one dictionary, its nearest in another."""

    partner: Int[np.ndarray, " Z"]
    cosine: Float[np.ndarray, " Z"]
    mutual: Bool[np.ndarray, " Z"]  # the partner's nearest is this latent


def match_decoders(
    decoder: Float[Array, "Z D"], other: Float[Array, "Y D"]
) -> DecoderMatch:
    """Returns for each row of `decoder` the row of `other` of largest cosine.

    Rows that choose each other are one latent found twice. This takes Z Y D products
    and no [Z Y] matrix; an optimal assignment takes Z^3 steps, hours at 24,576 latents,
    and agrees wherever it matters: a pair above all others of its row and column.
    """
    a, b = _unit(decoder), _unit(other)
    partner, cosine = [], []
    back = np.full(len(b), -np.inf, np.float32)
    back_partner = np.zeros(len(b), np.int64)
    for start in range(0, len(a), _BLOCK):
        block = np.asarray(a[start : start + _BLOCK] @ b.T)
        partner.append(block.argmax(axis=1))
        cosine.append(block.max(axis=1))
        best = block.max(axis=0)
        back_partner = np.where(best > back, start + block.argmax(axis=0), back_partner)
        back = np.maximum(best, back)
    partners = np.concatenate(partner)
    mutual = back_partner[partners] == np.arange(len(a))
    return DecoderMatch(partners, np.concatenate(cosine), mutual)


def stability(
    decoder: Float[Array, "Z D"], others: list[Float[Array, "Y D"]]
) -> Float[np.ndarray, " Z"]:
    """Returns per latent its mean cosine over the dictionaries of other seeds.

    A dictionary in which no latent answers (see `match_decoders`) counts 0. Near 1: a
    latent of the data; near 0: a latent of the seed.
    """
    if not others:
        raise ValueError("stability needs the dictionary of at least one other seed")
    matches = [match_decoders(decoder, other) for other in others]
    return np.mean([np.where(m.mutual, m.cosine, 0.0) for m in matches], axis=0)


def _unit(rows: Any) -> Float[Array, "Z D"]:
    rows = jnp.asarray(rows, jnp.float32)
    norm = jnp.linalg.norm(rows, axis=1, keepdims=True)
    return rows / jnp.where(norm > 0, norm, 1.0)
