"""Hugging Face checkpoints in and out."""

from rlvr_jax.models.huggingface.config import canonical_config, hf_vocab_size
from rlvr_jax.models.huggingface.load import (
    abstract_policy,
    load_hf,
    stored_dtype,
)
from rlvr_jax.models.huggingface.match import resolve_model, resolve_pretrained
from rlvr_jax.models.huggingface.peft import save_peft
from rlvr_jax.models.huggingface.save import COPIED_FILES, save_hf

__all__ = [
    "COPIED_FILES",
    "abstract_policy",
    "canonical_config",
    "hf_vocab_size",
    "load_hf",
    "resolve_model",
    "resolve_pretrained",
    "save_hf",
    "save_peft",
    "stored_dtype",
]
