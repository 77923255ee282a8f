"""Latents against the known truths of a corpus: chosen on a half, scored on the other.

Documents of even number choose, those of odd number score: with thousands of latents,
the best of them by luck alone would look good on the tokens that chose it.
"""

from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from sae_jax.corpus import Corpus
from sae_jax.probing import (
    CorrelationSums,
    assign,
    auroc,
    correlation_sums,
    fit_probe,
    telling_latents,
)
from sae_jax.sae import TSAE

_MAX_VALUES = 256  # a factor of more values is no label
_PROBE_LATENTS = 10  # per value, as in the T-SAE paper


class UnlabelledError(ValueError):
    """A column of the corpus that is no label: too few values, or too many."""


def factor_report(tsae: TSAE, corpus: Corpus, name: str) -> dict[str, Any]:
    """Returns how well latents tell the values of a factor, on held-out documents.

    A negative label means that the token has none. Keys: `mcc`, the mean |correlation|
    of values with latents of their own; `auroc` by value, of the latent that correlates
    most; `probe_accuracy` of a logistic regression on the few latents that differ most,
    beside the share of the commonest value.
    """
    values = _values(corpus, name)
    even, odd = _half_sums(tsae, corpus, name, values)
    chosen, held_out = even.correlation(), odd.correlation()
    assigned = assign(chosen)
    best = np.abs(chosen).argmax(axis=0)
    sign = np.sign(chosen[best, np.arange(len(values))])
    telling = telling_latents(even, per_truth=_PROBE_LATENTS)
    columns = np.unique(np.concatenate([best, telling]))
    f, labels, is_odd = _gathered(tsae, corpus, name, columns)
    classes = np.searchsorted(values, labels)
    place = np.searchsorted(columns, best)
    of_value = {
        int(value): auroc(sign[c] * f[is_odd, place[c]], classes[is_odd] == c)
        for c, value in enumerate(values)
    }
    probe_columns = np.searchsorted(columns, telling)
    scale = np.sqrt((f[~is_odd][:, probe_columns] ** 2).mean(axis=0)) + 1e-9
    inputs = f[:, probe_columns] / scale
    probe = fit_probe(inputs[~is_odd], classes[~is_odd], classes=len(values))
    return {
        "values": len(values),
        "tokens": int(is_odd.sum()),
        "mcc": float(np.abs(held_out[assigned.latents, np.arange(len(values))]).mean()),
        "auroc": float(np.nanmean(list(of_value.values()))),
        "auroc_by_value": of_value,
        "latents": {int(v): int(b) for v, b in zip(values, best, strict=True)},
        "probe_accuracy": probe.accuracy(inputs[is_odd], classes[is_odd]),
        "commonest": float(np.bincount(classes[is_odd]).max() / is_odd.sum()),
    }


def _values(corpus: Corpus, name: str) -> Int[np.ndarray, " Y"]:
    """Returns the labels that occur in both halves."""
    sequence, labels = corpus.shards.column("sequence"), corpus.shards.column(name)
    kept = corpus.usable & np.isin(sequence, corpus.numbers) & (labels >= 0)
    even = labels[kept & (sequence % 2 == 0)]
    odd = labels[kept & (sequence % 2 == 1)]
    values = np.intersect1d(even, odd)
    if not 2 <= len(values) <= _MAX_VALUES:
        raise UnlabelledError(
            f"factor {name!r} has {len(values)} values that occur in documents of even "
            f"and of odd number; it takes 2 to {_MAX_VALUES}"
        )
    return values


def _half_sums(
    tsae: TSAE, corpus: Corpus, name: str, values: Int[np.ndarray, " Y"]
) -> tuple[CorrelationSums, CorrelationSums]:
    """Returns the co-moments over documents of even and of odd number."""
    halves: list[CorrelationSums | None] = [None, None]
    for block, f in corpus.encoded(tsae):
        labels = corpus.values(name, block)
        labelled = block.counted & np.isin(labels, values)
        truths = labels[:, :, None] == values
        for half in (0, 1):
            counted = labelled & (corpus.rows(block) % 2 == half)[:, None]
            sums = correlation_sums(
                f.reshape(-1, tsae.latents),
                truths.reshape(-1, len(values)),
                counted.reshape(-1),
            ).on_host()
            before = halves[half]
            halves[half] = sums if before is None else before + sums
    even, odd = halves
    if even is None or odd is None:
        raise ValueError("no documents")
    return even, odd


def _gathered(
    tsae: TSAE, corpus: Corpus, name: str, columns: Int[np.ndarray, " K"]
) -> tuple[Float[np.ndarray, "N K"], Int[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """Returns some latents of every labelled token, its label, and its half."""
    values = _values(corpus, name)
    parts = []
    for block, f in corpus.encoded(tsae):
        labels = corpus.values(name, block)
        kept = block.counted & np.isin(labels, values)
        odd = np.broadcast_to((corpus.rows(block) % 2 == 1)[:, None], kept.shape)
        parts.append((np.asarray(f[:, :, columns])[kept], labels[kept], odd[kept]))
    latents, labels, odd = (np.concatenate(p) for p in zip(*parts, strict=True))
    return latents, labels, odd
