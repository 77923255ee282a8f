"""The policy."""

from rlvr_jax.models.transformer import Activations, Prefix, Transformer, logical_axes

__all__ = ["Activations", "Prefix", "Transformer", "logical_axes"]
