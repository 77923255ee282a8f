"""Where latents fire most in what the probe was trained on, in a few words each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rlvr_jax.run.workdir import read_rollouts, rollouts_file
from sae_jax.dashboard.contexts import (
    Context,
    ContextCounts,
    measure_firings,
    read_contexts,
)
from sae_jax.dashboard.sources import number_problems
from sae_jax.data.corpus import open_corpus
from sae_jax.data.vocabulary import read_vocabulary, token_separator
from sae_jax.io import load_record

_MAX_DOCUMENTS = 512
_NUM_QUOTES = 2
_TOKENS_AROUND = 3  # of the highest token, on either side


def quote_contexts(workdir: Path, latents: Sequence[int]) -> Mapping[int, str]:
    """Returns by latent the contexts of its highest activations, the token in brackets.

    Of the first 512 completions of stage `probe`, one a problem. Empty where the run
    has kept no activations.
    """
    activations = workdir / "activations"
    if not latents or not activations.is_dir():
        return {}
    record = load_record(workdir / "sae")
    corpus = open_corpus(
        activations,
        record.tsae,
        roles=record.metadata.get("roles", ()),
        max_documents=_MAX_DOCUMENTS,
    )
    rows = read_rollouts(rollouts_file(workdir, "probe", 0))
    firings = measure_firings(
        record.tsae,
        corpus,
        np.array(latents),
        problems=number_problems(rows[: len(corpus.document_ids)]),
    )
    counts = ContextCounts(top=_NUM_QUOTES, quantiles=())
    vocabulary = read_vocabulary(None, corpus.shards)
    separator = token_separator(vocabulary)
    found = read_contexts(record.tsae, corpus, firings, counts)
    return {
        latent: "; ".join(separator.join(_quote(each, vocabulary)) for each in contexts)
        for latent, contexts in found.items()
    }


def _quote(context: Context, vocabulary: Sequence[str]) -> list[str]:
    first = max(0, context.peak - _TOKENS_AROUND)
    words = [
        f"[{vocabulary[token]}]" if at == context.peak else vocabulary[token]
        for at, token in enumerate(context.token_ids)
    ]
    return words[first : context.peak + _TOKENS_AROUND + 1]
