"""The record that every reader returns, and the conversion of tensors to a TSAE."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from job_jax.schema import ConfigError
from sae_jax.sae import TSAE

Tensors = Mapping[str, np.ndarray]


class FormatError(ConfigError):
    """Files without an autoencoder that we can read. One line says which, and why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SAERecord:
    """An autoencoder read from disk, with its metadata and the name of its format.

    `metadata` holds the information in the files besides the weights, such as
    `group_sizes`, `k`, `model_name` and `hook_name`. `hook_name` is present if the
    files or the path contain it, such as "blocks.2.hook_resid_post".
    """

    tsae: TSAE
    metadata: dict[str, Any]
    format: str


def build_tsae(
    path: Path,
    *,
    encoder: np.ndarray,
    encoder_bias: np.ndarray,
    decoder: np.ndarray,
    decoder_bias: np.ndarray,
    threshold: Any,
    subtract_decoder_bias: bool,
    group_sizes: Sequence[int] = (),
    top_k: int | None = None,
) -> TSAE:
    """Returns the TSAE made of another library's tensors, in float32.

    A threshold of shape [] or [1] applies to every latent. If the other library encodes
    x itself and not x - b_dec (`subtract_decoder_bias` is False), the encoder's bias
    becomes b_enc + b_dec W_enc, computed in float64, so the result is equal up to one
    rounding.

    Raises FormatError, naming the tensor, if shapes do not fit, or if a number is not
    finite, because every loss would be NaN. A threshold may be infinite.
    """
    if encoder.ndim != 2:
        raise FormatError(f"{path}: the encoder has shape {list(encoder.shape)}")
    width, latents = encoder.shape
    if np.size(threshold) == 1 and np.ndim(threshold) <= 1:
        threshold = np.full(latents, threshold)
    tensors = {
        "the encoder": (encoder, (width, latents)),
        "the encoder's bias": (encoder_bias, (latents,)),
        "the decoder": (decoder, (latents, width)),
        "the decoder's bias": (decoder_bias, (width,)),
        "the threshold": (threshold, (latents,)),
    }
    for name, (tensor, shape) in tensors.items():
        if tensor.shape != shape:
            raise FormatError(
                f"{path}: {name} has shape {list(tensor.shape)}; with an encoder of "
                f"{width} x {latents} it must be {list(shape)}"
            )
        _check_finite(path, name, tensor)
    if group_sizes and sum(group_sizes) != latents:
        raise FormatError(
            f"{path}: group_sizes {list(group_sizes)} add up to {sum(group_sizes)}, "
            f"not to {latents} latents"
        )
    if top_k is not None and not 1 <= top_k <= latents:
        raise FormatError(f"{path}: k={top_k} of {latents} latents")
    if not subtract_decoder_bias:
        shift_Z = decoder_bias.astype(np.float64) @ encoder.astype(np.float64)
        encoder_bias = encoder_bias.astype(np.float64) + shift_Z
    return TSAE(
        encoder=_float32(encoder),
        encoder_bias=_float32(encoder_bias),
        decoder=_float32(decoder),
        decoder_bias=_float32(decoder_bias),
        threshold=_float32(threshold),
        group_sizes=tuple(int(size) for size in group_sizes) or (latents,),
        top_k=top_k,
    )


def _check_finite(path: Path, name: str, tensor: np.ndarray) -> None:
    """Raises FormatError if a number is not finite; a threshold may be infinite."""
    bounded = np.minimum(tensor, 0) if name == "the threshold" else tensor
    if not np.isfinite(bounded.astype(np.float32)).all():
        raise FormatError(f"{path}: {name} holds numbers that are not finite")


def require_tensors(tensors: Tensors, names: Sequence[str], path: Path) -> None:
    """Raises FormatError unless `tensors` has exactly these names."""
    missing = [name for name in names if name not in tensors]
    surplus = [name for name in tensors if name not in names]
    if missing or surplus:
        parts = [f"lacks {missing}"] if missing else []
        parts += [f"has {surplus}, which is not understood"] if surplus else []
        raise FormatError(f"{path} {' and '.join(parts)}")


def _float32(array: np.ndarray) -> Any:
    return jnp.asarray(np.ascontiguousarray(array, dtype=np.float32))
