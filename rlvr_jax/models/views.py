"""How tokens turn and what they see: RoPE and masks, by the kind of layer.

Full layers see all true tokens so far, sliding layers the last `window` of them. The
distance between two tokens is that of their positions, wherever padding lies.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import ModelConfig
from rlvr_jax.config_model import LayerKind


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class View:
    """How a pass's tokens turn and what they see, in all layers of one kind.

    `own_mask` is over the pass's own keys, `prefix_mask` over those of the shared
    prompt; T is 1 in it, and B in `own_mask`, where all see alike. Kernels are told the
    same by `true`, the prompt's tokens that are no padding, and by `window`: 0 sees
    all, None is one that is known only when the layer runs.
    """

    rope: tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]
    own_mask: Bool[Array, " B T S"]
    true: Bool[Array, " P S"]
    prefix_mask: Bool[Array, " P T S"] | None = None
    window: int | None = dataclasses.field(default=0, metadata={"static": True})


Views = dict[LayerKind, View]
_BOTH: tuple[LayerKind, LayerKind] = ("sliding", "full")


def kinds(config: ModelConfig) -> tuple[LayerKind, ...]:
    """Returns the kind of each of the L layers: `layer_kinds`, repeated."""
    repeats = -(-config.layers // len(config.layer_kinds))
    return (config.layer_kinds * repeats)[: config.layers]


def prompt_views(config: ModelConfig, mask_PS: jax.Array) -> Views:
    """Returns what tokens see of their own sequence, for each kind of layer there is.

    Padding is hidden from all; what it sees itself is of no account.
    """
    position_PS = positions(mask_PS)
    index_S = jnp.arange(mask_PS.shape[1], dtype=jnp.int32)
    causal_SS = index_S[None] <= index_S[:, None]
    mask_PSS = causal_SS[None] & mask_PS[:, None, :]
    distance_PSS = position_PS[:, :, None] - position_PS[:, None, :]

    def view(kind: LayerKind) -> View:
        own_mask = mask_PSS
        if kind == "sliding":
            own_mask = mask_PSS & (distance_PSS < config.window)
        return View(
            rope=rope_tables(position_PS, config, kind),
            own_mask=own_mask,
            true=mask_PS,
            window=config.window if kind == "sliding" else 0,
        )

    return {kind: view(kind) for kind in sorted(set(kinds(config)))}


def completion_views(
    config: ModelConfig,
    prefix_mask_PS: jax.Array,
    index_T: jax.Array,
    *,
    rows: int,
    length: int,
) -> Views:
    """Returns what completion tokens `index_T` see of `length` others and the prompt.

    Every one of B = P G rows stands at the same indices.
    """
    P = prefix_mask_PS.shape[0]
    starts_P = prefix_mask_PS.sum(axis=1, dtype=jnp.int32)
    position_PT = starts_P[:, None] + index_T[None]
    position_BT = jnp.repeat(position_PT, rows // P, axis=0)
    distance_TS = index_T[:, None] - jnp.arange(length, dtype=jnp.int32)[None]
    seen_TS = distance_TS >= 0
    prefix_mask_P1S = prefix_mask_PS[:, None]
    distance_PTS = position_PT[:, :, None] - positions(prefix_mask_PS)[:, None]

    def view(kind: LayerKind) -> View:
        own_mask, prefix_mask = seen_TS, prefix_mask_P1S
        if kind == "sliding":
            own_mask = seen_TS & (distance_TS < config.window)
            prefix_mask = prefix_mask_P1S & (distance_PTS < config.window)
        return View(
            rope=rope_tables(position_BT, config, kind),
            own_mask=own_mask[None],
            true=prefix_mask_PS,
            prefix_mask=prefix_mask,
            window=config.window if kind == "sliding" else 0,
        )

    return {kind: view(kind) for kind in sorted(set(kinds(config)))}


def either(sliding: jax.Array, views: Views) -> View:
    """Returns the view of a layer whose kind is known only when it runs."""
    if len(views) == 1:
        return next(iter(views.values()))
    return jax.tree.map(
        lambda one, other: jnp.where(sliding, one, other),
        *(dataclasses.replace(views[kind], window=None) for kind in _BOTH),
    )


def positions(mask_BT: jax.Array) -> Int[Array, " B T"]:
    """Returns each true token's number in its row, from 0."""
    return jnp.maximum(jnp.cumsum(mask_BT, axis=1, dtype=jnp.int32) - 1, 0)


def rope_tables(
    positions: Int[Array, " B T"], config: ModelConfig, kind: LayerKind
) -> tuple[Float[Array, " B T 1 H"], Float[Array, " B T 1 H"]]:
    """Returns cosine and sine of every position's angles, both halves alike.

    Pair i turns by position / base^(2i/H); pairs are (i, i + H/2), Hugging Face's
    layout (arXiv 2104.09864).
    """
    half = config.head_width // 2
    own_base = config.sliding_rope_base if kind == "sliding" else 0.0
    base = own_base or config.rope_base
    speed_I = base ** -(jnp.arange(half, dtype=jnp.float32) / half)
    if not own_base:
        speed_I = _slowed(speed_I, config)
    angle_BTI = positions[..., None].astype(jnp.float32) * speed_I[None, None]
    angle_BT1H = jnp.concatenate([angle_BTI, angle_BTI], axis=-1)[:, :, None, :]
    return jnp.cos(angle_BT1H), jnp.sin(angle_BT1H)


def _slowed(speed_I: jax.Array, config: ModelConfig) -> jax.Array:
    """Returns the speeds, in radians a token, of a model made longer after training.

    linear: all divided by the factor (arXiv 2306.15595). llama3: pairs that turn at
    most `rope_low_turns` times within the original length are, those that turn at
    least `rope_high_turns` times are not, and between them the share that is falls
    linearly with the turns (arXiv 2407.21783).
    """
    if config.rope_scaling == "none":
        return speed_I
    slow_I = speed_I / config.rope_factor
    if config.rope_scaling == "linear":
        return slow_I
    low, high = config.rope_low_turns, config.rope_high_turns
    turns_I = config.rope_original_length * speed_I / (2 * math.pi)
    kept_I = jnp.clip((turns_I - low) / (high - low), 0.0, 1.0)
    return kept_I * speed_I + (1 - kept_I) * slow_I
