"""The command that writes an autoencoder in another tool's format.

python -m sae_jax.export --sae=DIR --format=saelens --out=DIR
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import flags

from job_jax.command import UsageError, parse_flags, run_command
from sae_jax.data.corpus import Corpus
from sae_jax.data.vocabulary import read_vocabulary
from sae_jax.evaluate import corpus_from_flags, define_corpus_flags
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


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 if the work failed; 2 if flags or files cannot be used."""
    return run_command(lambda: _run_command(argv), (ValueError, OSError))


def _run_command(argv: Sequence[str]) -> None:
    values = _define_flags()
    parse_flags(argv, values, usage=_USAGE, required=("sae", "format", "out"))
    out = Path(values.out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"--out={out} is not empty; remove it or name another")
    if values.format != "saelens" and not values.activations:
        raise UsageError(f"--format={values.format} needs --activations=DIR")
    record = load_record(values.sae)
    tsae = record.tsae
    if values.format == "saelens":
        stated = _stated_hook(values.hook_name, record)
        save(out, tsae, metadata=record.metadata | stated)
        print(f"{tsae.latents} latents of width {tsae.width}: {out}")
        return
    corpus = corpus_from_flags(record, values)
    if values.format == "neuronpedia":
        neuronpedia.write(
            out,
            tsae,
            corpus,
            name=values.name,
            vocabulary=read_vocabulary(values.vocabulary, corpus.shards),
            creator=values.creator,
        )
    elif values.format == "delphi":
        delphi.write(out, tsae, corpus)
    else:
        index = corpus.shards.index
        about = {
            "name": values.name,
            "model_name": index.model,
            "release": values.name,
            "sae_id": index.hook,
        }
        sums = _outcome_moments(tsae, corpus, values.outcome)
        mechreward.write(out, sums, num_latents=values.count, about=about)
    print(f"{tsae.latents} latents over {len(corpus.document_ids)} documents: {out}")


def _stated_hook(hook_name: str | None, record: SAERecord) -> dict[str, str]:
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


def _define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    define_corpus_flags(values, activations="activation shards; for all but saelens")
    flags.DEFINE_enum("format", None, FORMATS, "what to write", flag_values=values)
    flags.DEFINE_string("out", None, "the directory to write", flag_values=values)
    flags.DEFINE_string(
        "name", "tsae", "neuronpedia: source set; mechreward: pack", flag_values=values
    )
    flags.DEFINE_string(
        "hook_name",
        None,
        "saelens: the hook it reads, if its files do not say, such as "
        "blocks.2.hook_resid_post",
        flag_values=values,
    )
    flags.DEFINE_string(
        "vocabulary",
        None,
        "neuronpedia: JSON of tokens and ids, or tokenizer.json; by default the data's "
        "texts, or ids",
        flag_values=values,
    )
    flags.DEFINE_string(
        "creator", "local", "neuronpedia: id of the creator", flag_values=values
    )
    flags.DEFINE_string(
        "outcome", "correct", "mechreward: the factor that judges", flag_values=values
    )
    flags.DEFINE_integer(
        "count",
        10,
        "mechreward: latents to reward, and to punish",
        lower_bound=1,
        flag_values=values,
    )
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
