"""The policy: one decoder for training, scoring and sampling.

`prefill` reads prompts, `extend` reads completions against prompts that are shared by
their group, `decode` reads one more token against a cache. Layer parameters are stacked
on a leading L axis whatever the layer loop, so checkpoints do not depend on it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from job_jax.mesh import constrain
from rlvr_jax.config import ModelConfig
from rlvr_jax.config_model import LayerKind
from rlvr_jax.models.attention import KeyValues, capped
from rlvr_jax.models.block import Block, RMSNorm, stream_axis
from rlvr_jax.models.ids import check_ids
from rlvr_jax.models.parameters import normal
from rlvr_jax.models.views import View, Views, completion_views, either, prompt_views
from rlvr_jax.models.views import kinds as layer_kinds


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefix:
    """What a group shares: each layer's keys and values of its prompt.

    `layers` is a tuple of L `KeyValues` (unrolled) or one with a leading L axis (scan).
    """

    layers: Any
    mask: Bool[Array, " P S"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Activations:
    """What a pass computes: the final normalised hidden states and the taps asked for.

    With `taps=(3, 7)`, `taps[0]` is the residual stream after layer 3.
    """

    hidden: Float[Array, " B T D"]
    taps: tuple[Float[Array, " B T D"], ...]


class Edit(Protocol):
    """A change of the residual stream after one layer: stream in, stream out.

    Make it a pytree, `layer` static and the rest arrays: edits of one shape then share
    a program. Taps of the layer, and all layers above it, read the edited stream.
    """

    @property
    def layer(self) -> int:
        """Returns the layer, counted from 0, behind which the stream is changed."""

    def __call__(self, x: Float[Array, "B T D"], /) -> Float[Array, "B T D"]:
        """Returns the stream to go on with, of the same dtype."""


class Transformer(nnx.Module):
    """A decoder-only language model. `eos_ids` are the tokens that end a completion.

    Ids from `known_ids` on are rows that pad the embedding: no token, never drawn.
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rngs: nnx.Rngs,
        *,
        eos_ids: tuple[int, ...] = (),
        known_ids: int | None = None,
    ):
        self.config = config
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.known_ids = vocab_size if known_ids is None else known_ids
        self.origin: str | None = None  # the directory of files that exports take along

        def table() -> nnx.Param:
            shape, axes = (vocab_size, config.width), ("vocab", "embed")
            return normal(rngs, shape, axes, fan_in=config.width, config=config)

        self.embedding = table()
        self.blocks = Block.stacked(config, rngs)
        self.final_norm = RMSNorm(config.width, ("embed",), config=config)
        if not config.tie_embeddings:
            self.head = table()

    def __call__(
        self, tokens: Int[Array, " B T"], mask: Bool[Array, " B T"]
    ) -> Float[Array, " B T V"]:
        """Returns next-token logits. Positions count a row's true tokens from 0.

        Left and right padding give the same logits at true tokens; logits at padding
        are arbitrary but finite. Raises ValueError on other shapes, and on ids outside
        the vocabulary where their values are known (not while tracing).
        """
        tokens, mask = jnp.asarray(tokens), jnp.asarray(mask, bool)
        if tokens.ndim != 2 or mask.shape != tokens.shape:
            raise ValueError(
                f"tokens {tokens.shape} and mask {mask.shape}; both must be [B, T]"
            )
        check_ids(tokens, self.vocab_size, "tokens", mask=mask)
        tokens = tokens.astype(jnp.int32)
        activations, _ = self.prefill(tokens, mask)
        return self.logits(activations.hidden)

    def logits(self, hidden_BTD: jax.Array) -> Float[Array, " B T V"]:
        """Returns float32 logits of final hidden states."""
        head = self.embedding if self.config.tie_embeddings else self.head
        logits_BTV = jnp.einsum(
            "btd,vd->btv",
            hidden_BTD,
            head[...].astype(hidden_BTD.dtype),
            preferred_element_type=jnp.float32,
        )
        return capped(logits_BTV, self.config.logit_cap)

    def layers(self) -> Any:
        """Returns the layers in compute dtype, ready for every pass.

        Unrolled: a tuple of L states; scan: one state with a leading L axis. Taken
        once outside a decode loop, neither cast nor slice is repeated in it.
        """
        dtype = self.config.compute_dtype
        state = jax.tree.map(
            # What is quantised stays so; its scales are floats.
            lambda w: w.astype(dtype) if jnp.issubdtype(w.dtype, jnp.floating) else w,
            nnx.state(self.blocks),
        )
        if self.config.layer_loop == "scan":
            return state
        # lax.split's gradient is one concatenation; indexing would add L times.
        count = self.config.layers
        leaves, treedef = jax.tree.flatten(state)
        split = [jax.lax.split(leaf, [1] * count, axis=0) for leaf in leaves]
        return tuple(
            jax.tree.unflatten(treedef, [parts[layer][0] for parts in split])
            for layer in range(count)
        )

    def prefill(
        self,
        tokens: Int[Array, " P S"],
        mask: Bool[Array, " P S"],
        *,
        layers: Any = None,
        taps: tuple[int, ...] = (),
        edit: Edit | None = None,
    ) -> tuple[Activations, Prefix]:
        """Returns the pass over whole sequences and what completions can share.

        What an `edit` changes here, completions see in the prompt's keys and values.
        """

        def step(
            block: Block, x_PSD: jax.Array, view: View, _: None
        ) -> tuple[Array, KeyValues]:
            query_PSNH, own = block.heads(x_PSD, view)
            return block.finish(x_PSD, block.attend(query_PSNH, own, view)), own

        views = prompt_views(self.config, mask)
        activations, kept = self._run(
            step, tokens, views, layers=layers, taps=taps, edit=edit
        )
        return activations, Prefix(layers=kept, mask=mask)

    def extend(
        self,
        tokens: Int[Array, " B T"],
        prefix: Prefix,
        *,
        layers: Any = None,
        taps: tuple[int, ...] = (),
        edit: Edit | None = None,
    ) -> Activations:
        """Returns the pass over completions, all tokens at once.

        Padding lies behind a row's true tokens, where causality hides it.
        """
        B, T = tokens.shape
        index_T = jnp.arange(T, dtype=jnp.int32)

        def step(
            block: Block, x_BTD: jax.Array, view: View, shared: KeyValues
        ) -> tuple[Array, None]:
            query_BTNH, own = block.heads(x_BTD, view)
            mixed_BTNH = block.attend(query_BTNH, own, view, shared)
            return block.finish(x_BTD, mixed_BTNH), None

        activations, _ = self._run(
            step,
            tokens,
            completion_views(self.config, prefix.mask, index_T, rows=B, length=T),
            given=prefix.layers,
            layers=layers,
            taps=taps,
            edit=edit,
        )
        return activations

    def empty_cache(self, rows: int, length: int) -> Any:
        """Returns zeroed keys and values for `length` completion tokens of B rows."""
        config = self.config
        shape = (rows, length, config.kv_heads, config.head_width)
        zeros = jnp.zeros(shape, config.compute_dtype)
        layers = tuple(KeyValues.of(zeros, zeros) for _ in range(config.layers))
        if config.layer_loop == "unrolled":
            return layers
        return jax.tree.map(lambda *parts: jnp.stack(parts), *layers)

    def decode(
        self,
        tokens: Int[Array, " B"],
        index: Int[Array, ""],
        prefix: Prefix,
        *,
        cache: Any,
        layers: Any,
        edit: Edit | None = None,
    ) -> tuple[Float[Array, " B D"], Any]:
        """Returns the final hidden state of completion token `index`, and the cache.

        Every row stands at the same `index`, since prompts are kept apart.
        """
        unrolled = self.config.layer_loop == "unrolled"
        views = completion_views(
            self.config,
            prefix.mask,
            index[None],
            rows=tokens.shape[0],
            length=(cache[0] if unrolled else cache).keys.shape[-2],
        )

        def write(past: jax.Array, new: jax.Array) -> jax.Array:
            return jax.lax.dynamic_update_slice_in_dim(past, new, index, axis=2)

        def step(
            block: Block, x_B1D: jax.Array, view: View, given: tuple[KeyValues, ...]
        ) -> tuple[Array, KeyValues]:
            shared, past = given
            query_B1NH, new = block.heads(x_B1D, view)
            own = jax.tree.map(write, past, new)
            mixed_B1NH = block.attend(query_B1NH, own, view, shared)
            return block.finish(x_B1D, mixed_B1NH), own

        given: Any = (prefix.layers, cache)
        if unrolled:
            given = tuple(zip(*given, strict=True))
        activations, cache = self._run(
            step, tokens[:, None], views, given=given, layers=layers, edit=edit
        )
        return activations.hidden[:, 0], cache

    def _run(
        self,
        step: Callable[[Block, jax.Array, View, Any], tuple[jax.Array, Any]],
        tokens_BT: jax.Array,
        views: Views,
        *,
        given: Any = None,
        layers: Any,
        taps: tuple[int, ...] = (),
        edit: Edit | None = None,
    ) -> tuple[Activations, Any]:
        """Returns embeddings passed through every layer, and what each layer made.

        `given` holds what each layer is given, stacked or in a tuple as the layers are.
        """
        config = self.config
        if not all(0 <= layer < config.layers for layer in taps):
            raise ValueError(f"taps={taps} of layers 0..{config.layers - 1}")
        if edit is not None and not 0 <= edit.layer < config.layers:
            raise ValueError(
                f"edit of layer {edit.layer} of layers 0..{config.layers - 1}"
            )
        graphdef = nnx.graphdef(self.blocks)

        def block(
            state: Any, x_BTD: jax.Array, view: View, given: Any
        ) -> tuple[jax.Array, Any]:
            return step(nnx.merge(graphdef, state), x_BTD, view, given)

        # Cast after the look-up: the gradient adds up in the parameters' dtype.
        table_VD = constrain(self.embedding[...], "vocab", None)
        x_BTD = table_VD[tokens_BT].astype(config.compute_dtype)
        if config.scale_embeddings:
            x_BTD = x_BTD * jnp.asarray(config.width**0.5, x_BTD.dtype)
        x_BTD = constrain(x_BTD, "batch", stream_axis(config), None)
        x_BTD, tapped, made = (_unroll if config.layer_loop == "unrolled" else _scan)(
            _rematerialised(block, config.remat),
            self.layers() if layers is None else layers,
            x_BTD,
            kinds=layer_kinds(config),
            views=views,
            given=given,
            taps=taps,
            edit=edit,
        )
        hidden_BTD = self.final_norm(x_BTD)
        if config.shard_sequence:
            hidden_BTD = constrain(hidden_BTD, "batch", None, None)
        return Activations(hidden=hidden_BTD, taps=tapped), made


