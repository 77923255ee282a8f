"""The command that measures an autoencoder on activations: JSON on stdout.

python -m sae_jax.evaluate --sae=DIR --activations=DIR
"""

import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import flags

from job_jax.command import UsageError, exit_code
from job_jax.schema import did_you_mean
from sae_jax.corpus import Corpus, open_corpus
from sae_jax.factors import UnlabelledError, factor_report
from sae_jax.formats.record import SAERecord
from sae_jax.io import load, read
from sae_jax.quality import QualitySums, measure, report, stability
from sae_jax.sae import TSAE

_USAGE = """\
usage: python -m sae_jax.evaluate --sae=DIR --activations=DIR [--flag=value ...]

Prints one JSON object: what the autoencoder is; how well it describes the activations
(FVE, cosine, L0, alive share, firing densities, smoothness and variation of high-level,
low-level and all latents); how well its latents tell the factors that the activations
are labelled with (MCC, AUROC, linear probes); and, beside autoencoders of other seeds,
how many of its latents they found too.

flags:"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 where the work failed; 2 where flags or files cannot be used."""
    return exit_code(lambda: _run(argv), (ValueError,))


def evaluate(
    tsae: TSAE, corpus: Corpus, *, factors: Sequence[str] = ()
) -> dict[str, Any]:
    """Returns the figures of an autoencoder on a corpus.

    A factor that is no label there has `unmeasured`, the reason, in place of figures.
    """
    total: QualitySums | None = None
    for block in corpus.blocks():
        sums = measure(tsae, block.x, block.counted).on_host()
        total = sums if total is None else total + sums
    if total is None:
        raise ValueError("the corpus has no documents")
    return {
        "activations": {
            "data_hash": corpus.shards.data_hash,
            "documents": len(corpus.numbers),
            "skipped": corpus.skipped,
        },
        "quality": report(total, high=tsae.high),
        "factors": {name: _factor(tsae, corpus, name) for name in factors},
    }


def _factor(tsae: TSAE, corpus: Corpus, name: str) -> dict[str, Any]:
    try:
        return factor_report(tsae, corpus, name)
    except UnlabelledError as error:
        return {"unmeasured": str(error)}


def _run(argv: Sequence[str]) -> None:
    values = _flags()
    parse(argv, values, usage=_USAGE, required=("sae", "activations"))
    record = read(values.sae)
    tsae = record.tsae
    corpus = chosen_corpus(record, values)
    known = corpus.shards.index.factors
    for name in values.factors or ():
        if name not in known:
            nearest = did_you_mean(name, known)
            raise UsageError(f"no factor {name!r} among {list(known)}{nearest}")
    others = [load(path).decoder for path in values.others]
    about = {
        "path": values.sae,
        "format": record.format,
        "width": tsae.width,
        "latents": tsae.latents,
        "group_sizes": list(tsae.group_sizes),
        "k": record.metadata.get("k"),
    }
    factors = known if values.factors is None else values.factors
    result = {"sae": about} | evaluate(tsae, corpus, factors=factors)
    if others:
        result["stability"] = _stability(tsae, others)
    print(json.dumps(result, indent=2))


def _stability(tsae: TSAE, others: list[Any]) -> dict[str, float]:
    cosine = stability(tsae.decoder, others)
    high = cosine[: tsae.high]
    return {
        "mean": float(cosine.mean()),
        "high": float(high.mean()),
        "above_0.7": float((cosine > 0.7).mean()),
        "median": float(np.median(cosine)),
    }


def parse(
    argv: Sequence[str],
    values: flags.FlagValues,
    *,
    usage: str,
    required: Sequence[str],
) -> None:
    """Fills `values` from a command line of plain flags.

    Raises UsageError where it cannot be used. Prints the help and exits 0 on --help.
    """
    flags.DEFINE_boolean("help", False, "show this and exit", flag_values=values)
    try:
        extra = values(["", *argv])[1:]
    except flags.Error as error:
        raise UsageError(str(error)) from error
    if values.help:
        print(usage)
        for name in values:
            print(f"  {f'--{name}':<14} {values[name].help}")
        raise SystemExit(0)
    if extra:
        raise UsageError(f"unexpected argument {extra[0]!r}; write --flag=value")
    for name in required:
        if not values[name].value:
            raise UsageError(f"--{name} is missing: {values[name].help}")


def corpus_flags(values: flags.FlagValues, *, activations: str) -> None:
    """Defines the flags that choose an autoencoder and the tokens it is shown."""
    flags.DEFINE_string(
        "sae", None, "the autoencoder, of any format that is read", flag_values=values
    )
    flags.DEFINE_string("activations", None, activations, flag_values=values)
    flags.DEFINE_list(
        "roles",
        [],
        "roles whose tokens count; by default those it was trained on, else all",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "documents",
        None,
        "the first so many documents; all by default",
        lower_bound=1,
        flag_values=values,
    )


def chosen_corpus(record: SAERecord, values: flags.FlagValues) -> Corpus:
    """Returns the tokens that the flags of `corpus_flags` choose."""
    return open_corpus(
        values.activations,
        record.tsae,
        roles=values.roles or record.metadata.get("roles", ()),
        limit=values.documents,
    )


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    corpus_flags(values, activations="a directory of activation shards")
    flags.DEFINE_list(
        "factors",
        None,
        "labels to score latents against; all that the data have by default",
        flag_values=values,
    )
    flags.DEFINE_list(
        "others",
        [],
        "autoencoders of other seeds, for stability",
        flag_values=values,
    )
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
