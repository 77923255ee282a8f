"""Reinforcement learning with verifiable rewards in JAX: the table of contents.

`import rlvr_jax` costs nothing; each name below is imported when it is first used.
Axes are spelled B T D as in docs/notation.md; the commands are in the README.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = [
    # A run, from a recipe to its report.
    "train",
    # The words of the rest: every setting and its default, and the records that flow.
    "config",
    "types",
    # Where problems come from, and who judges answers.
    "tasks",
    "tokenizer",
    "verifiers",
    # The policy, and what it answers.
    "models",
    "sampler",
    # Learning from rewards: advantages, losses, optimizer steps.
    "learn",
    # What was learned: pass@k and maj@k, with intervals; the report.
    "evaluate",
    "metrics",
    "analysis",
]


def __getattr__(name: str) -> Any:
    """Returns a module of the table, or `pipeline.train`, imported now."""
    if name not in __all__:
        raise AttributeError(f"module 'rlvr_jax' has no attribute {name!r}")
    if name == "train":
        return importlib.import_module("rlvr_jax.pipeline").train
    return importlib.import_module(f"rlvr_jax.{name}")
