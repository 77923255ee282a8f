"""Temporal sparse autoencoders: trained, measured, exchanged with the torch world.

Axes: B pairs in a batch, D width of an activation, Z latents, G nested groups,
C replicas trained at once, S documents, T tokens.
"""

from sae_jax.io import load, save
from sae_jax.losses import tsae_loss
from sae_jax.sae import TSAE

__all__ = ["TSAE", "load", "save", "tsae_loss"]
