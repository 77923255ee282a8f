"""Qwen-Scope: `layerN.sae.pt`, TopK autoencoders of the residual stream of Qwen3.

    SAE-Res-Qwen3-1.7B-Base-W32K-L0_50/layer14.sae.pt
        W_enc [Z D], b_enc [Z], W_dec [D Z], b_dec [D]

https://huggingface.co/collections/Qwen/qwen-scope. A token keeps the k largest entries
of W_enc x + b_enc: b_dec is not subtracted. The file does not contain k or the model;
the repository's name does, so the file must be below a directory with that name.
"""

import re
from pathlib import Path

from sae_jax.formats.record import FormatError, SAERecord, build_tsae, require_tensors
from sae_jax.formats.torch_zip import read_tensors

_FILE = re.compile(r"layer(\d+)\.sae\.pt")
_REPOSITORY = re.compile(r"SAE-Res-(.+)-W\d+K-L0_(\d+)$")
_TENSORS = ("W_enc", "b_enc", "W_dec", "b_dec")


def is_file(path: Path) -> bool:
    """Returns whether a path has the name of a Qwen-Scope file."""
    return _FILE.fullmatch(path.name) is not None


def read(path: Path) -> SAERecord:
    """Returns the autoencoder in a layerN.sae.pt.

    Raises FormatError if no directory above it has the repository's name.
    """
    layer = _FILE.fullmatch(path.name)
    # Links are not resolved: the hub's cache links files to meaningless names.
    names = (_REPOSITORY.search(part) for part in reversed(path.absolute().parts[:-1]))
    repository = next((found for found in names if found), None)
    if layer is None or repository is None:
        raise FormatError(
            f"{path} does not say how many latents a token keeps, but the name of its "
            "repository does; put it into a directory of that name, such as "
            f"SAE-Res-Qwen3-1.7B-Base-W32K-L0_50/{path.name}"
        )
    tensors = read_tensors(path)
    require_tensors(tensors, _TENSORS, path)
    k = int(repository[2])
    tsae = build_tsae(
        path,
        encoder=tensors["W_enc"].T,
        encoder_bias=tensors["b_enc"],
        decoder=tensors["W_dec"].T,
        decoder_bias=tensors["b_dec"],
        threshold=0.0,
        subtract_decoder_bias=False,
        top_k=k,
    )
    metadata = {
        "k": k,
        "hook_name": f"blocks.{layer[1]}.hook_resid_post",
        "model_name": f"Qwen/{repository[1]}",
    }
    return SAERecord(tsae=tsae, metadata=metadata, format="qwen_scope")
