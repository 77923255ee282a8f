"""Reinforcement learning with verifiable rewards in JAX: the table of contents.

`import rlvr_jax` costs nothing; each name below is imported when it is first used.
Axes are spelled B T D as in docs/method/notation.md; the commands are in the README.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

__all__ = [
    # A run, from a recipe to its report.
    "load_recipe",
    "train",
    "load_checkpoint",
    # Shared by all: every setting with its default, and the records passed around.
    "config",
    "types",
    # Where problems come from, and who judges answers.
    "tasks",
    "tokenizer",
    "verifiers",
    # The policy, and how it samples completions.
    "models",
    "sampler",
    # Learning from rewards: advantages, losses, optimizer steps.
    "learn",
    # Results: pass@k and maj@k, with intervals; the report.
    "evaluate",
    "metrics",
    "analysis",
]

_FUNCTIONS = {
    "load_recipe": "rlvr_jax.run.recipe",
    "train": "rlvr_jax.pipeline",
    "load_checkpoint": "rlvr_jax.run.load",
}


def __getattr__(name: str) -> Any:
    """Imports and returns a module or a function of the table."""
    if name not in __all__:
        raise AttributeError(f"module 'rlvr_jax' has no attribute {name!r}")
    if name in _FUNCTIONS:
        return vars(importlib.import_module(_FUNCTIONS[name]))[name]
    return importlib.import_module(f"rlvr_jax.{name}")


def __dir__() -> list[str]:
    """Returns the names of the table for tab completion, and imports none of them."""
    return sorted([*__all__, "__version__"])
