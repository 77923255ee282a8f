"""Which problems a step sees."""

from rlvr_jax.data.loader import Loader, encode_prompts, fitting

__all__ = ["Loader", "encode_prompts", "fitting"]
