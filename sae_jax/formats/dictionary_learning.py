"""dictionary_learning and the T-SAE authors' code: `ae.pt` next to `config.json`.

The tensors' names identify the class, except where two classes share them: then
`trainer.dict_class` in `config.json` is needed.

  MatryoshkaBatchTopKSAE, TemporalMatryoshkaBatchTopKSAE   W_enc [D Z] ..., group_sizes
  BatchTopKSAE, TemporalBatchTopKSAE                       encoder.weight [Z D] ..., k
  AutoEncoderTopK            the same names, but keeps the k largest
  JumpReluAutoEncoder        W_enc [D Z] ..., threshold [Z]; does not subtract b_dec
  AutoEncoder                encoder.weight [Z D], bias; ReLU
  AutoEncoderNew             encoder.weight [Z D], decoder.bias; ReLU, not subtracted

A threshold of -1 was never set and means plain ReLU, as in the authors' class.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sae_jax.formats.files import read_json
from sae_jax.formats.record import FormatError, SAERecord, build_tsae
from sae_jax.formats.torch_zip import read_tensors

WEIGHTS_FILE = "ae.pt"
CONFIG_FILE = "config.json"

_MATRYOSHKA = {"W_enc", "b_enc", "W_dec", "b_dec", "threshold", "k", "group_sizes"}
_JUMPRELU = {"W_enc", "b_enc", "W_dec", "b_dec", "threshold"}
_LINEAR = {"encoder.weight", "encoder.bias", "decoder.weight"}
_TOP_K = _LINEAR | {"b_dec", "threshold", "k"}
_RELU = _LINEAR | {"bias"}
_RELU_NEW = _LINEAR | {"decoder.bias"}


def read(path: Path) -> SAERecord:
    """Returns the autoencoder in an ae.pt, converted according to its class.

    Without config.json, a file that could be from BatchTopKSAE or AutoEncoderTopK is
    read as BatchTopKSAE. Raises FormatError if the tensors match no class above.
    """
    tensors = read_tensors(path)
    trainer = _trainer_config(path)
    dict_class = trainer.get("dict_class", "")
    names = set(tensors)
    metadata = _read_metadata(trainer)
    if names == _MATRYOSHKA:
        sizes = [int(size) for size in tensors["group_sizes"]]
        tsae = _from_matrices(
            path, tensors, subtract_decoder_bias=True, group_sizes=sizes
        )
        metadata |= {"k": int(tensors["k"]), "group_sizes": sizes}
    elif names == _JUMPRELU:
        tsae = _from_matrices(path, tensors, subtract_decoder_bias=False)
    elif names == _TOP_K:
        k = int(tensors["k"])
        top_k = k if dict_class == "AutoEncoderTopK" else None
        threshold = 0.0 if top_k else tensors["threshold"]
        tsae = _from_linear_layers(
            path, tensors, "b_dec", threshold=threshold, top_k=top_k
        )
        metadata |= {"k": k}
    elif names == _RELU:
        tsae = _from_linear_layers(path, tensors, "bias", threshold=0.0)
    elif names == _RELU_NEW:
        tsae = _from_linear_layers(
            path, tensors, "decoder.bias", threshold=0.0, subtract_decoder_bias=False
        )
    else:
        raise FormatError(
            f"{path}{f' of class {dict_class}' if dict_class else ''} holds "
            f"{sorted(names)}, which match no class of dictionary that we can read"
        )
    return SAERecord(tsae=tsae, metadata=metadata, format="dictionary_learning")


def _trainer_config(path: Path) -> Mapping[str, Any]:
    config = path.with_name(CONFIG_FILE)
    return read_json(config).get("trainer", {}) if config.is_file() else {}


def _read_metadata(trainer: Mapping[str, object]) -> dict[str, Any]:
    """Returns the trainer's config, and the hook and model it names.

    `submodule_name` looks like "resid_post_layer_8"; without it, the hook is the
    residual stream after `layer`.
    """
    metadata: dict[str, Any] = {"dictionary_learning": trainer} if trainer else {}
    if (layer := trainer.get("layer")) is not None:
        site = str(trainer.get("submodule_name") or "resid_post").split("_layer_")[0]
        metadata["hook_name"] = f"blocks.{layer}.hook_{site}"
    if model := trainer.get("lm_name"):
        metadata["model_name"] = model
    return metadata


def _from_matrices(path: Path, tensors: Mapping[str, Any], **options: Any) -> Any:
    return build_tsae(
        path,
        encoder=tensors["W_enc"],
        encoder_bias=tensors["b_enc"],
        decoder=tensors["W_dec"],
        decoder_bias=tensors["b_dec"],
        threshold=tensors["threshold"],
        **options,
    )


def _from_linear_layers(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    decoder_bias: str,
    *,
    threshold: npt.ArrayLike,
    subtract_decoder_bias: bool = True,
    top_k: int | None = None,
) -> Any:
    """Returns the TSAE from torch.nn.Linear layers, whose weights are [out in]."""
    return build_tsae(
        path,
        encoder=tensors["encoder.weight"].T,
        encoder_bias=tensors["encoder.bias"],
        decoder=tensors["decoder.weight"].T,
        decoder_bias=tensors[decoder_bias],
        threshold=threshold,
        subtract_decoder_bias=subtract_decoder_bias,
        top_k=top_k,
    )
