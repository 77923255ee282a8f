"""The policy: one decoder for training, scoring and sampling.

`prefill` reads prompts, `extend` reads completions against prompts that are shared
by their group, in training (all tokens at once) and in decoding (one token against
a cache) alike. Layer parameters are stacked on a leading L axis whatever the layer
loop, so checkpoints do not depend on it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from rlvr_jax.config import ModelConfig
from rlvr_jax.mesh import constrain
from rlvr_jax.models.attention import KeyValues, attend, rope_tables, rotate


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Prefix:
    """What a group shares: each layer's keys and values of its prompt.

    `layers` is a tuple of L `KeyValues` (unrolled) or one with a leading L axis (scan).
    """

    layers: Any
    mask: Bool[Array, " P S"]
    lengths: Int[Array, " P"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Activations:
    """What a pass computes: the final normalised hidden states and the taps asked for.

    `taps[i]` is the residual stream after layer `taps[i]`, [B, T, D].
    """

    hidden: Float[Array, " B T D"]
    taps: tuple[Float[Array, " B T D"], ...]


def _weight(
    key: jax.Array, shape: tuple[int, ...], *, fan_in: int, config: ModelConfig
) -> jax.Array:
    std = config.init_scale * fan_in**-0.5
    return (std * jax.random.normal(key, shape)).astype(config.param_dtype)


class RMSNorm(nnx.Module):
    """x / rms(x) * scale, in float32. https://arxiv.org/abs/1910.07467"""

    def __init__(self, config: ModelConfig):
        self.scale = nnx.Param(
            jnp.ones(config.width, config.param_dtype), axes=("embed",)
        )
        self.eps = config.norm_eps

    def __call__(self, x_BTD: jax.Array) -> jax.Array:
        """Returns the normalised stream in x's dtype."""
        wide_BTD = x_BTD.astype(jnp.float32)
        mean_square_BT1 = jnp.mean(wide_BTD * wide_BTD, axis=-1, keepdims=True)
        scaled_BTD = wide_BTD * jax.lax.rsqrt(mean_square_BT1 + self.eps)
        scale_D = self.scale[...].astype(jnp.float32)
        return (scaled_BTD * scale_D[None, None]).astype(x_BTD.dtype)


class Block(nnx.Module):
    """One pre-norm layer: grouped-query attention, then SwiGLU."""

    def __init__(self, config: ModelConfig, rngs: nnx.Rngs):
        D, F, H = config.width, config.mlp_width, config.head_width
        N, K = config.heads, config.kv_heads

        def param(shape: tuple[int, ...], fan_in: int, *axes: str) -> nnx.Param:
            value = _weight(rngs.params(), shape, fan_in=fan_in, config=config)
            return nnx.Param(value, axes=axes)

        self.attention_norm = RMSNorm(config)
        self.query = param((D, N, H), D, "embed", "heads", "head_width")
        self.key = param((D, K, H), D, "embed", "kv_heads", "head_width")
        self.value = param((D, K, H), D, "embed", "kv_heads", "head_width")
        self.out = param((N, H, D), N * H, "heads", "head_width", "embed")
        self.mlp_norm = RMSNorm(config)
        self.gate = param((D, F), D, "embed", "mlp")
        self.up = param((D, F), D, "embed", "mlp")
        self.down = param((F, D), F, "mlp", "embed")

    def heads(
        self, x_BTD: jax.Array, rope: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, KeyValues]:
        """Returns turned queries [B, T, N, H] and keys and values [B, K, T, H]."""
        normed_BTD = self.attention_norm(x_BTD)
        query_BTNH = rotate(_project(normed_BTD, self.query[...]), *rope)
        key_BTKH = rotate(_project(normed_BTD, self.key[...]), *rope)
        value_BTKH = _project(normed_BTD, self.value[...])
        return query_BTNH, KeyValues(
            keys=key_BTKH.swapaxes(1, 2), values=value_BTKH.swapaxes(1, 2)
        )

    def finish(self, x_BTD: jax.Array, mixed_BTNH: jax.Array) -> jax.Array:
        """Returns the stream after attention's output and the MLP are added."""
        N, H, D = self.out.shape
        B, T = x_BTD.shape[:2]
        mixed_BTX = mixed_BTNH.reshape(B, T, N * H)
        x_BTD = x_BTD + mixed_BTX @ self.out[...].reshape(N * H, D)
        normed_BTD = self.mlp_norm(x_BTD)
        gated_BTF = jax.nn.silu(normed_BTD @ self.gate[...])
        x_BTD = x_BTD + (gated_BTF * (normed_BTD @ self.up[...])) @ self.down[...]
        return constrain(x_BTD, "batch", None, None)


