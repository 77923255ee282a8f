"""A policy's first layers, for readers of the residual stream below the last layer."""

import dataclasses

import jax
from flax import nnx

from rlvr_jax.models.transformer import Transformer


def keep_first_layers(policy: Transformer, count: int) -> Transformer:
    """Returns a copy with only the first `count` layers; no array is copied.

    Its residual stream after these layers is the policy's own; its logits are not.
    Raises ValueError if the policy has fewer layers.
    """
    if count > policy.config.num_layers:
        raise ValueError(
            f"{count} layers of a policy with {policy.config.num_layers}; layers are "
            f"0..{policy.config.num_layers - 1}"
        )
    first = nnx.clone(policy)
    first.config = dataclasses.replace(policy.config, num_layers=count)
    graphdef, blocks = nnx.split(policy.blocks)
    first.blocks = nnx.merge(graphdef, jax.tree.map(lambda w: w[:count], blocks))
    return first
