"""Temporal sparse autoencoders: training, measuring, and exchange with torch libraries.

`import sae_jax` is cheap; each name below is imported when it is first used. Axes:
B pairs in a batch, D width of an activation, Z latents, G nested groups, C replicas
trained at once, S documents, T tokens.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sae_jax import config
    from sae_jax.io import load, save
    from sae_jax.losses import tsae_loss
    from sae_jax.sae import TSAE

__all__ = ["TSAE", "config", "load", "save", "tsae_loss"]

_MODULES = {"TSAE": "sae", "load": "io", "save": "io", "tsae_loss": "losses"}


def __getattr__(name: str) -> Any:
    """Imports and returns a name in `__all__`."""
    if name not in __all__:
        raise AttributeError(f"module 'sae_jax' has no attribute {name!r}")
    if name == "config":
        return importlib.import_module("sae_jax.config")
    return vars(importlib.import_module(f"sae_jax.{_MODULES[name]}"))[name]
