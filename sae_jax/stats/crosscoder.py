"""Which checkpoint each latent of a crosscoder belongs to, by norm and by scaling.

A crosscoder is a dictionary of K checkpoints' concatenated activations
(`views.JoinedShards`): a decoder row holds a direction d^k for each checkpoint k.

    norm share     |d^last| / (|d^first| + |d^last|)
    scaling        beta^k = argmin_b sum_tokens |x^k - xhat^k + f d^k - b f d*|^2
    scaling share  beta^last / (beta^first + beta^last)
    cosine         of d^first and d^last: whether the direction turned

A share is 0 if only the first checkpoint has the latent, and 1 if only the last has it.
d* is the unit vector along d^first + d^last, and a negative beta counts as 0. Norms
depend on training: a decoder may shrink where the data do not, or stay where they
shrink. Scaling is measured on the activations, after adding back the latent's own
contribution. Relative norms follow https://transformer-circuits.pub/2024/crosscoders.

Scaling follows https://arxiv.org/abs/2504.02922, which regresses error and
reconstruction separately, on the direction of the checkpoint that a latent is assumed
to belong to. We use one regression of the part that the other latents leave, on a
direction that favors no checkpoint. (This rule is ours.)
"""

import collections
import dataclasses
import functools
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from job_jax.resampling import Interval, resample_counts
from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE, matmul_float32

_KEPT = 0.4, 0.6  # scaling shares of latents that both checkpoints have
# The kinds, by the upper ends of their scaling shares.
_KIND_BELOW = {
    "lost": 0.1,
    "shrunk": _KEPT[0],
    "kept": _KEPT[1],
    "grown": 0.9,
    "added": np.inf,
}
KINDS = tuple(_KIND_BELOW)
MIN_PROBLEMS = 10  # problems in which a latent must fire to be alive
_MIN_SCALING = 0.5  # of an even share, for a checkpoint to have a latent at all
_RESAMPLES = 500
_RESAMPLES_AT_ONCE = 50


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrosscoderSums:
    """Sums over the tokens of each of P problems. Made by `sum_by_problem`.

    `problems` are their numbers; `square` sums f^2, and `along` f (x^k - xhat^k) . d*.
    `error` and `scatter` are sums over all problems, of |x^k - xhat^k|^2 and
    |x^k - mean|^2.
    """

    problems: Int[np.ndarray, " P"]
    tokens: Int[np.ndarray, " P"]
    fired: Int[np.ndarray, "P Z"]
    square: Float[np.ndarray, "P Z"]
    along: Float[np.ndarray, "P K Z"]
    error: Float[np.ndarray, " K"]
    scatter: Float[np.ndarray, " K"]

    def select(self, problems: Int[np.ndarray, " Q"]) -> Self:
        """Returns the sums of some problems only; error and scatter stay."""
        chosen = np.isin(self.problems, problems)
        return dataclasses.replace(
            self,
            problems=self.problems[chosen],
            tokens=self.tokens[chosen],
            fired=self.fired[chosen],
            square=self.square[chosen],
            along=self.along[chosen],
        )

    def explained(self) -> Float[np.ndarray, " K"]:
        """Returns the share of each checkpoint's variance that is explained: FVE."""
        return 1 - self.error / np.maximum(self.scatter, 1e-30)


class LatentChanges(NamedTuple):
    """Which checkpoint each latent belongs to. Made by `measure_changes`.

    A latent is `alive` if it fires in enough problems. It is `confirmed` if it is alive
    and meets two conditions. A checkpoint's scaling is at least half of an even share
    of the row, and the whole interval of the scaling share is outside the range of kept
    latents.
    """

    norm_share: Float[np.ndarray, " Z"]
    scaling_share: Interval
    cosine: Float[np.ndarray, " Z"]
    kind: list[str]
    alive: Bool[np.ndarray, " Z"]
    confirmed: Bool[np.ndarray, " Z"]

    def count_kinds(self, among: Bool[np.ndarray, " Z"]) -> dict[str, int]:
        """Returns how many of the latents in `among` have each kind."""
        counts = collections.Counter(self.kind[z] for z in np.flatnonzero(among))
        return {kind: counts[kind] for kind in KINDS}


def decoder_blocks(tsae: TSAE, num_checkpoints: int) -> Float[np.ndarray, "Z K D"]:
    """Returns each latent's direction in each checkpoint.

    >>> tsae = TSAE.init(0, width=6, latents=4)
    >>> decoder_blocks(tsae, 2).shape
    (4, 2, 3)
    """
    return np.asarray(tsae.decoder).reshape(tsae.latents, num_checkpoints, -1)


