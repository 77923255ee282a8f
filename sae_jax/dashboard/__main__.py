"""The command `python -m sae_jax.dashboard`, which makes a page of latents."""

import base64
import dataclasses
import gzip
import html
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from job_jax.command import check_output_file, run_command
from job_jax.files import write_atomically
from job_jax.flags import UsageError, parse_flags
from job_jax.schema import PositiveInt
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
from sae_jax.evaluate import CorpusFlags, corpus_from_flags
from sae_jax.formats.record import SAERecord
from sae_jax.io import load, load_record
from sae_jax.sae import TSAE
from sae_jax.stats.partners import correlate_partners

_PAGE = Path(__file__).with_name("page.html")
# Files of a run that are about its autoencoder, and about its texts.
_ABOUT = {"sae": ("others", "dynamics"), "activations": ("rollouts",)}
# Flag -> its file in the workdir of a run of rlvr_jax.
_OF_RUN = {
    "sae": "sae",
    "activations": "activations",
    "rollouts": "rollouts/probe_000000.jsonl.gz",
    "others": "sae_replicas",  # the first of another seed
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class DashboardFlags(CorpusFlags):
    """The flags of this command."""

    sae: str = ""
    activations: str = ""
    out: str  # the page to write
    workdir: str = ""  # a run of rlvr_jax with a probe
    # JSON lines with id, band, verdict and reward, one line for each document of the
    # activations, in the same order
    rollouts: str = ""
    model: str = ""  # a Hugging Face directory, for the tokens that a latent writes
    # features/dynamics.json of a run, from python -m rlvr_jax.analysis features
    dynamics: str = ""
    # causal.json, from python -m rlvr_jax.analysis causal --separately
    causal: str = ""
    # JSON of tokens and ids, or tokenizer.json; else the data's own
    vocabulary: str = ""
    others: tuple[str, ...] = ()  # autoencoders in which to find partners
    latents: tuple[int, ...] = ()  # only these; by default all
    contexts: PositiveInt = 10  # number of strongest contexts of each latent


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 if the work failed; 2 if flags or files cannot be used."""
    return run_command(lambda: _run_command(argv), (ValueError, OSError))


def _run_command(argv: Sequence[str]) -> None:
    flags, _ = parse_flags(argv, DashboardFlags, usage=_USAGE)
    out = check_output_file(Path(flags.out), [".html"])
    flags = _fill_from_workdir(flags)
    record = load_record(flags.sae)
    corpus = corpus_from_flags(record, flags)
    latents = _choose_latents(flags.latents, record.tsae)
    content = describe_latents(
        record.tsae,
        corpus,
        latents,
        vocabulary=read_vocabulary(flags.vocabulary, corpus.shards),
        counts=ContextCounts(top=flags.contexts),
        known=_read_facts(flags, record.tsae, corpus),
    )
    fired = [row for row in content["latents"] if row["contexts"]]
    page = render_page(
        content | {"latents": fired},
        title=f"{record.metadata.get('model_name', flags.sae)}: {len(fired)} latents",
        about=_describe(record, corpus, num_silent=len(latents) - len(fired)),
    )
    with write_atomically(out) as partial:
        partial.write_text(page, encoding="utf-8")
    print(json.dumps({"dashboard": str(out), "latents": len(fired)}))


def render_page(content: Mapping[str, object], *, title: str, about: str) -> str:
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


def _of_other_seeds(folder: Path) -> list[Path]:
    """Returns the autoencoders of other seeds, without the baselines."""
    return sorted(
        path for path in folder.iterdir() if not path.name.endswith("_no_contrast")
    )


def _fill_from_workdir(flags: DashboardFlags) -> DashboardFlags:
    """Returns the flags; those not given name the files found in --workdir.

    Files about the run's autoencoder or texts are not used with others.
    """
    if flags.workdir:
        found: dict[str, Any] = {}
        given = {name for name in _ABOUT if vars(flags)[name]}
        others = {about for name in given for about in _ABOUT[name]}
        for name, place in _OF_RUN.items():
            path = Path(flags.workdir) / place
            if name in others or vars(flags)[name] or not path.exists():
                continue
            if name != "others":
                found[name] = str(path)
            elif replicas := _of_other_seeds(path):
                found[name] = (str(replicas[0]),)
        flags = dataclasses.replace(flags, **found)
    missing = [f"--{name}" for name in ("sae", "activations") if not vars(flags)[name]]
    if missing:
        raise UsageError(
            f"{' and '.join(missing)} missing"
            + (f": {flags.workdir} holds none" if flags.workdir else "; see --help")
        )
    return flags


def _choose_latents(latents: Sequence[int], tsae: TSAE) -> Int[np.ndarray, " R"]:
    if not latents:
        return np.arange(tsae.latents)
    check_latents(tsae, latents)
    return np.array(sorted(set(latents)))


def _read_facts(flags: DashboardFlags, tsae: TSAE, corpus: Corpus) -> KnownFacts:
    count = len(corpus.document_ids)
    others = {path: load(path) for path in flags.others}
    return KnownFacts(
        documents=read_documents(Path(flags.rollouts), count) if flags.rollouts else (),
        unembedding=read_unembedding(Path(flags.model), tsae.width)
        if flags.model
        else None,
        movement=read_movement(Path(flags.dynamics)) if flags.dynamics else {},
        causes=read_causes(Path(flags.causal)) if flags.causal else {},
        reward_weights=read_reward_weights(Path(flags.sae)),
        partners={
            path: correlate_partners(tsae, other, corpus)
            for path, other in others.items()
        },
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
