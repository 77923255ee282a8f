"""Gemma Scope: one `params.npz` with W_enc, b_enc, W_dec, b_dec and threshold.

https://arxiv.org/abs/2408.05147. Its encoder reads x itself, without subtracting b_dec.
"""

import zipfile
from pathlib import Path

import numpy as np

from sae_jax.formats.record import FormatError, SAERecord, build_tsae, require_tensors

WEIGHTS_FILE = "params.npz"
_TENSORS = ("W_enc", "b_enc", "W_dec", "b_dec", "threshold")


def read(path: Path) -> SAERecord:
    """Returns the autoencoder of a params.npz; the second release's w_enc is W_enc."""
    try:
        with np.load(path, allow_pickle=False) as file:
            tensors = {n.replace("w_", "W_", 1): file[n] for n in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: {error}") from error
    require_tensors(tensors, _TENSORS, path)
    tsae = build_tsae(
        path,
        encoder=tensors["W_enc"],
        encoder_bias=tensors["b_enc"],
        decoder=tensors["W_dec"],
        decoder_bias=tensors["b_dec"],
        threshold=tensors["threshold"],
        subtract_decoder_bias=False,
    )
    return SAERecord(tsae=tsae, metadata={}, format="gemma_scope")