def last_share(size_KZ: Float[np.ndarray, "*R K Z"]) -> Float[np.ndarray, "*R Z"]:
    """Returns the last checkpoint's share of the first's and its own size.

    Sizes are norms or scalings; negative ones count as 0, and the share of two zeros is
    a half.

    >>> last_share(np.array([[1.0, 2.0, -1.0], [3.0, 2.0, 1.0]])).tolist()
    [0.75, 0.5, 1.0]
    """
    first, last = (np.maximum(size_KZ[..., k, :], 0.0) for k in (0, -1))
    total = first + last
    return np.where(total == 0, 0.5, last / np.where(total == 0, 1.0, total))


def kind_of(share: float) -> str:
    """Returns the kind of a latent, by its share.

    >>> [kind_of(share) for share in (0.0, 0.3, 0.5, 0.7, 1.0)]
    ['lost', 'shrunk', 'kept', 'grown', 'added']
    """
    if np.isnan(share):
        return "kept"  # a latent that never fires; it is not alive either
    return next(kind for kind, below in _KIND_BELOW.items() if share < below)


def sum_by_problem(tsae: TSAE, corpus: Corpus, num_checkpoints: int) -> CrosscoderSums:
    """Returns the sums over a corpus of the K checkpoints' activations, in one pass."""
    decoder_ZKD = decoder_blocks(tsae, num_checkpoints)
    direction_ZD = jnp.asarray(_common_direction(decoder_ZKD))
    read_N = np.isin(corpus.shards.column("sequence"), corpus.document_ids)
    number_P = np.unique(corpus.shards.column("problem")[read_N])
    P, (Z, K, _) = len(number_P), decoder_ZKD.shape
    tokens_P, fired_PZ = np.zeros(P, np.int64), np.zeros((P, Z), np.int64)
    square_PZ, along_PKZ = np.zeros((P, Z)), np.zeros((P, K, Z))
    error_K, squares_K = np.zeros(K), np.zeros(K)
    total_X = np.zeros(tsae.width)
    for block in corpus.blocks():
        # Padding goes to the first problem, where it adds 0.
        row_S = np.searchsorted(number_P, corpus.block_problems(block))
        sums = _sum_block(tsae, direction_ZD, block.x, block.mask, K)
        fired_SZ, square_SZ, along_SKZ, *totals = map(np.asarray, sums)
        np.add.at(tokens_P, row_S, block.mask.sum(axis=1))
        np.add.at(fired_PZ, row_S, fired_SZ)
        np.add.at(square_PZ, row_S, square_SZ)
        np.add.at(along_PKZ, row_S, along_SKZ)
        error_K += totals[0]
        squares_K += totals[1]
        total_X += totals[2]
    mean_KD = total_X.reshape(K, -1) / max(int(tokens_P.sum()), 1)
    return CrosscoderSums(
        problems=number_P,
        tokens=tokens_P,
        fired=fired_PZ,
        square=square_PZ,
        along=along_PKZ,
        error=error_K,
        scatter=squares_K - tokens_P.sum() * np.sum(mean_KD**2, axis=1),
    )


