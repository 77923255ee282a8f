"""Hugging Face checkpoints in and out."""

from rlvr_jax.models.huggingface.config import hf_vocab_size
from rlvr_jax.models.huggingface.load import (
    abstract_policy,
    load_hf,
    stored_dtype,
)
from rlvr_jax.models.huggingface.match import check_matches_hf
from rlvr_jax.models.huggingface.peft import save_peft
from rlvr_jax.models.huggingface.save import COPIED_FILES, save_hf

__all__ = [
    "COPIED_FILES",
    "abstract_policy",
    "check_matches_hf",
    "hf_vocab_size",
    "load_hf",
    "save_hf",
    "save_peft",
    "stored_dtype",
]
