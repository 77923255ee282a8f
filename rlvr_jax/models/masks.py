"""Attention masks and RoPE tables of a pass, one set for each type of layer.

In full layers a token attends to all true tokens up to itself, in sliding layers to the
last `sliding_window` of them. Distances are between positions, so rows may be padded on
either side.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import ModelConfig
from rlvr_jax.config.model import LayerType
from rlvr_jax.models.rope import look_up_rope, rope_tables, token_positions


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionContext:
    """Masks and RoPE tables of one pass, the same for all layers of one type.

    `mask` covers the keys of the pass itself and `prefix_mask` the keys of the shared
    prompt; an axis on which all rows or all queries agree has size 1. Kernels instead
    read `token_mask` (true tokens, of the prompt if one is shared, else of the pass)
    and `window` (0: no window; None: known only when the layer runs). No kernel can run
    on `packed` rows, where one row has several segments.
    """

    rope: tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]
    mask: Bool[Array, " B T S"]
    token_mask: Bool[Array, " P S"]
    prefix_mask: Bool[Array, " P T S"] | None = None
    window: int | None = dataclasses.field(default=0, metadata={"static": True})
    packed: bool = dataclasses.field(default=False, metadata={"static": True})


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Segments:
    """The segments of packed rows: completions after one shared prompt.

    `ids` distinguish the completions of a row, and padding; `index` counts a
    completion's tokens from 0.
    """

    ids: Int[Array, " U T"]
    index: Int[Array, " U T"]


AttentionContexts = dict[LayerType, AttentionContext]
_LAYER_TYPES: tuple[LayerType, LayerType] = ("sliding", "full")


def expand_layer_types(config: ModelConfig) -> tuple[LayerType, ...]:
    """Returns the type of each of the L layers: the pattern `layer_types`, repeated."""
    repeats = -(-config.num_layers // len(config.layer_types))
    return (config.layer_types * repeats)[: config.num_layers]


def prompt_contexts(config: ModelConfig, mask_PS: jax.Array) -> AttentionContexts:
    """Returns the contexts of a pass over whole rows, by layer type.

    Padding keys are masked; padding queries produce unused output.
    """
    position_PS = token_positions(mask_PS)
    index_S = jnp.arange(mask_PS.shape[1], dtype=jnp.int32)
    causal_SS = index_S[None] <= index_S[:, None]
    mask_PSS = causal_SS[None] & mask_PS[:, None, :]
    distance_PSS = position_PS[:, :, None] - position_PS[:, None, :]

    def context(layer_type: LayerType) -> AttentionContext:
        own_mask = mask_PSS
        if layer_type == "sliding":
            own_mask = mask_PSS & (distance_PSS < config.sliding_window)
        return AttentionContext(
            rope=look_up_rope(
                position_PS, config, layer_type, num_positions=mask_PS.shape[1]
            ),
            mask=own_mask,
            token_mask=mask_PS,
            window=config.sliding_window if layer_type == "sliding" else 0,
        )

    return {t: context(t) for t in sorted(set(expand_layer_types(config)))}


def completion_contexts(
    config: ModelConfig,
    prefix_mask_PS: jax.Array,
    index_T: jax.Array,
    *,
    rows: int,
    length: int,
) -> AttentionContexts:
    """Returns the contexts of completion tokens `index_T` after a shared prompt.

    The completion's own keys are tokens 0..length-1. All `rows` (B = P G) are at the
    same indices.
    """
    P, S = prefix_mask_PS.shape
    starts_P = prefix_mask_PS.sum(axis=1, dtype=jnp.int32)
    position_PT = starts_P[:, None] + index_T[None]
    position_BT = jnp.repeat(position_PT, rows // P, axis=0)
    distance_TS = index_T[:, None] - jnp.arange(length, dtype=jnp.int32)[None]
    causal_TS = distance_TS >= 0
    prefix_mask_P1S = prefix_mask_PS[:, None]
    distance_PTS = position_PT[:, :, None] - token_positions(prefix_mask_PS)[:, None]

    def context(layer_type: LayerType) -> AttentionContext:
        own_mask, prefix_mask = causal_TS, prefix_mask_P1S
        if layer_type == "sliding":
            own_mask = causal_TS & (distance_TS < config.sliding_window)
            prefix_mask = prefix_mask_P1S & (distance_PTS < config.sliding_window)
        return AttentionContext(
            rope=look_up_rope(
                position_BT, config, layer_type, num_positions=S + length
            ),
            mask=own_mask[None],
            token_mask=prefix_mask_PS,
            prefix_mask=prefix_mask,
            window=config.sliding_window if layer_type == "sliding" else 0,
        )

    return {t: context(t) for t in sorted(set(expand_layer_types(config)))}


def decode_contexts(
    config: ModelConfig,
    prefix_mask_PS: jax.Array,
    index_B: jax.Array,
    column: jax.Array,
    *,
    length: int,
) -> AttentionContexts:
    """Returns the contexts of one new token per row, completion token `index_B`.

    Its keys go to `column` of a ring of `length` columns, of which the last
    `index_B` + 1 are the row's own. Rows that share a prompt's keys (P < B) are all at
    one index, except rows that have ended.
    """
    P, B = prefix_mask_PS.shape[0], index_B.shape[0]
    starts_P = prefix_mask_PS.sum(axis=1, dtype=jnp.int32)
    position_B = jnp.repeat(starts_P, B // P) + index_B
    distance_S = (column - jnp.arange(length, dtype=jnp.int32)) % length
    own_mask_BS = distance_S[None] <= index_B[:, None]
    position_P = position_B.reshape(P, B // P).max(axis=1)
    prefix_distance_PS = position_P[:, None] - token_positions(prefix_mask_PS)

    def context(layer_type: LayerType) -> AttentionContext:
        mask, prefix_mask = own_mask_BS, prefix_mask_PS
        if layer_type == "sliding":
            mask = own_mask_BS & (distance_S < config.sliding_window)[None]
            prefix_mask &= prefix_distance_PS < config.sliding_window
        return AttentionContext(
            rope=rope_tables(position_B[:, None], config, layer_type),
            mask=mask[:, None],
            token_mask=prefix_mask_PS,
            prefix_mask=prefix_mask[:, None],
            window=config.sliding_window if layer_type == "sliding" else 0,
        )

    return {t: context(t) for t in sorted(set(expand_layer_types(config)))}


def packed_contexts(
    config: ModelConfig, prefix_mask_PS: jax.Array, segments: Segments
) -> AttentionContexts:
    """Returns the contexts of completions that share rows after their shared prompt.

    A token attends to its prompt and to its own completion up to itself; positions
    count from the prompt's end in every segment.
    """
    U, T = segments.ids.shape
    rows = U // prefix_mask_PS.shape[0]
    starts_P = prefix_mask_PS.sum(axis=1, dtype=jnp.int32)
    position_UT = jnp.repeat(starts_P, rows)[:, None] + segments.index
    index_T = jnp.arange(T, dtype=jnp.int32)
    distance_TS = index_T[:, None] - index_T[None]
    same_UTS = segments.ids[:, :, None] == segments.ids[:, None, :]
    mask_UTS = same_UTS & (distance_TS >= 0)[None]
    prefix_mask_P1S = prefix_mask_PS[:, None]
    layer_types = set(expand_layer_types(config))
    if "sliding" in layer_types:
        key_UT1S = jnp.repeat(token_positions(prefix_mask_PS), rows, axis=0)[:, None]
        distance_UTS = position_UT[:, :, None] - key_UT1S
        prefix_UTS = jnp.broadcast_to(
            jnp.repeat(prefix_mask_P1S, rows, axis=0), distance_UTS.shape
        )

    def context(layer_type: LayerType) -> AttentionContext:
        own_mask, prefix_mask = mask_UTS, prefix_mask_P1S
        if layer_type == "sliding":
            own_mask = mask_UTS & (distance_TS < config.sliding_window)[None]
            prefix_mask = prefix_UTS & (distance_UTS < config.sliding_window)
        elif len(layer_types) > 1:
            prefix_mask = prefix_UTS  # the other type's shape, as a scan needs
        return AttentionContext(
            rope=rope_tables(position_UT, config, layer_type),
            mask=own_mask,
            token_mask=prefix_mask_PS,
            prefix_mask=prefix_mask,
            window=config.sliding_window if layer_type == "sliding" else 0,
            packed=True,
        )

    return {t: context(t) for t in sorted(layer_types)}


def select_context(
    is_sliding: jax.Array, contexts: AttentionContexts
) -> AttentionContext:
    """Returns the context of a layer whose type is known only when it runs (a scan)."""
    if len(contexts) == 1:
        return next(iter(contexts.values()))
    return jax.tree.map(
        lambda sliding, full: jnp.where(is_sliding, sliding, full),
        *(dataclasses.replace(contexts[t], window=None) for t in _LAYER_TYPES),
    )
