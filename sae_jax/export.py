"""The command that writes an autoencoder in another tool's format.

python -m sae_jax.export --sae=DIR --format=saelens --out=DIR
"""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from job_jax.command import run_command
from job_jax.flags import UsageError, one_of, parse_flags
from job_jax.schema import PositiveInt
from sae_jax.data.corpus import Corpus
from sae_jax.data.vocabulary import read_vocabulary
from sae_jax.evaluate import CorpusFlags, corpus_from_flags
from sae_jax.formats import delphi, mechreward, neuronpedia
from sae_jax.formats.record import SAERecord
from sae_jax.io import load_record, save
from sae_jax.sae import TSAE
from sae_jax.stats.features import OutcomeMoments, outcome_moments

FORMATS = ("saelens", "neuronpedia", "delphi", "mechreward")

_USAGE = """\
usage: python -m sae_jax.export --sae=DIR --format=FORMAT --out=DIR [--flag=value ...]

FORMAT is one of
  saelens      the layout of SAELens: cfg.json and sae_weights.safetensors
and, with --activations=DIR,
  neuronpedia  features and activations, JSON lines
  delphi       its cache of latents, for automatic explanation
  mechreward   a pack of the latents that tell right from wrong rollouts; the data must
               have the factor --outcome: 1 right, 0 wrong, -1 unverified

flags:"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportFlags(CorpusFlags):
    """The flags of this command."""

    activations: str = ""  # activation shards; for all but saelens
    format: Annotated[str, one_of(FORMATS)]  # what to write
    out: str  # the directory to write
    name: str = "tsae"  # neuronpedia: source set; mechreward: pack
    # saelens: the hook it reads, if its files do not say, such as
    # blocks.2.hook_resid_post
    hook_name: str = ""
    # neuronpedia: JSON of tokens and ids, or tokenizer.json; by default the data's
    # texts, or ids
    vocabulary: str = ""
    creator: str = "local"  # neuronpedia: id of the creator
    outcome: str = "correct"  # mechreward: the factor that judges
    count: PositiveInt = 10  # mechreward: latents to reward, and to punish


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 if the work failed; 2 if flags or files cannot be used."""
    return run_command(lambda: _run_command(argv), (ValueError, OSError))


def _run_command(argv: Sequence[str]) -> None:
    flags, _ = parse_flags(argv, ExportFlags, usage=_USAGE)
    out = Path(flags.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out={out} is not empty; remove it or name another")
    if flags.format != "saelens" and not flags.activations:
        raise UsageError(f"--format={flags.format} needs --activations=DIR")
    record = load_record(flags.sae)
    tsae = record.tsae
    if flags.format == "saelens":
        stated = _stated_hook(flags.hook_name, record)
        save(out, tsae, metadata=record.metadata | stated)
        print(f"{tsae.latents} latents of width {tsae.width}: {out}")
        return
    corpus = corpus_from_flags(record, flags)
    if flags.format == "neuronpedia":
        neuronpedia.write(
            out,
            tsae,
            corpus,
            name=flags.name,
            vocabulary=read_vocabulary(flags.vocabulary, corpus.shards),
            creator=flags.creator,
        )
    elif flags.format == "delphi":
        delphi.write(out, tsae, corpus)
    else:
        index = corpus.shards.index
        about = {
            "name": flags.name,
            "model_name": index.model,
            "release": flags.name,
            "sae_id": index.hook,
        }
        sums = _outcome_moments(tsae, corpus, flags.outcome)
        mechreward.write(out, sums, num_latents=flags.count, about=about)
    print(f"{tsae.latents} latents over {len(corpus.document_ids)} documents: {out}")


def _stated_hook(hook_name: str, record: SAERecord) -> dict[str, str]:
    """Returns --hook_name as metadata. Raises UsageError if the files say another."""
    if not hook_name:
        return {}
    said = record.metadata.get("hook_name") or record.metadata.get("hf_hook_name")
    if said and said != hook_name:
        raise UsageError(
            f"--hook_name={hook_name}, but the files say {said}; leave the flag out"
        )
    return {"hook_name": hook_name}


def _outcome_moments(tsae: TSAE, corpus: Corpus, outcome: str) -> OutcomeMoments:
    """Returns the moments of rollouts; each document is a rollout.

    The factor `prompt`, if the data have it, says which rollouts share a prompt;
    otherwise rollouts of the same problem do.
    """
    factors = corpus.shards.index.factors
    if outcome not in factors:
        raise UsageError(
            f"--outcome={outcome}: no such factor; the data have {list(factors)}"
        )
    means, judgments, prompts = [], [], []
    for block, f in corpus.encode_blocks(tsae):
        counts = block.mask.sum(axis=1)
        some = counts > 0
        total = np.asarray(f.sum(axis=1), np.float64)[some]
        means.append(total / counts[some, None])
        judgments.append(corpus.block_column(outcome, block)[some, 0])
        group = "prompt" if "prompt" in factors else "problem"
        prompts.append(corpus.block_column(group, block)[some, 0])
    judged = np.concatenate(judgments)
    _, prompt = np.unique(np.concatenate(prompts), return_inverse=True)
    return outcome_moments(
        np.concatenate(means),
        correct=judged == 1,
        verified=judged >= 0,
        prompts=prompt,
        num_prompts=int(prompt.max()) + 1,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
