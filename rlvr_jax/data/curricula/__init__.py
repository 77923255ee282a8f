"""Curricula: which problems a training step samples, by their difficulty so far."""

from rlvr_jax.data.curricula.base import (
    BatchIndices,
    Curriculum,
    DrawState,
    move_last,
    pick_least_visited,
    sample_without_replacement,
)

__all__ = [
    "BatchIndices",
    "Curriculum",
    "DrawState",
    "move_last",
    "pick_least_visited",
    "sample_without_replacement",
]
