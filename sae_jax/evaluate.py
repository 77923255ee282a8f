"""The command that measures an autoencoder on activations; prints JSON to stdout.

python -m sae_jax.evaluate --sae=DIR --activations=DIR
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from job_jax.command import run_command
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.schema import PositiveInt, did_you_mean
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusFlags(Flags):
    """The flags that choose an autoencoder and the tokens it reads."""

    sae: str  # the autoencoder, in any readable format
    activations: str  # a directory of activation shards
    # for a crosscoder: the same texts at its other checkpoints, in order
    beside: tuple[str, ...] = ()
    # roles whose tokens count; by default the roles it was trained on, or all
    roles: tuple[str, ...] = ()
    # use only this many documents, from the first on; by default all
    documents: PositiveInt | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateFlags(CorpusFlags):
    """The flags of this command."""

    # labels to score latents against; by default all labels of the data
    factors: tuple[str, ...] | None = None
    # autoencoders of other seeds, or a refit, whose latents are matched with these
    others: tuple[str, ...] = ()
    # numbers of latents, such as 1,4,16: probe the factors with these, and with the
    # activations themselves
    sparse_probes: tuple[int, ...] = ()
    # a .npy file of known directions, one per row, to compare latents with
    directions: str = ""
    # the model of the activations: a Hugging Face directory
    model: str = CaptureConfig.model
    # the reader of --model: huggingface, or package.module:Class
    reader: str = CaptureConfig.reader
    # of the model's weights and activations
    compute_dtype: Dtype = CaptureConfig.compute_dtype


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
    flags, _ = parse_flags(argv, EvaluateFlags, usage=_USAGE)
    record = load_record(flags.sae)
    tsae = record.tsae
    corpus = corpus_from_flags(record, flags, drop_duplicates=True)
    labels = corpus.shards.index.factors
    for name in flags.factors or ():
        if name not in labels:
            nearest = did_you_mean(name, labels)
            raise UsageError(f"no factor {name!r} among {list(labels)}{nearest}")
    others = {path: load(path) for path in flags.others}
    about = {
        "path": flags.sae,
        "format": record.format,
        "width": tsae.width,
        "latents": tsae.latents,
        "group_sizes": list(tsae.group_sizes),
        "k": record.metadata.get("k"),
    }
    factors = labels if flags.factors is None else flags.factors
    _check_counts(flags.sparse_probes, latents=tsae.latents)
    # Read before the long part, because a file may be missing or wrong.
    reader, directions = None, None
    if flags.model:
        reader = open_reader(flags.reader, flags.model, dtype=flags.compute_dtype)
    if flags.directions:
        directions = _read_directions(flags.directions, width=tsae.width)
    result = {"sae": about} | evaluate(
        tsae, corpus, factors=factors, sparse_probes=flags.sparse_probes
    )
    if flags.beside:
        result["crosscoder"] = crosscoder_report(
            tsae, corpus, num_checkpoints=1 + len(flags.beside)
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


def _check_counts(counts: Sequence[int], *, latents: int) -> None:
    """Raises UsageError on numbers of latents that no probe can read."""
    for count in counts:
        if not 1 <= count <= latents:
            raise UsageError(
                f"--sparse_probes={','.join(map(str, counts))}: {count} is out of "
                f"range; give numbers from 1 to {latents}, such as 1,4,16"
            )


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


def corpus_from_flags(
    record: SAERecord, flags: CorpusFlags, *, drop_duplicates: bool = False
) -> Corpus:
    """Returns the tokens that the flags choose."""
    return open_corpus(
        flags.activations,
        record.tsae,
        beside=flags.beside,
        roles=flags.roles or record.metadata.get("roles", ()),
        max_documents=flags.documents,
        drop_duplicates=drop_duplicates,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
