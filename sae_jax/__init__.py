"""Temporal sparse autoencoders: trained, measured, exchanged with the torch world.

`import sae_jax` costs nothing; each name below is imported when it is first used. Axes:
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
    """Returns a name of the table or the module `config`, imported now."""
    if name not in __all__:
        raise AttributeError(f"module 'sae_jax' has no attribute {name!r}")
    if name == "config":
        return importlib.import_module("sae_jax.config")
    return vars(importlib.import_module(f"sae_jax.{_MODULES[name]}"))[name]
