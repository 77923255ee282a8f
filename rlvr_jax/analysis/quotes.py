"""Describes latents by the few words around their strongest activations."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int

from sae_jax.dashboard.contexts import (
    Context,
    ContextCounts,
    measure_firings,
    read_contexts,
)
from sae_jax.data.corpus import Corpus
from sae_jax.data.vocabulary import (
    read_vocabulary,
    show_whitespace,
    token_separator,
)
from sae_jax.sae import TSAE

_NUM_QUOTES = 2
_TOKENS_AROUND = 3  # of the highest token, on either side


def quote_latents(
    tsae: TSAE,
    corpus: Corpus,
    latents: Sequence[int],
    *,
    problems: Int[np.ndarray, " M"] | None = None,
) -> Mapping[int, str]:
    """Returns by latent the contexts of its highest activations, the token in brackets.

    Contexts come from different problems. `problems` are the problems of the corpus's
    documents, by default as stored in the corpus.
    """
    chosen = np.array(latents, int)
    firings = measure_firings(tsae, corpus, chosen, problems=problems)
    vocabulary = read_vocabulary(None, corpus.shards)
    separator = token_separator(vocabulary)
    counts = ContextCounts(top=_NUM_QUOTES, quantiles=())
    found = read_contexts(tsae, corpus, firings, counts)
    return {
        latent: "; ".join(separator.join(_quote(each, vocabulary)) for each in contexts)
        for latent, contexts in found.items()
    }


def _quote(context: Context, vocabulary: Sequence[str]) -> list[str]:
    first = max(0, context.peak - _TOKENS_AROUND)
    words = [
        f"[{show_whitespace(vocabulary[token])}]"
        if at == context.peak
        else show_whitespace(vocabulary[token])
        for at, token in enumerate(context.token_ids)
    ]
    return words[first : context.peak + _TOKENS_AROUND + 1]