def latent_scaling(
    sums: CrosscoderSums,
    decoder_ZKD: Float[np.ndarray, "Z K D"],
    count_RP: Float[np.ndarray, "R P"] | None = None,
) -> Float[np.ndarray, "R K Z"]:
    """Returns beta of each checkpoint and latent, NaN if a latent never fires.

    With `count_RP` it returns beta for each of R resamples of the problems; without,
    R = 1.
    """
    if count_RP is None:
        count_RP = np.ones((1, len(sums.problems)))
    own_KZ = np.einsum("zkd,zd->kz", decoder_ZKD, _common_direction(decoder_ZKD))
    square_R1Z = (count_RP @ sums.square)[:, None]
    along_RKZ = np.tensordot(count_RP, sums.along, 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return own_KZ + np.where(square_R1Z > 0, along_RKZ / square_R1Z, np.nan)


def measure_changes(
    sums: CrosscoderSums,
    decoder_ZKD: Float[np.ndarray, "Z K D"],
    *,
    min_problems: int = MIN_PROBLEMS,
    seed: int = 0,
) -> LatentChanges:
    """Returns which checkpoint each latent belongs to.

    Intervals are 95 % bootstraps over problems.
    """
    norm_KZ = np.linalg.norm(decoder_ZKD, axis=2).T
    share = _scaling_share(sums, decoder_ZKD, seed=seed)
    alive_Z = np.sum(sums.fired > 0, axis=0) >= min_problems
    scaling_KZ = latent_scaling(sums, decoder_ZKD)[0]
    # A checkpoint's part of a row whose length all K checkpoints share evenly.
    even_Z = np.linalg.norm(norm_KZ, axis=0) / np.sqrt(len(norm_KZ))
    with np.errstate(invalid="ignore"):
        outside_Z = (share.high < _KEPT[0]) | (share.low > _KEPT[1])
        held_Z = np.max(scaling_KZ[[0, -1]], axis=0) >= _MIN_SCALING * even_Z
    dot_Z = np.sum(decoder_ZKD[:, 0] * decoder_ZKD[:, -1], axis=1)
    return LatentChanges(
        norm_share=last_share(norm_KZ),
        scaling_share=share,
        cosine=dot_Z / np.maximum(norm_KZ[0] * norm_KZ[-1], 1e-30),
        kind=[kind_of(each) for each in share.value],
        alive=alive_Z,
        confirmed=alive_Z & held_Z & outside_Z,
    )


def crosscoder_report(
    tsae: TSAE, corpus: Corpus, *, num_checkpoints: int
) -> dict[str, Any]:
    """Returns how many latents have each kind, and each latent's figures.

    `scaling_share` holds [value, low, high] by latent, null if it never fires.
    """
    decoder_ZKD = decoder_blocks(tsae, num_checkpoints)
    sums = sum_by_problem(tsae, corpus, num_checkpoints)
    changes = measure_changes(sums, decoder_ZKD)
    share_Z3 = np.stack(changes.scaling_share, axis=1)
    return {
        "problems": len(sums.problems),
        "fve": sums.explained().tolist(),
        "alive": int(changes.alive.sum()),
        "counts": changes.count_kinds(changes.alive),
        "confirmed": np.flatnonzero(changes.confirmed).tolist(),
        "scaling_share": [
            [None if np.isnan(x) else float(x) for x in row] for row in share_Z3
        ],
        "norm_share": changes.norm_share.tolist(),
        "cosine": changes.cosine.tolist(),
    }


def _scaling_share(
    sums: CrosscoderSums, decoder_ZKD: Float[np.ndarray, "Z K D"], *, seed: int
) -> Interval:
    counts_RP = resample_counts(len(sums.problems), resamples=_RESAMPLES, seed=seed)
    parts = np.split(counts_RP.astype(float), _RESAMPLES // _RESAMPLES_AT_ONCE)
    drawn_RZ = np.concatenate(
        [last_share(latent_scaling(sums, decoder_ZKD, part)) for part in parts]
    )
    # If a latent fires on no token of a resample, its share is unknown: NaN stays.
    low_Z, high_Z = np.quantile(drawn_RZ, [0.025, 0.975], axis=0)
    return Interval(last_share(latent_scaling(sums, decoder_ZKD)[0]), low_Z, high_Z)


def _common_direction(
    decoder_ZKD: Float[np.ndarray, "Z K D"],
) -> Float[np.ndarray, "Z D"]:
    """Returns d*."""
    sum_ZD = decoder_ZKD[:, 0] + decoder_ZKD[:, -1]
    return sum_ZD / np.maximum(np.linalg.norm(sum_ZD, axis=1, keepdims=True), 1e-30)


@functools.partial(jax.jit, static_argnames="K")
def _sum_block(
    tsae: TSAE,
    direction_ZD: Float[Array, "Z D"],
    x: Float[Array, "S T X"],
    mask: Bool[Array, "S T"],
    K: int,
) -> tuple[Array, ...]:
    """Returns sums over each row's tokens, and the totals of the block."""
    mask_ST1 = mask[:, :, None]
    x = jnp.where(mask_ST1, x, 0.0)
    f_STZ = jnp.where(mask_ST1, tsae.encode(x), 0.0)
    error = jnp.where(mask_ST1, x - tsae.decode(f_STZ), 0.0)
    by_checkpoint = (*x.shape[:2], K, -1)
    error_STKD = error.reshape(by_checkpoint)
    along_STKZ = matmul_float32(error_STKD, direction_ZD.T)
    return (
        jnp.sum(f_STZ > 0, axis=1),
        jnp.sum(f_STZ**2, axis=1),
        jnp.sum(f_STZ[:, :, None] * along_STKZ, axis=1),
        jnp.sum(error_STKD**2, axis=(0, 1, 3)),
        jnp.sum(x.reshape(by_checkpoint) ** 2, axis=(0, 1, 3)),
        jnp.sum(x, axis=(0, 1)),
    )
