"""Folds the options of a SAELens file into the arrays of a TSAE.

Options that are linear in the input fold exactly (in float64, up to one rounding):

    expected_average_only_in   the encoder reads s x: W_enc s, W_dec / s, b_dec / s
    rescale_acts_by_decoder_norm   latents are in units of n = |W_dec rows|:
                               W_enc n, b_enc n, W_dec / n
    gated                      f = relu(m) where g > 0, with g = (x - b_dec) W_enc +
                               b_gate and m = (x - b_dec) W_enc e^r + b_mag. g has the
                               sign of m - (b_mag - b_gate e^r), so f is a JumpReLU of m
                               (https://arxiv.org/abs/2404.16014)

Norms of each single token (`layer_norm`, `constant_norm_rescale`) are not linear.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sae_jax.formats.files import read_json
from sae_jax.formats.record import FormatError

# Here SAELens stores the input's scaling factor during training.
SCALER_FILE = "activation_scaler.json"

Arrays = dict[str, np.ndarray]


def upgrade_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config with names from before SAELens 6 replaced by today's."""
    upgraded: dict[str, Any] = {"architecture": "standard", **config}
    if config.get("activation_fn_str", config.get("activation_fn")) == "topk":
        upgraded["architecture"] = "topk"
        upgraded["k"] = (config.get("activation_fn_kwargs") or {}).get(
            "k", config.get("k")
        )
    if config.get("normalize_activations") is True:
        upgraded["normalize_activations"] = "expected_average_only_in"
    return upgraded


def fold_options(path: Path, config: Mapping[str, object], tensors: Arrays) -> Arrays:
    """Returns W_enc, b_enc, W_dec, b_dec and threshold, with the options folded in.

    `config` is what `upgrade_config` returns, `path` its file. Raises FormatError for
    options that do not fold.
    """
    arrays = {name: np.asarray(tensor, np.float64) for name, tensor in tensors.items()}
    threshold = arrays.pop("topk_threshold", arrays.get("threshold", np.zeros(())))
    arrays["threshold"] = threshold
    rescale = _is_rescaled(config)
    if (scale := _input_scale(path, config)) is not None:
        for name, factor in (("W_enc", scale), ("W_dec", 1 / scale)):
            arrays[name] = arrays[name] * factor
        arrays["b_dec"] = arrays["b_dec"] / scale
        if rescale:
            # This threshold is in units of decoder norms, which just changed.
            arrays["threshold"] = threshold / scale
    if rescale:
        _fold_decoder_norms(arrays)
    if config["architecture"] == "gated":
        _fold_gate(arrays)
    return arrays


def _is_rescaled(config: Mapping[str, object]) -> bool:
    # SAELens's training configs always have the key; inference configs may lack it.
    return bool(config.get("rescale_acts_by_decoder_norm", False))


def _input_scale(path: Path, config: Mapping[str, Any]) -> float | None:
    """Returns the factor that multiplies the input, or None."""
    normalization = config.get("normalize_activations") or "none"
    if config.get("reshape_activations") not in (None, "none"):
        raise FormatError(
            f"{path}: reshape_activations={config['reshape_activations']!r} reads "
            "attention heads, not a stream; use a dictionary of the residual stream"
        )
    if normalization == "none":
        return None
    if normalization != "expected_average_only_in":
        raise FormatError(
            f"{path}: normalize_activations={normalization!r} is not linear in the "
            "activations, so no weights express it; use a dictionary trained with none "
            "or expected_average_only_in"
        )
    scaler = path.with_name(SCALER_FILE)
    scale = (
        read_json(scaler).get("scaling_factor")
        if scaler.is_file()
        else config.get("norm_scaling_factor")
        or (config.get("metadata") or {}).get("norm_scaling_factor")
    )
    if not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise FormatError(
            f"{path}: normalize_activations='expected_average_only_in', but its factor "
            f"is {scale!r}; state it as norm_scaling_factor in {path.name} (SAELens' "
            "pretrained_saes.yaml has it), sqrt(d_in) / the mean norm of activations"
        )
    return float(scale)


def _fold_decoder_norms(arrays: Arrays) -> None:
    norm_Z = np.linalg.norm(arrays["W_dec"], axis=1)
    unit_Z = np.where(norm_Z > 0, norm_Z, 1.0)
    arrays["W_enc"] = arrays["W_enc"] * norm_Z
    arrays["b_enc"] = arrays["b_enc"] * norm_Z
    arrays["W_dec"] = arrays["W_dec"] / unit_Z[:, None]


def _fold_gate(arrays: Arrays) -> None:
    gain_Z = np.exp(arrays.pop("r_mag"))
    b_gate, b_mag = arrays.pop("b_gate"), arrays.pop("b_mag")
    arrays["W_enc"] = arrays["W_enc"] * gain_Z
    arrays["b_enc"] = b_mag
    # A threshold below 0 has no effect, because of the relu.
    arrays["threshold"] = np.maximum(b_mag - b_gate * gain_Z, 0.0)
