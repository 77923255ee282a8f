"""Neuronpedia: latents and the contexts in which each fires most, in JSON lines.

    LAYER-NAME/features/batch-0.jsonl.gz      one latent per line
    LAYER-NAME/activations/batch-0.jsonl.gz   one context of a latent per line

The columns have the names of its tables Feature and Activation, which its importer
takes as they are. Columns that we do not know are left out and stay empty there.
"""

import collections
import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sae_jax.data.corpus import Corpus
from sae_jax.sae import TSAE
from sae_jax.stats.features import TopContexts, empty_contexts, sequence_contexts

_NUM_CONTEXTS = 20  # of each latent
_CONTEXT_RADIUS = 64  # tokens shown on either side of the highest
_CREATED = "2026-01-01T00:00:00"  # a fixed date, so that equal data give equal files


def write(
    directory: Path,
    tsae: TSAE,
    corpus: Corpus,
    *,
    name: str,
    vocabulary: Sequence[str],
    creator: str,
) -> None:
    """Writes features and activations of the latents that fire in a corpus.

    `vocabulary` gives the text of each token id. Raises ValueError if it lacks an id.
    """
    index = corpus.shards.index
    source = f"{index.layer}-{name}"
    common = {"modelId": index.model, "layer": source, "creatorId": creator}
    common |= {"createdAt": _CREATED}
    top, rate = _find_top_contexts(tsae, corpus)
    features = (
        common
        | {
            "index": str(latent),
            "maxActApprox": float(top.value[latent, 0]),
            "frac_nonzero": float(rate[latent]),
            "hasVector": True,
            "vector": np.asarray(tsae.decoder[latent]).tolist(),
            "vectorDefaultSteerStrength": float(top.value[latent, 0]),
            "hookName": index.hook,
            "sourceSetName": name,
        }
        for latent in np.nonzero(rate)[0].tolist()
    )
    folder = directory / source
    _write_lines(folder / "features" / "batch-0.jsonl.gz", features)
    activations = (
        common | {"id": _context_id(source, corpus, shown)} | shown
        for shown in _activation_lines(tsae, corpus, top, vocabulary)
    )
    _write_lines(folder / "activations" / "batch-0.jsonl.gz", activations)


def _find_top_contexts(tsae: TSAE, corpus: Corpus) -> tuple[TopContexts, np.ndarray]:
    """Returns the places where each latent is highest, and its firing rate."""
    top = empty_contexts(tsae.latents, _NUM_CONTEXTS)
    fired, tokens = np.zeros(tsae.latents), 0
    for block, f in corpus.encode_blocks(tsae):
        top = top + sequence_contexts(f, block.mask, corpus.block_document_ids(block))
        fired += np.asarray((f > 0).sum((0, 1)))
        tokens += int(block.mask.sum())
    return top, fired / max(tokens, 1)


def _activation_lines(
    tsae: TSAE, corpus: Corpus, top: TopContexts, vocabulary: Sequence[str]
) -> Iterable[dict[str, Any]]:
    """Returns the lines of all contexts, in the order of their documents."""
    wanted = collections.defaultdict(list)
    sequence, position = np.asarray(top.sequence), np.asarray(top.position)
    for latent, rank in np.argwhere(sequence >= 0).tolist():
        place = (latent, int(position[latent, rank]))
        wanted[int(sequence[latent, rank])].append(place)
    for block, f in corpus.encode_blocks(tsae):
        dense, ids = np.asarray(f), corpus.block_column("token_id", block)
        if ids.max() >= len(vocabulary):
            raise ValueError(
                f"token id {ids.max()} is beyond the vocabulary of {len(vocabulary)}; "
                "give the tokenizer of this model"
            )
        lengths = (block.token_index >= 0).sum(axis=1)
        for row, number in enumerate(corpus.block_document_ids(block).tolist()):
            for latent, at in wanted.get(number, ()):
                first = max(0, at - _CONTEXT_RADIUS)
                end = min(int(lengths[row]), at + _CONTEXT_RADIUS + 1)
                values = dense[row, first:end, latent].tolist()
                yield {
                    "index": str(latent),
                    "tokens": [vocabulary[i] for i in ids[row, first:end]],
                    "values": values,
                    "maxValue": max(values),
                    "maxValueTokenIndex": at - first,
                    "minValue": min(values),
                    "dataIndex": str(number),
                    "qualifyingTokenIndex": at - first,
                }


def _context_id(source: str, corpus: Corpus, shown: dict[str, Any]) -> str:
    """Returns a key of the context that is unique over all data and autoencoders."""
    parts = (corpus.shards.data_hash, source, shown["index"], shown["dataIndex"])
    return "c" + hashlib.sha256("/".join(parts).encode()).hexdigest()[:24]


def _write_lines(path: Path, objects: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 5, raw, mtime=0) as file:
        for value in objects:
            file.write(json.dumps(value).encode() + b"\n")
