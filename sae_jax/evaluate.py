"""The command that measures an autoencoder on activations; prints JSON to stdout.

python -m sae_jax.evaluate --sae=DIR --activations=DIR
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from absl import flags

from job_jax.command import UsageError, parse_flags, run_command
from job_jax.schema import did_you_mean
from sae_jax.capture.reader import open_reader
from sae_jax.capture.splice import measure_splice
from sae_jax.config import CaptureConfig, Dtype
from sae_jax.data.corpus import Corpus, open_corpus
from sae_jax.formats.record import SAERecord
from sae_jax.io import load, load_record
from sae_jax.sae import TSAE
from sae_jax.stats.crosscoder import crosscoder_report
from sae_jax.stats.factors import UnlabeledError, factor_report
from sae_jax.stats.partners import PartnerCorrelation, correlate_partners
from sae_jax.stats.quality import (
    QualitySums,
    measure_quality,
    quality_report,
    seed_cosine,
)
from sae_jax.stats.recovery import recovery_report
from sae_jax.stats.sparse_probing import sparse_probe_report

_USAGE = """\
usage: python -m sae_jax.evaluate --sae=DIR --activations=DIR [--flag=value ...]

Prints one JSON object with
  sae          the autoencoder's format and sizes
  quality      how well it describes the activations: FVE, cosine, L0, alive share,
               firing densities, smoothness and variation of high-level, low-level and
               all latents
  factors      how well its latents predict the factors that label the activations:
               MCC, AUROC, linear probes
  splice       with --model: what that model loses when it reads reconstructions,
               compared with the mean (cross entropy, KL)
  seed_cosine  with --others, autoencoders of other seeds or of a later policy: how
               many of its latents they share
  partners     with --others: how each latent correlates with its partner there
  crosscoder   with --beside: which checkpoint each latent of a crosscoder belongs to
  recovery     with --directions: which known directions it contains

