"""The policy."""

from rlvr_jax.models import lora
from rlvr_jax.models.huggingface import load_hf, save_hf, save_peft
from rlvr_jax.models.parameters import (
    check_divides,
    for_passes,
    held_whole,
    laid_out,
    laid_out_shapes,
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
    "laid_out_shapes",
    "load_hf",
    "lora",
    "save_hf",
    "save_peft",
    "shardings",
]