def _unroll(
    block: Callable[..., tuple[jax.Array, Any]],
    layers: Any,
    x_BTD: jax.Array,
    *,
    kinds: tuple[LayerKind, ...],
    views: Views,
    given: Any,
    taps: tuple[int, ...],
    edit: Edit | None,
) -> tuple[jax.Array, tuple[jax.Array, ...], Any]:
    """Returns the last stream, the tapped streams and what each layer made."""
    streams, made = [], []
    for layer, state in enumerate(layers):
        view = views[kinds[layer]]
        x_BTD, out = block(state, x_BTD, view, given[layer] if given else None)
        if edit is not None and layer == edit.layer:
            x_BTD = edit(x_BTD)
        streams.append(x_BTD)
        made.append(out)
    return x_BTD, tuple(streams[layer] for layer in taps), tuple(made)


def _scan(
    block: Callable[..., tuple[jax.Array, Any]],
    layers: Any,
    x_BTD: jax.Array,
    *,
    kinds: tuple[LayerKind, ...],
    views: Views,
    given: Any,
    taps: tuple[int, ...],
    edit: Edit | None,
) -> tuple[jax.Array, tuple[jax.Array, ...], Any]:
    """Returns what `_unroll` returns, each layer's part stacked on a leading L axis."""

    def body(carry: Any, layer: tuple[jax.Array, ...]) -> tuple[Any, Any]:
        x_BTD, tapped = carry
        number, sliding, state, given = layer
        x_BTD, out = block(state, x_BTD, either(sliding, views), given)
        if edit is not None:
            x_BTD = jnp.where(number == edit.layer, edit(x_BTD), x_BTD)
        tapped = tuple(
            jnp.where(number == tap, x_BTD, kept)
            for tap, kept in zip(taps, tapped, strict=True)
        )
        return (x_BTD, tapped), out

    numbers_L = jnp.arange(len(kinds))
    sliding_L = jnp.array([kind == "sliding" for kind in kinds])
    carry = (x_BTD, tuple(jnp.zeros_like(x_BTD) for _ in taps))
    (x_BTD, tapped), made = jax.lax.scan(
        body, carry, (numbers_L, sliding_L, layers, given)
    )
    return x_BTD, tapped, made


def _rematerialised(block: Callable, remat: str) -> Callable:
    """Returns the block such that backward recomputes what `remat` says.

    none: nothing; dots: all but the products with weights; block: everything.
    """
    policies = jax.checkpoint_policies
    if remat == "none":
        return block
    if remat == "dots":
        return jax.checkpoint(block, policy=policies.dots_with_no_batch_dims_saveable)
    return jax.checkpoint(block, policy=policies.nothing_saveable)
