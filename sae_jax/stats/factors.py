"""Latents against the labels of a corpus: chosen on one half, scored on the other.

Even-numbered problems choose the latents, and odd-numbered problems score them. With
thousands of latents, even the luckiest would look good on the tokens that chose it.
Completions of one problem share tokens, so all of them are in the same half.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE
from sae_jax.stats.probing import (
    CorrelationSums,
    assign_latents,
    auroc,
    correlation_sums,
    fit_probe,
    top_difference_latents,
)

_MAX_LABELS = 256  # a factor with more values is not used as a label
_PROBE_LATENTS_PER_LABEL = 10  # per value, as in the T-SAE paper


class UnlabeledError(ValueError):
    """A column of the corpus has too few or too many values to be a label."""


def factor_report(tsae: TSAE, corpus: Corpus, name: str) -> dict[str, Any]:
    """Returns how well latents predict the values of a factor, on the odd problems.

    A negative label means that the token has no label. Keys: `mcc`, the mean
    |correlation| of each value with the latent assigned to it; `auroc`, of the latents
    that correlate most; `probe_accuracy`, of a logistic regression on the few latents
    that differ most; `majority_share`, the accuracy of always predicting the most
    common value.
    """
    values = shared_labels(corpus, name)
    even, odd = _half_sums(tsae, corpus, name, values)
    even_correlation, odd_correlation = even.correlation(), odd.correlation()
    assigned = assign_latents(even_correlation)
    best = np.abs(even_correlation).argmax(axis=0)
    sign = np.sign(even_correlation[best, np.arange(len(values))])
    top = top_difference_latents(even, per_label=_PROBE_LATENTS_PER_LABEL)
    columns = np.unique(np.concatenate([best, top]))
    f, labels, is_odd = _gather_latents(tsae, corpus, name, columns)
    classes = np.searchsorted(values, labels)
    column_of = np.searchsorted(columns, best)
    auroc_of = {
        int(value): auroc(sign[c] * f[is_odd, column_of[c]], classes[is_odd] == c)
        for c, value in enumerate(values)
    }
    probe_columns = np.searchsorted(columns, top)
    scale = np.sqrt((f[~is_odd][:, probe_columns] ** 2).mean(axis=0)) + 1e-9
    inputs = f[:, probe_columns] / scale
    probe = fit_probe(inputs[~is_odd], classes[~is_odd], classes=len(values))
    return {
        "values": len(values),
        "tokens": int(is_odd.sum()),
        "mcc": float(
            np.abs(odd_correlation[assigned.latents, np.arange(len(values))]).mean()
        ),
        "auroc": float(np.nanmean(list(auroc_of.values()))),
        "auroc_by_value": auroc_of,
        "latents": {int(v): int(b) for v, b in zip(values, best, strict=True)},
        "probe_accuracy": probe.accuracy(inputs[is_odd], classes[is_odd]),
        "majority_share": float(np.bincount(classes[is_odd]).max() / is_odd.sum()),
    }


def shared_labels(corpus: Corpus, name: str) -> Int[np.ndarray, " Y"]:
    """Returns the labels that occur in both halves."""
    shards = corpus.shards
    labels, problem = shards.column(name), shards.column("problem")
    inside = np.isin(shards.column("sequence"), corpus.document_ids)
    kept = corpus.mask & inside & (labels >= 0)
    even = labels[kept & (problem % 2 == 0)]
    odd = labels[kept & (problem % 2 == 1)]
    values = np.intersect1d(even, odd)
    if not 2 <= len(values) <= _MAX_LABELS:
        raise UnlabeledError(
            f"factor {name!r} has {len(values)} values that occur in problems of even "
            f"and of odd number; it must have 2 to {_MAX_LABELS}"
        )
    return values


def _half_sums(
    tsae: TSAE, corpus: Corpus, name: str, values: Int[np.ndarray, " Y"]
) -> tuple[CorrelationSums, CorrelationSums]:
    """Returns the co-moments over even-numbered and over odd-numbered problems."""
    halves: list[CorrelationSums | None] = [None, None]
    for block, f in corpus.encode_blocks(tsae):
        labels = corpus.block_column(name, block)
        labeled = block.mask & np.isin(labels, values)
        truths = labels[:, :, None] == values
        for half in (0, 1):
            counted = labeled & (corpus.block_problems(block) % 2 == half)[:, None]
            sums = correlation_sums(
                f.reshape(-1, tsae.latents),
                truths.reshape(-1, len(values)),
                counted.reshape(-1),
            ).to_host()
            before = halves[half]
            halves[half] = sums if before is None else before + sums
    even, odd = halves
    if even is None or odd is None:
        raise ValueError("no documents")
    return even, odd


def _gather_latents(
    tsae: TSAE, corpus: Corpus, name: str, columns: Int[np.ndarray, " K"]
) -> tuple[Float[np.ndarray, "N K"], Int[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """Returns some latents, the label, and the half of every labeled token."""
    values = shared_labels(corpus, name)
    parts = []
    for block, f in corpus.encode_blocks(tsae):
        labels = corpus.block_column(name, block)
        kept = block.mask & np.isin(labels, values)
        odd = np.broadcast_to(
            (corpus.block_problems(block) % 2 == 1)[:, None], kept.shape
        )
        parts.append((np.asarray(f[:, :, columns])[kept], labels[kept], odd[kept]))
    latents, labels, odd = (np.concatenate(p) for p in zip(*parts, strict=True))
    return latents, labels, odd
