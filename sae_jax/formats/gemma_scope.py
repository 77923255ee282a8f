"""Gemma Scope: one `params.npz` with W_enc, b_enc, W_dec, b_dec and threshold.

https://arxiv.org/abs/2408.05147. Its encoder reads x itself, without subtracting b_dec.
The file does not say which layer it is of; its place in the release does:
gemma-scope-2b-pt-res/layer_20/width_16k/average_l0_71/params.npz.
"""

import re
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
    metadata = {"hook_name": hook} if (hook := _hook_of_path(path)) else {}
    return SAERecord(tsae=tsae, metadata=metadata, format="gemma_scope")


def _hook_of_path(path: Path) -> str:
    """Returns the hook that the release's directories name, "" where they do not."""
    folders = path.resolve().parts[:-1]
    layers = [found for part in folders if (found := re.match(r"layer_(\d+)", part))]
    if not layers:
        return ""
    sites = {"-mlp": "hook_mlp_out", "-att": "attn.hook_z"}
    site = next(
        (hook for end, hook in sites.items() if any(f.endswith(end) for f in folders)),
        "hook_resid_post",
    )
    return f"blocks.{layers[-1][1]}.{site}"
