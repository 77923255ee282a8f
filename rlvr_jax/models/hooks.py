"""Values inside a model's layers: one hook of several layers in one pass.

| hook       | of layer L, counted from 0                             |
|------------|--------------------------------------------------------|
| resid_pre  | the residual stream before the layer                   |
| attn_out   | the term that attention adds to it                     |
| mlp_out    | the term that the MLP adds to it                       |
| resid_post | the stream after the layer: the sum of the other three |

Some families (Gemma 2 and 3) normalize a sublayer's output before adding it; the hook
then reads the normalized output.

Each layer type compiles once, and layers above the last requested one are not computed.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PyTree

from rlvr_jax.config import ModelConfig
from rlvr_jax.models.block import Block
from rlvr_jax.models.masks import (
    AttentionContext,
    AttentionContexts,
    expand_layer_types,
    prompt_contexts,
)
from rlvr_jax.models.transformer import Transformer

HOOKS = ("resid_pre", "attn_out", "mlp_out", "resid_post")


def read_hook(
    policy: Transformer,
    tokens: Int[Array, " B T"],
    mask: Bool[Array, " B T"],
    *,
    hook: str,
    layers: Sequence[int],
) -> tuple[Float[Array, " B T D"], ...]:
    """Returns the values at a hook of each of `layers`, in their order.

    Values at padding, where `mask` is False, are arbitrary.
    """
    index = HOOKS.index(hook)
    contexts = _contexts(policy.config, jnp.asarray(mask, bool))
    graphdef, stacked = nnx.split(policy.blocks)
    layer_types = expand_layer_types(policy.config)
    x_BTD = _embed(*nnx.split(policy), jnp.asarray(tokens, jnp.int32))
    found: dict[int, jax.Array] = {}
    for layer in range(max(layers) + 1):
        context = contexts[layer_types[layer]]
        values = _run_layer(stacked, layer, x_BTD, context, graphdef=graphdef)
        if layer in layers:
            found[layer] = values[index]
        x_BTD = values[-1]
    return tuple(found[layer] for layer in layers)


@functools.partial(jax.jit, static_argnums=0)
def _contexts(config: ModelConfig, mask_BT: jax.Array) -> AttentionContexts:
    return prompt_contexts(config, mask_BT)


@functools.partial(jax.jit, static_argnums=0)
def _embed(
    graphdef: nnx.GraphDef, params: nnx.State, tokens_BT: jax.Array
) -> jax.Array:
    policy: Transformer = nnx.merge(graphdef, params)
    return policy.embed(tokens_BT)


@functools.partial(jax.jit, static_argnames="graphdef")
def _run_layer(
    stacked: PyTree,
    layer: jax.Array,
    x_BTD: jax.Array,
    context: AttentionContext,
    *,
    graphdef: nnx.GraphDef,
) -> tuple[jax.Array, ...]:
    """Returns one layer's values in the order of HOOKS."""
    state = jax.tree.map(
        lambda w: jax.lax.dynamic_index_in_dim(w, layer, keepdims=False), stacked
    )
    block: Block = nnx.merge(graphdef, state)
    query_BTNH, own = block.project_qkv(x_BTD, context)
    attention_BTD = block.attention_output(block.attend(query_BTNH, own, context))
    middle_BTD = x_BTD + attention_BTD
    mlp_BTD = block.mlp_output(middle_BTD)
    return x_BTD, attention_BTD, mlp_BTD, middle_BTD + mlp_BTD
