"""Where latents fire most in the probe's training texts, in a few words each."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rlvr_jax.analysis.quotes import quote_latents
from rlvr_jax.run.workdir import read_rollouts, rollouts_file
from sae_jax.dashboard.sources import number_problems
from sae_jax.data.corpus import open_corpus
from sae_jax.io import load_record

_MAX_DOCUMENTS = 512


def quote_contexts(workdir: Path, latents: Sequence[int]) -> Mapping[int, str]:
    """Returns by latent the contexts of its highest activations, the token in brackets.

    They come from the first 512 completions of stage `probe`, one per problem. Returns
    {} if the run kept no activations.
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
    problems = number_problems(rows[: len(corpus.document_ids)])
    return quote_latents(record.tsae, corpus, latents, problems=problems)
