"""Hugging Face checkpoints in and out."""

from rlvr_jax.models.huggingface.load import (
    abstract_hf,
    embedding_rows,
    load_hf,
    stored_dtype,
)
from rlvr_jax.models.huggingface.match import check_match
from rlvr_jax.models.huggingface.peft import save_peft
from rlvr_jax.models.huggingface.save import CARRIED, save_hf

__all__ = [
    "CARRIED",
    "abstract_hf",
    "check_match",
    "embedding_rows",
    "load_hf",
    "save_hf",
    "save_peft",
    "stored_dtype",
]