flags:"""


def main(argv: Sequence[str]) -> int:
    """Returns 0; 1 if the work failed; 2 if flags or files cannot be used."""
    return run_command(lambda: _run_command(argv), (OSError, ValueError))


def evaluate(
    tsae: TSAE,
    corpus: Corpus,
    *,
    factors: Sequence[str] = (),
    sparse_probes: Sequence[int] = (),
) -> dict[str, Any]:
    """Returns the figures of an autoencoder on a corpus.

    `sparse_probes` are the numbers of latents that probes of the factors read. If a
    factor cannot be used as a label, it has the key `error` with the reason.
    """
    total: QualitySums | None = None
    for block in corpus.blocks():
        sums = measure_quality(tsae, block.x, block.mask).to_host()
        total = sums if total is None else total + sums
    if total is None:
        raise ValueError("the corpus has no documents")
    return {
        "activations": {
            "data_hash": corpus.shards.data_hash,
            "documents": len(corpus.document_ids),
            "skipped": corpus.skipped,
        },
        "quality": quality_report(total, num_high=tsae.num_high),
        "factors": {
            name: _factor_report(tsae, corpus, name, sparse_probes) for name in factors
        },
    }


def _factor_report(
    tsae: TSAE, corpus: Corpus, name: str, counts: Sequence[int]
) -> dict[str, Any]:
    try:
        report = factor_report(tsae, corpus, name)
        if counts:
            report["sparse_probes"] = sparse_probe_report(
                tsae, corpus, name, counts=counts
            )
        return report
    except UnlabeledError as error:
        return {"error": str(error)}


def _run_command(argv: Sequence[str]) -> None:
    values = _define_flags()
    parse_flags(argv, values, usage=_USAGE, required=("sae", "activations"))
    record = load_record(values.sae)
    tsae = record.tsae
    corpus = corpus_from_flags(record, values, drop_duplicates=True)
    labels = corpus.shards.index.factors
    for name in values.factors or ():
        if name not in labels:
            nearest = did_you_mean(name, labels)
            raise UsageError(f"no factor {name!r} among {list(labels)}{nearest}")
    others = {path: load(path) for path in values.others}
    about = {
        "path": values.sae,
        "format": record.format,
        "width": tsae.width,
        "latents": tsae.latents,
        "group_sizes": list(tsae.group_sizes),
        "k": record.metadata.get("k"),
    }
    factors = labels if values.factors is None else values.factors
    counts = _parse_counts(values.sparse_probes, latents=tsae.latents)
    # Read before the long part, because a file may be missing or wrong.
    reader, directions = None, None
    if values.model:
        reader = open_reader(values.reader, values.model, dtype=values.compute_dtype)
    if values.directions:
        directions = _read_directions(values.directions, width=tsae.width)
    result = {"sae": about} | evaluate(
        tsae, corpus, factors=factors, sparse_probes=counts
    )
    if values.beside:
        result["crosscoder"] = crosscoder_report(
            tsae, corpus, num_checkpoints=1 + len(values.beside)
        )
    if reader is not None:
        result["splice"] = measure_splice(tsae, corpus, reader)
    if directions is not None:
        result["recovery"] = recovery_report(tsae.decoder, directions)
    if others:
        decoders = [other.decoder for other in others.values()]
        result["seed_cosine"] = _seed_cosine_report(tsae, decoders)
        result["partners"] = {
            path: _partner_report(correlate_partners(tsae, other, corpus))
            for path, other in others.items()
        }
    print(json.dumps(result, indent=2))


def _read_directions(path: str, *, width: int) -> np.ndarray:
    """Returns the rows of a .npy file. Raises UsageError."""
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(f"--directions={path}: {error}") from error
    if not isinstance(rows, np.ndarray) or rows.ndim != 2 or rows.shape[1] != width:
        shape = list(np.shape(rows)) if isinstance(rows, np.ndarray) else "an archive"
        raise UsageError(
            f"--directions={path} is {shape}; save one array [directions, {width}] "
            "with numpy.save"
        )
    if not len(rows) or not np.isfinite(rows).all():
        raise UsageError(
            f"--directions={path} has no rows, or numbers that are not finite; save "
            "finite directions"
        )
    return rows.astype(np.float32)


def _parse_counts(values: Sequence[str], *, latents: int) -> list[int]:
    """Returns the numbers of latents for the probes. Raises UsageError."""
    for value in values:
        if not value.isdigit() or not 1 <= int(value) <= latents:
            raise UsageError(
                f"--sparse_probes={','.join(values)}: {value} is out of range; "
                f"give numbers from 1 to {latents}, such as 1,4,16"
            )
    return [int(value) for value in values]


def _seed_cosine_report(tsae: TSAE, others: list[Any]) -> dict[str, float]:
    cosine = seed_cosine(tsae.decoder, others)
    high = cosine[: tsae.num_high]
    return {
        "mean": float(cosine.mean()),
        "high": float(high.mean()),
        "above_0.7": float((cosine > 0.7).mean()),
        "median": float(np.median(cosine)),
    }


def _partner_report(partners: PartnerCorrelation) -> dict[str, Any]:
    """Returns how each latent correlates with its partner in another autoencoder."""
    correlation = partners.correlation
    return {
        "median": float(np.median(correlation)),
        "mean": float(correlation.mean()),
        "above_0.7": float((correlation > 0.7).mean()),
        "correlation": correlation.round(4).tolist(),
        "cosine": partners.match.cosine.round(4).tolist(),
        "partner": partners.match.nearest.tolist(),
    }


def define_corpus_flags(values: flags.FlagValues, *, activations: str) -> None:
    """Defines the flags that choose an autoencoder and the tokens it reads."""
    flags.DEFINE_string(
        "sae", None, "the autoencoder, in any readable format", flag_values=values
    )
    flags.DEFINE_string("activations", None, activations, flag_values=values)
    flags.DEFINE_list(
        "beside",
        [],
        "for a crosscoder: the same texts at its other checkpoints, in order",
        flag_values=values,
    )
    flags.DEFINE_list(
        "roles",
        [],
        "roles whose tokens count; by default the roles it was trained on, or all",
        flag_values=values,
    )
    flags.DEFINE_integer(
        "documents",
        None,
        "use only this many documents, from the first on; by default all",
        lower_bound=1,
        flag_values=values,
    )


def corpus_from_flags(
    record: SAERecord, values: flags.FlagValues, *, drop_duplicates: bool = False
) -> Corpus:
    """Returns the tokens that the flags of `define_corpus_flags` choose."""
    return open_corpus(
        values.activations,
        record.tsae,
        beside=values.beside,
        roles=values.roles or record.metadata.get("roles", ()),
        max_documents=values.documents,
        drop_duplicates=drop_duplicates,
    )


def _define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    define_corpus_flags(values, activations="a directory of activation shards")
    flags.DEFINE_list(
        "factors",
        None,
        "labels to score latents against; by default all labels of the data",
        flag_values=values,
    )
    flags.DEFINE_list(
        "others",
        [],
        "autoencoders of other seeds, or a refit, whose latents are matched with these",
        flag_values=values,
    )
    flags.DEFINE_list(
        "sparse_probes",
        [],
        "numbers of latents, such as 1,4,16: probe the factors with these, "
        "and with the activations themselves",
        flag_values=values,
    )
    flags.DEFINE_string(
        "directions",
        None,
        "a .npy file of known directions, one per row, to compare latents with",
        flag_values=values,
    )
    default = CaptureConfig()
    for name, text in (
        ("model", "the model of the activations: a Hugging Face directory"),
        ("reader", "the reader of --model: huggingface, or package.module:Class"),
    ):
        flags.DEFINE_string(name, vars(default)[name], text, flag_values=values)
    flags.DEFINE_enum(
        "compute_dtype",
        default.compute_dtype,
        get_args(Dtype),
        "of the model's weights and activations",
        flag_values=values,
    )
    return values


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
