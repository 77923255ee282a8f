"""Hugging Face checkpoints in and out."""

from rlvr_jax.models.huggingface.load import load_hf
from rlvr_jax.models.huggingface.save import save_hf

__all__ = ["load_hf", "save_hf"]
