"""Which problems a step sees."""

from rlvr_jax.data.difficulty import Difficulty, Visit, updated
from rlvr_jax.data.loader import Loader, encode_prompts, fitting
from rlvr_jax.data.pool import Pool, Served

__all__ = [
    "Difficulty",
    "Loader",
    "Pool",
    "Served",
    "Visit",
    "encode_prompts",
    "fitting",
    "updated",
]
