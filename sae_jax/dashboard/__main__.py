"""The command `python -m sae_jax.dashboard`, which makes a page of latents."""

import base64
import gzip
import html
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from jaxtyping import Int

from job_jax.command import UsageError, check_output_file, parse_flags, run_command
from job_jax.files import write_atomically
from sae_jax.dashboard.contexts import ContextCounts
from sae_jax.dashboard.record import KnownFacts, describe_latents
from sae_jax.dashboard.sources import (
    read_causes,
    read_documents,
    read_movement,
    read_reward_weights,
    read_unembedding,
)
from sae_jax.data.corpus import Corpus
from sae_jax.data.vocabulary import WHITESPACE_NOTE, read_vocabulary
from sae_jax.edits import check_latents
from sae_jax.evaluate import corpus_from_flags, define_corpus_flags
from sae_jax.formats.record import SAERecord
from sae_jax.io import load, load_record
from sae_jax.sae import TSAE
from sae_jax.stats.partners import correlate_partners

_PAGE = Path(__file__).with_name("page.html")
# Flag -> its file in the workdir of a run of rlvr_jax.
# Files of a run that are about its autoencoder, and about its texts.
_ABOUT = {"sae": ("others", "dynamics"), "activations": ("rollouts",)}
_OF_RUN = {
    "sae": "sae",
    "activations": "activations",
    "rollouts": "rollouts/probe_000000.jsonl.gz",
    "others": "sae_replicas/seed1",
    "dynamics": "features/dynamics.json",
}

_USAGE = """\
usage: python -m sae_jax.dashboard --out=FILE.html --workdir=DIR [--flag=value ...]
       python -m sae_jax.dashboard --out=FILE.html --sae=DIR --activations=DIR ...

Writes one self-contained page with an index of latents that can be searched and sorted.
For each latent it shows
  - contexts where it fires, strongest and by quantile, with verdict, reward and band
  - how often it fires, and which tokens it writes
  - its effect within problems, and its changes by RL in each band
  - its nearest latents, its partner in another autoencoder, and its causal tests
--workdir is a run of rlvr_jax: every file found there is used. A flag that names a file
overrides it.

flags:"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 if the work failed; 2 if flags or files cannot be used."""
    return run_command(lambda: _run_command(argv), (ValueError, OSError))


def _run_command(argv: Sequence[str]) -> None:
    values = _define_flags()
    parse_flags(argv, values, usage=_USAGE, required=("out",))
    out = check_output_file(Path(values.out), [".html"])
    _fill_from_workdir(values)
    record = load_record(values.sae)
    corpus = corpus_from_flags(record, values)
    latents = _choose_latents(values, record.tsae)
    content = describe_latents(
        record.tsae,
        corpus,
        latents,
        vocabulary=read_vocabulary(values.vocabulary, corpus.shards),
        counts=ContextCounts(top=values.contexts),
        known=_read_facts(values, record.tsae, corpus),
    )
    fired = [row for row in content["latents"] if row["contexts"]]
    page = render_page(
        content | {"latents": fired},
        title=f"{record.metadata.get('model_name', values.sae)}: {len(fired)} latents",
        about=_describe(record, corpus, num_silent=len(latents) - len(fired)),
    )
    with write_atomically(out) as partial:
        partial.write_text(page, encoding="utf-8")
    print(json.dumps({"dashboard": str(out), "latents": len(fired)}))


def render_page(content: Mapping[str, Any], *, title: str, about: str) -> str:
    """Returns the page: the content as compressed JSON, and a script that draws it."""
    packed = gzip.compress(json.dumps(content).encode(), mtime=0)
    page = _PAGE.read_text(encoding="utf-8")
    for name, value in {
        "title": html.escape(title),
        "about": html.escape(about),
        "data": base64.b64encode(packed).decode(),
    }.items():
        page = page.replace(f"{{{{ {name} }}}}", value)
    return page


def _describe(record: SAERecord, corpus: Corpus, *, num_silent: int) -> str:
    tsae, index = record.tsae, corpus.shards.index
    return (
        f"{tsae.latents} latents of width {tsae.width} at {index.hook}, read on "
        f"{int(corpus.mask.sum())} tokens of {len(corpus.document_ids)} documents of "
        f"{index.model}; left out: {num_silent} that never fire there. The problems on "
        "which a latent fires are sorted by its highest activation. The page shows the "
        "top ones and some at each quantile, each with one document; prompts are grey. "
        f"{WHITESPACE_NOTE}"
    )


def _fill_from_workdir(values: flags.FlagValues) -> None:
    """Fills flags that were not given with the files found in --workdir.

    Files about the run's autoencoder or texts are not used with others.
    """
    if values.workdir:
        given = {name for name in _ABOUT if values[name].value}
        others = {about for name in given for about in _ABOUT[name]}
        for name, place in _OF_RUN.items():
            path = Path(values.workdir) / place
            if name not in others and not values[name].value and path.exists():
                values[name].value = [str(path)] if name == "others" else str(path)
    missing = [f"--{name}" for name in ("sae", "activations") if not values[name].value]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} missing"
            + (f": {values.workdir} holds none" if values.workdir else "; see --help")
        )


def _choose_latents(values: flags.FlagValues, tsae: TSAE) -> Int[np.ndarray, " R"]:
    if not values.latents:
        return np.arange(tsae.latents)
    try:
        latents = [int(text) for text in values.latents]
    except ValueError as error:
        raise UsageError(
            f"--latents={','.join(values.latents)}: write numbers, such as 3,17"
        ) from error
    check_latents(tsae, latents)
    return np.array(sorted(set(latents)))


def _read_facts(values: flags.FlagValues, tsae: TSAE, corpus: Corpus) -> KnownFacts:
    count = len(corpus.document_ids)
    others = {path: load(path) for path in values.others}
    return KnownFacts(
        documents=read_documents(Path(values.rollouts), count)
        if values.rollouts
        else (),
        unembedding=read_unembedding(Path(values.model), tsae.width)
        if values.model
        else None,
        movement=read_movement(Path(values.dynamics)) if values.dynamics else {},
        causes=read_causes(Path(values.causal)) if values.causal else {},
        reward_weights=read_reward_weights(Path(values.sae)),
        partners={
            path: correlate_partners(tsae, other, corpus)
            for path, other in others.items()
        },
    )


def _define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    define_corpus_flags(values, activations="a directory of activation shards")
    for name, text in {
        "out": "the page to write",
        "workdir": "a run of rlvr_jax with a probe",
        "rollouts": "JSON lines with id, band, verdict and reward, one line for each "
        "document of the activations, in the same order",
        "model": "a Hugging Face directory, for the tokens that a latent writes",
        "dynamics": "features/dynamics.json of a run, from python -m rlvr_jax.analysis "
        "features",
        "causal": "causal.json, from python -m rlvr_jax.analysis causal --separately",
        "vocabulary": "JSON of tokens and ids, or tokenizer.json; else the data's own",
    }.items():
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_list(
        "others", [], "autoencoders in which to find partners", flag_values=values
    )
    flags.DEFINE_list("latents", [], "only these; by default all", flag_values=values)
    flags.DEFINE_integer(
        "contexts",
        10,
        "number of strongest contexts of each latent",
        1,
        flag_values=values,
    )
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
