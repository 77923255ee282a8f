"""Gemma Scope, both releases: JumpReLU autoencoders of Gemma 2 and of Gemma 3.

    layer_20/width_16k/average_l0_71/params.npz                    the first release
    resid_post/layer_13_width_16k_l0_medium/params.safetensors     the second,
                                            config.json            next to it

https://arxiv.org/abs/2408.05147. The tensors are W_enc, b_enc, W_dec, b_dec and
threshold (the second release writes w_enc, w_dec). The encoder reads x itself, without
subtracting b_dec. config.json names the hook. Without it, the release's directory names
do, so keep these. Transcoders and crosscoders are other models and are refused.
"""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sae_jax.formats.files import read_json, read_safetensors
from sae_jax.formats.record import (
    FormatError,
    SAERecord,
    Tensors,
    build_tsae,
    require_tensors,
)

NPZ_FILE = "params.npz"
SAFETENSORS_FILE = "params.safetensors"
CONFIG_FILE = "config.json"
_TENSORS = ("W_enc", "b_enc", "W_dec", "b_dec", "threshold")
_MAX_UNPACKED = 16  # times a file's size; float32 weights unpack to less than 2 times
_SITES = {  # the second release's name of a place in a layer -> our name
    "output": "hook_resid_post",
    "post_feedforward_layernorm.output": "hook_mlp_out",
    "self_attn.o_proj.input": "attn.hook_z",
}


def read(path: Path) -> SAERecord:
    """Returns the autoencoder in a params.npz or a params.safetensors."""
    config_path = path.with_name(CONFIG_FILE)
    config: Mapping[str, Any] = read_json(config_path) if config_path.is_file() else {}
    _check_is_autoencoder(path, config)
    tensors = {n.replace("w_", "W_", 1): t for n, t in _read_tensors(path).items()}
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
    found = {
        "hook_name": _hook_of_config(config) or _hook_of_path(path),
        "model_name": _model_name(config),
        "l0": config.get("l0"),
    }
    metadata = {name: value for name, value in found.items() if value}
    return SAERecord(tsae=tsae, metadata=metadata, format="gemma_scope")


def _read_tensors(path: Path) -> Tensors:
    if path.suffix != ".npz":
        return read_safetensors(path)
    try:
        _check_sizes(path)
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FormatError(f"{path}: {error}") from error


def _check_sizes(path: Path) -> None:
    """Raises FormatError if an archive would unpack to far more than its own size."""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > _MAX_UNPACKED * path.stat().st_size:
        raise FormatError(
            f"{path} would unpack to {unpacked} bytes, over {_MAX_UNPACKED} times its "
            "size; no weights do"
        )


def _check_is_autoencoder(path: Path, config: Mapping[str, object]) -> None:
    kind = config.get("type") or "sae"
    folders = " ".join(path.absolute().parts[:-1])
    if found := re.search(r"transcoder|crosscoder|\bclt\b", folders):
        kind = found[0]
    if kind != "sae" or config.get("affine_connection"):
        raise FormatError(f"{path}: a {kind}, not an autoencoder")
    if (architecture := config.get("architecture", "jump_relu")) != "jump_relu":
        raise FormatError(
            f"{path}: architecture {architecture!r} is not read; jump_relu is"
        )


def _hook_of_config(config: Mapping[str, object]) -> str:
    """Returns our name for `hf_hook_point_in`, or it unchanged if we have none."""
    hook = str(config.get("hf_hook_point_in") or "")
    found = re.search(r"(?:^|\.)layers\.(\d+)\.(.+)$", hook)
    if found and found[2] in _SITES:
        return f"blocks.{found[1]}.{_SITES[found[2]]}"
    return hook


def _hook_of_path(path: Path) -> str:
    """Returns the hook that the release's directories name, or ""."""
    # Links are not resolved: the hub's cache links files to meaningless names.
    folders = path.absolute().parts[:-1]
    layers = [found for part in folders if (found := re.match(r"layer_(\d+)", part))]
    if not layers:
        return ""
    sites = {r"-mlp$|^mlp_out": "hook_mlp_out", r"-att$|^attn_out": "attn.hook_z"}
    site = next(
        (
            hook
            for end, hook in sites.items()
            if any(re.search(end, f) for f in folders)
        ),
        "hook_resid_post",
    )
    return f"blocks.{layers[-1][1]}.{site}"


def _model_name(config: Mapping[str, object]) -> str:
    """Returns the model's name on the hub; some files say gemma-v3-1b-pt."""
    name = str(config.get("model_name") or "").replace("-v3", "-3")
    return f"google/{name}" if name.startswith("gemma-") else name
