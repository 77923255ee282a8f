"""Autoencoders on disk: one format to write, four to read, told by their files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sae_jax.formats import dictionary_learning, gemma_scope, saelens, sparsify
from sae_jax.formats.record import FormatError, SAERecord
from sae_jax.sae import TSAE

_KNOWN = (
    "sae_weights.safetensors and cfg.json (SAELens), ae.pt (dictionary_learning and "
    "T-SAE), params.npz (Gemma Scope), sae.safetensors and cfg.json (sparsify)"
)


def save(
    path: str | os.PathLike[str],
    tsae: TSAE,
    *,
    metadata: Mapping[str, Any] | None = None,
    firing_rate: Any = None,
) -> None:
    """Writes the autoencoder into the directory `path`, in SAELens' layout.

    SAELens opens it as it is, and `load` returns it bit for bit. `metadata` goes into
    cfg.json (see `formats.saelens.write`); `firing_rate` [Z] is the share of tokens on
    which each latent fires. Raises TypeError where the two come in another order.
    """
    if not isinstance(tsae, TSAE):
        raise TypeError(
            f"save(path, tsae) got a {type(path).__name__} and a "
            f"{type(tsae).__name__}; give the directory first, then the TSAE"
        )
    saelens.write(Path(path), tsae, metadata=metadata or {}, firing_rate=firing_rate)


def load(path: str | os.PathLike[str]) -> TSAE:
    """Returns the autoencoder of a file or directory of any format read here.

    Raises FormatError, naming what was found, where there is none.
    """
    return read(path).tsae


def read(path: str | os.PathLike[str]) -> SAERecord:
    """Returns the autoencoder with its metadata and the format it was found in."""
    path = Path(path)
    if path.suffix == ".pt" and path.is_file():
        return dictionary_learning.read(path)
    if path.suffix == ".npz" and path.is_file():
        return gemma_scope.read(path)
    if not path.is_dir():
        raise FormatError(f"no autoencoder at {path}: there is no such directory")
    if (path / saelens.WEIGHTS_FILE).is_file():
        return saelens.read(path)
    if (path / dictionary_learning.WEIGHTS_FILE).is_file():
        return dictionary_learning.read(path / dictionary_learning.WEIGHTS_FILE)
    if (path / gemma_scope.WEIGHTS_FILE).is_file():
        return gemma_scope.read(path / gemma_scope.WEIGHTS_FILE)
    if (path / sparsify.WEIGHTS_FILE).is_file():
        return sparsify.read(path)
    found = sorted(entry.name for entry in path.iterdir())
    raise FormatError(f"no autoencoder in {path}: it holds {found}, none of {_KNOWN}")
