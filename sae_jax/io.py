"""Autoencoders on disk: written in one format, read in five, known by file name."""

import os
from collections.abc import Mapping
from pathlib import Path

import numpy.typing as npt

from job_jax.files import DamagedFileError
from sae_jax.formats import (
    dictionary_learning,
    gemma_scope,
    qwen_scope,
    saelens,
    sparsify,
)
from sae_jax.formats.record import FormatError, SAERecord
from sae_jax.sae import TSAE

_READABLE_FORMATS = (
    "sae_weights.safetensors and cfg.json (SAELens), ae.pt (dictionary_learning and "
    "T-SAE), params.npz and params.safetensors (Gemma Scope), layerN.sae.pt "
    "(Qwen-Scope), sae.safetensors and cfg.json (sparsify)"
)


def save(
    path: str | os.PathLike[str],
    tsae: TSAE,
    *,
    metadata: Mapping[str, object] | None = None,
    firing_rate: npt.ArrayLike | None = None,
) -> None:
    """Writes the autoencoder into the directory `path`, in SAELens' format.

    SAELens can open it directly, and `load` returns it bit for bit. `metadata` goes
    into cfg.json (see `formats.saelens.write`); `firing_rate` [Z] is the share of
    tokens on which each latent fires. Raises TypeError if the arguments are swapped.

    >>> import tempfile
    >>> tsae = TSAE.init(0, width=8, latents=32)
    >>> with tempfile.TemporaryDirectory() as path:
    ...     save(path, tsae)
    ...     bool((load(path).decoder == tsae.decoder).all())
    True
    """
    if not isinstance(tsae, TSAE):
        raise TypeError(
            f"save(path, tsae) got a {type(path).__name__} and a "
            f"{type(tsae).__name__}; give the directory first, then the TSAE"
        )
    saelens.write(Path(path), tsae, metadata=metadata or {}, firing_rate=firing_rate)


def load(path: str | os.PathLike[str]) -> TSAE:
    """Returns the autoencoder in a file or directory.

    It reads the formats of SAELens, dictionary_learning (and the T-SAE authors), Gemma
    Scope, Qwen-Scope and sparsify. Raises FormatError if there is none of these, and
    names the files that are there.
    """
    return load_record(path).tsae


def load_record(path: str | os.PathLike[str]) -> SAERecord:
    """Returns the autoencoder with its metadata and the name of its format.

    Raises FormatError as `load` does and if files are damaged, and DamagedFileError if
    the weights differ from what `save` wrote.
    """
    path = Path(path)
    try:
        return _read_file(path) if path.is_file() else _read_directory(path)
    except (FormatError, DamagedFileError):
        raise
    except Exception as error:  # a damaged file raises nearly anything
        raise FormatError(
            f"{path} is damaged, or of a kind that we cannot read "
            f"({type(error).__name__}: {error!s:.200})"
        ) from error


def _read_directory(path: Path) -> SAERecord:
    if not path.is_dir():
        raise FormatError(f"no autoencoder at {path}: there is no such directory")
    for file, read in (
        (saelens.WEIGHTS_FILE, lambda file: saelens.read(file.parent)),
        (dictionary_learning.WEIGHTS_FILE, dictionary_learning.read),
        (gemma_scope.NPZ_FILE, gemma_scope.read),
        (gemma_scope.SAFETENSORS_FILE, gemma_scope.read),
        (sparsify.WEIGHTS_FILE, lambda file: sparsify.read(file.parent)),
    ):
        if (path / file).is_file():
            return read(path / file)
    layers = sorted(e.name for e in path.iterdir() if qwen_scope.is_file(e))
    if len(layers) == 1:
        return qwen_scope.read(path / layers[0])
    if layers:
        raise FormatError(
            f"{path} holds {len(layers)} layers; name the file of one, such as "
            f"{path / layers[0]}"
        )
    files = sorted(entry.name for entry in path.iterdir())
    raise FormatError(
        f"no autoencoder in {path}: it holds {files}, none of {_READABLE_FORMATS}"
    )


def _read_file(path: Path) -> SAERecord:
    if qwen_scope.is_file(path):
        return qwen_scope.read(path)
    if path.suffix == ".pt":
        return dictionary_learning.read(path)
    if path.suffix == ".npz" or path.name == gemma_scope.SAFETENSORS_FILE:
        return gemma_scope.read(path)
    raise FormatError(
        f"{path} is not an autoencoder that we can read; give the directory of one of "
        f"{_READABLE_FORMATS}"
    )
