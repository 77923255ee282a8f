"""The policy."""

from rlvr_jax.models.huggingface import load_hf, save_hf
from rlvr_jax.models.parameters import (
    check_divides,
    for_passes,
    held_whole,
    laid_out,
    shardings,
)
from rlvr_jax.models.transformer import Activations, Prefix, Transformer

__all__ = [
    "Activations",
    "Prefix",
    "Transformer",
    "check_divides",
    "for_passes",
    "held_whole",
    "laid_out",
    "load_hf",
    "save_hf",
    "shardings",
]
