"""Data: which problems a step samples, and how difficult each one is."""

from rlvr_jax.data.difficulty import Difficulty, ProblemOutcome, record_outcomes
from rlvr_jax.data.loader import (
    Loader,
    encode_episode,
    encode_prompt,
    encode_prompts,
    encode_reply,
    encode_solution,
    filter_by_length,
)
from rlvr_jax.data.pool import Pool, ProblemBatch

__all__ = [
    "Difficulty",
    "Loader",
    "Pool",
    "ProblemBatch",
    "ProblemOutcome",
    "encode_episode",
    "encode_prompt",
    "encode_prompts",
    "encode_reply",
    "encode_solution",
    "filter_by_length",
    "record_outcomes",
]
