"""sparsify: `sae.safetensors` next to `cfg.json`; a token keeps its k largest latents.

https://github.com/EleutherAI/sparsify. Transcoders, skip connections and the `groupmax`
activation are other models and are refused. The directory has the name of the module
whose output is encoded, such as layers.5.
"""

import re
from pathlib import Path

from sae_jax.formats.files import read_json, read_safetensors
from sae_jax.formats.record import FormatError, SAERecord, build_tsae, require_tensors

WEIGHTS_FILE = "sae.safetensors"
CONFIG_FILE = "cfg.json"
_TENSORS = ("encoder.weight", "encoder.bias", "W_dec", "b_dec")


def read(directory: Path) -> SAERecord:
    """Returns the autoencoder of a sparsify directory."""
    path = directory / CONFIG_FILE
    config = read_json(path)
    if config.get("transcode") or config.get("skip_connection"):
        raise FormatError(f"{path}: a transcoder, not an autoencoder")
    if (activation := config.get("activation", "topk")) != "topk":
        raise FormatError(f"{path}: activation {activation!r} is not read; topk is")
    if "k" not in config:
        raise FormatError(f"{path} does not say k; add it")
    weights = directory / WEIGHTS_FILE
    tensors = read_safetensors(weights)
    require_tensors(tensors, _TENSORS, weights)
    tsae = build_tsae(
        weights,
        encoder=tensors["encoder.weight"].T,
        encoder_bias=tensors["encoder.bias"],
        decoder=tensors["W_dec"],
        decoder_bias=tensors["b_dec"],
        threshold=0.0,
        subtract_decoder_bias=True,
        top_k=config["k"],
    )
    metadata = {"k": config["k"]}
    hook = directory.resolve().name
    if re.match(r"(model\.)?layers\.\d+", hook):
        metadata["hook_name"] = hook
    return SAERecord(tsae=tsae, metadata=metadata, format="sparsify")