def _project(x_BTD: jax.Array, weight_DNH: jax.Array) -> jax.Array:
    D, N, H = weight_DNH.shape
    out_BTX = x_BTD @ weight_DNH.reshape(D, N * H)
    return out_BTX.reshape(*x_BTD.shape[:2], N, H)


class Transformer(nnx.Module):
    """A decoder-only language model. `eos_ids` are the tokens that end a completion."""

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rngs: nnx.Rngs,
        *,
        eos_ids: tuple[int, ...] = (),
    ):
        self.config = config
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        D = config.width
        self.embedding = nnx.Param(
            _weight(rngs.params(), (vocab_size, D), fan_in=D, config=config),
            axes=("vocab", "embed"),
        )
        self.blocks = _stacked_blocks(config, rngs)
        self.final_norm = RMSNorm(config)
        if not config.tie_embeddings:
            self.head = nnx.Param(
                _weight(rngs.params(), (vocab_size, D), fan_in=D, config=config),
                axes=("vocab", "embed"),
            )

    def __call__(
        self, tokens: Int[Array, " B T"], mask: Bool[Array, " B T"]
    ) -> Float[Array, " B T V"]:
        """Returns next-token logits. Positions count a row's true tokens from 0.

        Left and right padding give the same logits at true tokens; logits at padding
        are arbitrary but finite.
        """
        tokens, mask = jnp.asarray(tokens, jnp.int32), jnp.asarray(mask, bool)
        activations, _ = self.prefill(tokens, mask)
        return self.logits(activations.hidden)

    def logits(self, hidden_BTD: jax.Array) -> Float[Array, " B T V"]:
        """Returns float32 logits of final hidden states."""
        head = self.embedding if self.config.tie_embeddings else self.head
        return jnp.einsum(
            "btd,vd->btv",
            hidden_BTD,
            head[...].astype(hidden_BTD.dtype),
            preferred_element_type=jnp.float32,
        )

    def layers(self) -> Any:
        """Returns the layers in compute dtype, ready for `prefill` and `extend`.

        Unrolled: a tuple of L states; scan: one state with a leading L axis. Taken
        once outside a decode loop, neither cast nor slice is repeated in it.
        """
        state = nnx.state(self.blocks)
        state = jax.tree.map(lambda w: w.astype(self.config.compute_dtype), state)
        if self.config.layer_loop == "scan":
            return state
        # lax.split's gradient is one concatenation; indexing would add L times.
        leaves, treedef = jax.tree.flatten(state)
        count = self.config.layers
        split = [jax.lax.split(leaf, [1] * count, axis=0) for leaf in leaves]
        return tuple(
            treedef.unflatten([parts[layer][0] for parts in split])
            for layer in range(count)
        )

    def prefill(
        self,
        tokens: Int[Array, " P S"],
        mask: Bool[Array, " P S"],
        *,
        layers: Any = None,
        taps: tuple[int, ...] = (),
    ) -> tuple[Activations, Prefix]:
        """Returns the pass over whole sequences and what completions can share."""
        S = tokens.shape[1]
        lengths_P = mask.sum(axis=1, dtype=jnp.int32)
        positions_PS = jnp.maximum(jnp.cumsum(mask, axis=1, dtype=jnp.int32) - 1, 0)
        rope = self._rope(positions_PS)
        causal_SS = jnp.tril(jnp.ones((S, S), bool))
        mask_PSS = causal_SS[None] & mask[:, None, :]

        def step(block: Block, x_PSD: jax.Array, _: None) -> tuple[jax.Array, KeyValues]:
            query_PSNH, own = block.heads(x_PSD, rope)
            mixed_PSNH = attend(query_PSNH, own, own_mask=mask_PSS)
            return block.finish(x_PSD, mixed_PSNH), own

        activations, kept = self._run(step, tokens, None, layers=layers, taps=taps)
        return activations, Prefix(layers=kept, mask=mask, lengths=lengths_P)

    def extend(
        self,
        tokens: Int[Array, " B T"],
        prefix: Prefix,
        *,
        layers: Any = None,
        taps: tuple[int, ...] = (),
    ) -> Activations:
        """Returns the pass over completions, all tokens at once.

        Padding lies behind a row's true tokens, where causality hides it.
        """
        B, T = tokens.shape
        start_B = jnp.repeat(prefix.lengths, B // prefix.lengths.shape[0])
        rope = self._rope(start_B[:, None] + jnp.arange(T, dtype=jnp.int32)[None])
        causal_1TT = jnp.tril(jnp.ones((T, T), bool))[None]

        def step(
            block: Block, x_BTD: jax.Array, shared: KeyValues
        ) -> tuple[jax.Array, None]:
            query_BTNH, own = block.heads(x_BTD, rope)
            mixed_BTNH = attend(
                query_BTNH,
                own,
                own_mask=causal_1TT,
                prefix=shared,
                prefix_mask=prefix.mask,
            )
            return block.finish(x_BTD, mixed_BTNH), None

        activations, _ = self._run(
            step, tokens, prefix.layers, layers=layers, taps=taps
        )
        return activations

    def empty_cache(self, rows: int, length: int) -> Any:
        """Returns zeroed keys and values for `length` completion tokens of B rows."""
        config = self.config
        shape = (rows, config.kv_heads, length, config.head_width)

        def one(lead: tuple[int, ...]) -> KeyValues:
            zeros = jnp.zeros(lead + shape, config.compute_dtype)
            return KeyValues(keys=zeros, values=zeros)

        if config.layer_loop == "scan":
            return one((config.layers,))
        return tuple(one(()) for _ in range(config.layers))

    def decode(
        self,
        tokens: Int[Array, " B"],
        index: Int[Array, ""],
        prefix: Prefix,
        *,
        cache: Any,
        layers: Any,
    ) -> tuple[Float[Array, " B D"], Any]:
        """Returns the final hidden state of completion token `index`, and the cache.

        Every row stands at the same `index`, since prompts are kept apart.
        """
        B = tokens.shape[0]
        start_B = jnp.repeat(prefix.lengths, B // prefix.lengths.shape[0])
        rope = self._rope((start_B + index)[:, None])
        first = cache if self.config.layer_loop == "scan" else cache[0]
        length = first.keys.shape[-2]
        seen_11S = (jnp.arange(length, dtype=jnp.int32) <= index)[None, None]

        def step(
            block: Block, x_B1D: jax.Array, kept: tuple[KeyValues, KeyValues]
        ) -> tuple[jax.Array, KeyValues]:
            shared, past = kept
            query_B1NH, new = block.heads(x_B1D, rope)
            now = jax.tree.map(
                lambda old, one: jax.lax.dynamic_update_slice_in_dim(old, one, index, 2),
                past,
                new,
            )
            mixed_B1NH = attend(
                query_B1NH,
                now,
                own_mask=seen_11S,
                prefix=shared,
                prefix_mask=prefix.mask,
            )
            return block.finish(x_B1D, mixed_B1NH), now

        kept = (prefix.layers, cache)
        if self.config.layer_loop == "unrolled":
            kept = tuple(zip(*kept, strict=True))
        activations, cache = self._run(step, tokens[:, None], kept, layers=layers)
        return activations.hidden[:, 0], cache

    def _rope(self, positions_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
        return rope_tables(positions_BT, self.config.head_width, self.config.rope_base)

    def _run(
        self,
        step: Callable[[Block, jax.Array, Any], tuple[jax.Array, Any]],
        tokens_BT: jax.Array,
        per_layer: Any,
        *,
        layers: Any,
        taps: tuple[int, ...] = (),
    ) -> tuple[Activations, Any]:
        """Returns embeddings passed through every layer, and what each layer kept."""
        layers = self.layers() if layers is None else layers
        graphdef = nnx.graphdef(self.blocks)
        dtype = self.config.compute_dtype

        def run_block(state: Any, x_BTD: jax.Array, given: Any) -> tuple[jax.Array, Any]:
            return step(nnx.merge(graphdef, state), x_BTD, given)

        run_block = _rematerialised(run_block, self.config.remat)
        x_BTD = self.embedding[...].astype(dtype)[tokens_BT]
        x_BTD = constrain(x_BTD, "batch", None, None)
        if self.config.layer_loop == "unrolled":
            given = per_layer or (None,) * self.config.layers
            tapped, kept = {}, []
            for layer, state in enumerate(layers):
                x_BTD, out = run_block(state, x_BTD, given[layer])
                kept.append(out)
                if layer in taps:
                    tapped[layer] = x_BTD
            kept_layers: Any = tuple(kept)
        else:
            x_BTD, tapped, kept_layers = _scan(
                run_block, layers, x_BTD, per_layer=per_layer, taps=taps
            )
        hidden_BTD = self.final_norm(x_BTD)
        return Activations(hidden_BTD, tuple(tapped[t] for t in taps)), kept_layers


def _scan(
    run_block: Callable[..., tuple[jax.Array, Any]],
    layers: Any,
    x_BTD: jax.Array,
    *,
    per_layer: Any,
    taps: tuple[int, ...],
) -> tuple[jax.Array, dict[int, jax.Array], Any]:
    """Returns the last stream, the tapped streams and each layer's output."""

    def body(carry: Any, given: Any) -> tuple[Any, Any]:
        x_BTD, tapped, layer = carry
        state, given_layer = given
        x_BTD, out = run_block(state, x_BTD, given_layer)
        tapped = {t: jnp.where(layer == t, x_BTD, kept) for t, kept in tapped.items()}
        return (x_BTD, tapped, layer + 1), out

    tapped = {t: jnp.zeros_like(x_BTD) for t in taps}
    carry = (x_BTD, tapped, jnp.int32(0))
    (x_BTD, tapped, _), kept = jax.lax.scan(body, carry, (layers, per_layer))
    return x_BTD, tapped, kept


def _rematerialised(run_block: Callable, remat: str) -> Callable:
    if remat == "none":
        return run_block
    policies = jax.checkpoint_policies
    policy = (
        policies.nothing_saveable
        if remat == "block"
        else policies.dots_with_no_batch_dims_saveable
    )
    return jax.checkpoint(run_block, policy=policy)


def _stacked_blocks(config: ModelConfig, rngs: nnx.Rngs) -> Block:
    """Returns one Block whose parameters carry a leading L axis."""

    @nnx.split_rngs(splits=config.layers)
    @nnx.vmap(in_axes=(0,), out_axes=0)
    def create(rngs: nnx.Rngs) -> Block:
        return Block(config, rngs)

    return create(rngs)


def logical_axes(model: Transformer) -> Any:
    """Returns a tree like the parameters' with each one's logical axes."""

    def axes(path: tuple, param: nnx.Param) -> tuple[str, ...]:
        lead = ("layers",) if "blocks" in path else ()
        return lead + param.get_metadata()["axes"]

    flat = nnx.to_flat_state(nnx.state(model))
    return nnx.from_flat_state([(path, axes(path, param)) for path, param in flat])
