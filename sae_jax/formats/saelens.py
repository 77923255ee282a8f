"""SAELens: `cfg.json` next to `sae_weights.safetensors`. We also save in this format.

SAELens 6.x (from its loader) needs exactly the five tensors below, in the dtype that
cfg.json names, and a `metadata.sae_lens_version` of at least 6; otherwise it silently
drops all metadata. `jumprelu` encodes relu(pre) where pre > threshold, exactly as a
TSAE does. A TSAE with `top_k` is saved as `topk`, which has no threshold.

The architectures below can be read; options that are linear in the activations are
folded into the weights (`saelens_options`). SAELens writes `batchtopk` and
`matryoshka_batchtopk` during training and publishes them as `jumprelu`, so we read both
as `jumprelu`. Its published files lack the nested groups, so keep the training files
for these. `architecture: "temporal"` is a different model.
"""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from job_jax.files import check_digest, write_atomically, write_with_digest
from sae_jax.formats.files import read_json, read_safetensors
from sae_jax.formats.record import FormatError, SAERecord, build_tsae, require_tensors
from sae_jax.formats.saelens_options import fold_options, upgrade_config
from sae_jax.sae import TSAE

CONFIG_FILE = "cfg.json"
WEIGHTS_FILE = "sae_weights.safetensors"
SPARSITY_FILE = "sparsity.safetensors"

# The oldest version whose loader keeps metadata; we need nothing newer.
_SAE_LENS_VERSION = "6.0.0"
# Written for a latent that never fired: SAELens shows log10 of it as dead.
_MIN_FIRING_RATE = 1e-10

_TENSORS = ("W_enc", "b_enc", "W_dec", "b_dec")
_TENSORS_BY_ARCHITECTURE = {  # architecture -> its tensors
    "jumprelu": (*_TENSORS, "threshold"),
    "standard": _TENSORS,
    "topk": _TENSORS,
    "gated": ("W_enc", "W_dec", "b_dec", "b_gate", "b_mag", "r_mag"),
    "batchtopk": (*_TENSORS, "topk_threshold"),
    "matryoshka_batchtopk": (*_TENSORS, "topk_threshold"),
}


def write(
    directory: Path,
    tsae: TSAE,
    *,
    metadata: Mapping[str, object],
    firing_rate: Any = None,
) -> None:
    """Writes the files into `directory`, which is made if missing.

    `metadata` may contain `model_name`, `hook_name`, `hf_hook_name`, `context_size`,
    `k`, `l0`, `data_hash` and anything else; `group_sizes` is added. With `firing_rate`
    [Z], log10 of it is also written, to sparsity.safetensors.
    """
    width, latents = tsae.encoder.shape
    config: dict[str, Any] = {
        "architecture": "jumprelu",
        "d_in": width,
        "d_sae": latents,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": True,
        "normalize_activations": "none",
        "reshape_activations": "none",
        "metadata": {
            **metadata,
            "sae_lens_version": _SAE_LENS_VERSION,
            "group_sizes": list(tsae.group_sizes),
        },
    }
    tensors = {
        "W_enc": tsae.encoder,
        "b_enc": tsae.encoder_bias,
        "W_dec": tsae.decoder,
        "b_dec": tsae.decoder_bias,
        "threshold": tsae.threshold,
    }
    if tsae.top_k is not None:
        config |= {"architecture": "topk", "k": tsae.top_k}
        config |= {"rescale_acts_by_decoder_norm": False}
        del tensors["threshold"]
    directory.mkdir(parents=True, exist_ok=True)
    with write_with_digest(directory / WEIGHTS_FILE) as partial:
        save_file(
            {name: np.ascontiguousarray(t, np.float32) for name, t in tensors.items()},
            partial,
        )
    if firing_rate is not None:
        sparsity_Z = np.log10(np.maximum(firing_rate, _MIN_FIRING_RATE))
        with write_atomically(directory / SPARSITY_FILE) as partial:
            save_file({"sparsity": sparsity_Z.astype(np.float32)}, partial)
    text = json.dumps(config, indent=2, allow_nan=False)
    (directory / CONFIG_FILE).write_text(text + "\n")


def read(directory: Path) -> SAERecord:
    """Returns the autoencoder of a SAELens directory; ours comes back bit for bit.

    Raises FormatError for an architecture or an option that a TSAE cannot express, and
    DamagedFileError if the weights differ from what `write` wrote.
    """
    check_digest(directory / WEIGHTS_FILE)  # not cfg.json, which users may edit
    path = directory / CONFIG_FILE
    config = upgrade_config(read_json(path))
    architecture = config["architecture"]
    if architecture not in _TENSORS_BY_ARCHITECTURE:
        raise FormatError(
            f"{path}: architecture {architecture!r} is not read; "
            f"{list(_TENSORS_BY_ARCHITECTURE)} are"
        )
    weights = directory / WEIGHTS_FILE
    tensors = read_safetensors(weights)
    if np.all(tensors.get("scaling_factor") == np.float32(1)):
        del tensors["scaling_factor"]  # versions before 3 wrote it even if unused
    require_tensors(tensors, _TENSORS_BY_ARCHITECTURE[architecture], weights)
    metadata = _read_metadata(config)
    arrays = fold_options(path, config, tensors)
    tsae = build_tsae(
        weights,
        encoder=arrays["W_enc"],
        encoder_bias=arrays["b_enc"],
        decoder=arrays["W_dec"],
        decoder_bias=arrays["b_dec"],
        threshold=arrays["threshold"],
        subtract_decoder_bias=config.get("apply_b_dec_to_input", True),
        group_sizes=_group_sizes(path, config, metadata),
        top_k=_top_k(path, config) if architecture == "topk" else None,
    )
    return SAERecord(tsae=tsae, metadata=metadata, format="saelens")


def _top_k(path: Path, config: Mapping[str, object]) -> int:
    k = config.get("k")
    if not isinstance(k, int | float) or k != int(k):
        raise FormatError(f"{path}: k={k!r} of a topk must be a whole number; set it")
    return int(k)


def _group_sizes(
    path: Path, config: Mapping[str, Any], metadata: Mapping[str, Any]
) -> list[int]:
    """Returns the sizes of the nested groups; SAELens stores where each group ends."""
    ends = config.get("matryoshka_widths")
    if not ends:
        return metadata.get("group_sizes") or []
    sizes = [b - a for a, b in itertools.pairwise([0, *ends])]
    if min(sizes) < 1:
        raise FormatError(f"{path}: matryoshka_widths={ends} do not rise")
    return sizes


def _read_metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata; before version 6 they were in the config itself."""
    older = {
        "model_name": config.get("model_name"),
        "hook_name": config.get("hook_name") or config.get("hook_point"),
    }
    known = {name: value for name, value in older.items() if value}
    return known | dict(config.get("metadata") or {})
