"""The policy: a decoder for training, scoring and sampling, and its checkpoints."""

from rlvr_jax.models import lora
from rlvr_jax.models.activations import Activations, HiddenStates, Prefix
from rlvr_jax.models.families import SIZES, Family, ModelSize
from rlvr_jax.models.huggingface import load_hf, save_hf, save_peft
from rlvr_jax.models.parameters import (
    abstract_params,
    cast_for_compute,
    check_divisible,
    param_shardings,
    replicated_params,
    with_sharding,
)
from rlvr_jax.models.transformer import Transformer
from rlvr_jax.models.truncation import keep_first_layers

__all__ = [
    "SIZES",
    "Activations",
    "Family",
    "HiddenStates",
    "ModelSize",
    "Prefix",
    "Transformer",
    "abstract_params",
    "cast_for_compute",
    "check_divisible",
    "keep_first_layers",
    "load_hf",
    "lora",
    "param_shardings",
    "replicated_params",
    "save_hf",
    "save_peft",
    "with_sharding",
]
