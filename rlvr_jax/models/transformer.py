"""The policy: one decoder for training, scoring and sampling.

`prefill` runs prompts, `extend` runs completions against the prompt that their group
shares, `hidden_states` does both, and `decode_step` runs one more token against a
cache. Layer parameters are stacked on a leading L axis whether layers are scanned or
unrolled, so checkpoints have the same layout in both cases.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, PyTree

from job_jax.mesh import with_logical_constraint
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.activations import Activations, HiddenStates, Prefix, last_hidden
from rlvr_jax.models.attention import KeyValues, soft_cap
from rlvr_jax.models.block import Block, RMSNorm, sequence_axis
from rlvr_jax.models.layer_loop import (
    Intervention,
    check_layers,
    rematerialize,
    scan_layers,
    split_layers,
    unroll_layers,
)
from rlvr_jax.models.masks import (
    AttentionContext,
    AttentionContexts,
    Segments,
    completion_contexts,
    decode_contexts,
    expand_layer_types,
    packed_contexts,
    prompt_contexts,
)
from rlvr_jax.models.parameters import (
    check_token_ids,
    einsum_float32,
    look_up,
    normal_param,
)


class Transformer(nnx.Module):
    """A decoder-only language model, computed as `config` says.

    `eos_ids` are the tokens that end a completion. Rows of the embedding from
    `num_real_tokens` on are padding; their ids are never sampled. `hf_dir` is the
    Hugging Face directory that the weights came from, if any: exports copy its
    tokenizer.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> from rlvr_jax.config import ModelConfig
        >>> config = ModelConfig(
        ...     num_layers=1, hidden_size=8, intermediate_size=8, num_heads=1,
        ...     num_kv_heads=1, head_dim=8,
        ... )
        >>> policy = Transformer(config, vocab_size=5, rngs=nnx.Rngs(0))
        >>> tokens = jnp.array([[1, 2, 3]])
        >>> policy(tokens, jnp.ones((1, 3), bool)).shape
        (1, 3, 5)
    """

    def __init__(
        self,
        config: ModelConfig,
        vocab_size: int,
        rngs: nnx.Rngs,
        *,
        eos_ids: tuple[int, ...] = (),
        num_real_tokens: int | None = None,
    ):
        self.config = config
        self.vocab_size = vocab_size
        self.eos_ids = eos_ids
        self.num_real_tokens = (
            vocab_size if num_real_tokens is None else num_real_tokens
        )
        self.hf_dir: str | None = None

        def table() -> nnx.Param:
            shape, axes = (vocab_size, config.hidden_size), ("vocab", "embed")
            return normal_param(
                rngs, shape, axes, fan_in=config.hidden_size, config=config
            )

        self.embedding = table()
        self.blocks = Block.init_stacked(config, rngs)
        self.final_norm = RMSNorm(config.hidden_size, ("embed",), config=config)
        if not config.tie_embeddings:
            self.lm_head = table()

    def __call__(
        self, tokens: Int[Array, " B T"], mask: Bool[Array, " B T"]
    ) -> Float[Array, " B T V"]:
        """Returns next-token logits. Positions count the true tokens of each row.

        Left and right padding give the same logits at true tokens; logits at padding
        are arbitrary but finite. Raises ValueError on other shapes, and on ids outside
        the vocabulary (ids cannot be checked while tracing).
        """
        tokens, mask = jnp.asarray(tokens), jnp.asarray(mask, bool)
        if tokens.ndim != 2 or mask.shape != tokens.shape:
            raise ValueError(
                f"tokens {tokens.shape} and mask {mask.shape}; both must be [B, T]"
            )
        check_token_ids(tokens, self.vocab_size, "tokens", mask=mask)
        tokens = tokens.astype(jnp.int32)
        activations, _ = self.prefill(tokens, mask)
        return self.logits(activations.hidden)

    @property
    def output_table(self) -> Float[Array, " V D"]:
        """Returns the output layer's matrix; if it is tied, this is the embedding."""
        head = self.embedding if self.config.tie_embeddings else self.lm_head
        return head[...]

    def logits(
        self, hidden_BTD: jax.Array, table_VD: jax.Array | None = None
    ) -> Float[Array, " B T V"]:
        """Returns float32 logits of final hidden states.

        `table_VD` replaces `output_table`, so a loop over chunks can cast it once.
        """
        B, T, D = hidden_BTD.shape
        table_VD = self.output_table if table_VD is None else table_VD
        logits_CV = einsum_float32(
            "cd,vd->cv",
            hidden_BTD.reshape(B * T, D),
            table_VD.astype(hidden_BTD.dtype),
        )
        logits_BTV = logits_CV.reshape(B, T, self.vocab_size)
        return soft_cap(logits_BTV, self.config.final_logit_softcap)

    def embed(self, tokens_BT: jax.Array) -> Float[Array, " B T D"]:
        """Returns the residual stream before the first layer."""
        config = self.config
        table_VD = with_logical_constraint(self.embedding[...], "vocab", None)
        x_BTD = look_up(table_VD, tokens_BT).astype(config.compute_dtype)
        if config.scale_embeddings:
            x_BTD = x_BTD * jnp.asarray(config.hidden_size**0.5, x_BTD.dtype)
        return with_logical_constraint(x_BTD, "batch", sequence_axis(config), None)

    def cast_layers(self) -> PyTree:
        """Returns the layers' parameters in the compute dtype, as passes take them.

        They are a tuple of L states, or one state with a leading L axis if
        `scan_layers`. Call it before a decode loop, which then need not cast or slice.
        """
        dtype = self.config.compute_dtype
        state = jax.tree.map(
            # Quantized integers keep their dtype; their scales are floats.
            lambda w: w.astype(dtype) if jnp.issubdtype(w.dtype, jnp.floating) else w,
            nnx.state(self.blocks),
        )
        if self.config.scan_layers:
            return state
        return split_layers(state, self.config.num_layers)

    def prefill(
        self,
        tokens: Int[Array, " P S"],
        mask: Bool[Array, " P S"],
        *,
        layers: PyTree = None,
        capture_layers: tuple[int, ...] = (),
        interventions: tuple[Intervention, ...] = (),
    ) -> tuple[Activations, Prefix]:
        """Returns the activations of whole rows, and the keys and values to share.

        Changes by `interventions` reach the completions through the keys and values of
        the layers above.
        """

        def step(
            block: Block, x_PSD: jax.Array, context: AttentionContext, _: None
        ) -> tuple[Array, KeyValues]:
            query_PSNH, own = block.project_qkv(x_PSD, context)
            return block.residual_and_mlp(
                x_PSD, block.attend(query_PSNH, own, context)
            ), own

        contexts = prompt_contexts(self.config, mask)
        activations, key_values = self._run_layers(
            step,
            tokens,
            contexts,
            layers=layers,
            capture_layers=capture_layers,
            interventions=interventions,
        )
        return activations, Prefix(key_values=key_values, mask=mask)

    def extend(
        self,
        tokens: Int[Array, " B T"],
        prefix: Prefix,
        *,
        segments: Segments | None = None,
        layers: PyTree = None,
        capture_layers: tuple[int, ...] = (),
        interventions: tuple[Intervention, ...] = (),
    ) -> Activations:
        """Returns the activations of completions after their prompts, all at once.

        Padding must come after a row's true tokens, where causality hides it. With
        `segments` several completions of one prompt share a row.
        """
        B, T = tokens.shape
        index_T = jnp.arange(T, dtype=jnp.int32)
        contexts = (
            completion_contexts(self.config, prefix.mask, index_T, rows=B, length=T)
            if segments is None
            else packed_contexts(self.config, prefix.mask, segments)
        )

        def step(
            block: Block, x_BTD: jax.Array, context: AttentionContext, shared: KeyValues
        ) -> tuple[Array, None]:
            query_BTNH, own = block.project_qkv(x_BTD, context)
            mixed_BTNH = block.attend(query_BTNH, own, context, shared)
            return block.residual_and_mlp(x_BTD, mixed_BTNH), None

        activations, _ = self._run_layers(
            step,
            tokens,
            contexts,
            layer_inputs=prefix.key_values,
            layers=layers,
            capture_layers=capture_layers,
            interventions=interventions,
        )
        return activations

    def hidden_states(
        self,
        prompt_tokens: Int[Array, " P S"],
        prompt_lengths: Int[Array, " P"],
        completion_tokens: Int[Array, " B T"],
        *,
        segments: Segments | None = None,
        capture_layers: tuple[int, ...] = (),
        capture_prompts: bool = False,
        interventions: tuple[Intervention, ...] = (),
        prompt_interventions: tuple[Intervention, ...] = (),
    ) -> HiddenStates:
        """Returns the hidden states of prompts and of their B = P G completions.

        Both are padded on the right. Prompts are run once and shared by their groups.
        `capture_layers` are captured in the completions, and with `capture_prompts`
        also in the prompts; each of the two passes has its own interventions. With
        `segments` the B rows are packed, and so is the result.
        """
        layers = self.cast_layers()
        index_S = jnp.arange(prompt_tokens.shape[1], dtype=jnp.int32)
        prompts, prefix = self.prefill(
            prompt_tokens,
            index_S[None] < prompt_lengths[:, None],
            layers=layers,
            capture_layers=capture_layers if capture_prompts else (),
            interventions=prompt_interventions,
        )
        last_PD = last_hidden(prompts.hidden, prompt_lengths)
        group_size = completion_tokens.shape[0] // prompt_tokens.shape[0]
        completions = self.extend(
            completion_tokens,
            prefix,
            segments=segments,
            layers=layers,
            capture_layers=capture_layers,
            interventions=interventions,
        )
        return HiddenStates(
            first=jnp.repeat(last_PD, group_size, axis=0),
            prompts=prompts,
            completions=completions,
        )

    def init_cache(self, rows: int, length: int) -> PyTree:
        """Returns zeroed keys and values for `length` completion tokens of B rows."""
        config = self.config
        shape = (rows, length, config.num_kv_heads, config.head_dim)
        zeros = jnp.zeros(shape, config.compute_dtype)
        layers = tuple(
            KeyValues.from_projections(zeros, zeros) for _ in range(config.num_layers)
        )
        if not config.scan_layers:
            return layers
        return jax.tree.map(lambda *parts: jnp.stack(parts), *layers)

    def decode_step(
        self,
        tokens: Int[Array, " B"],
        index: Int[Array, " B"],
        prefix: Prefix,
        *,
        column: Int[Array, ""],
        cache: PyTree,
        layers: PyTree,
        interventions: tuple[Intervention, ...] = (),
    ) -> tuple[Float[Array, " B D"], Any]:
        """Returns the hidden states of completion tokens `index`, and the new cache.

        The cache is a ring: the tokens' keys and values go to `column`, and a row's
        earlier tokens are in the `index` columns before it. `masks.decode_contexts`
        says which rows may share a prompt.
        """
        unrolled = not self.config.scan_layers
        contexts = decode_contexts(
            self.config,
            prefix.mask,
            index,
            column,
            length=(cache[0] if unrolled else cache).keys.shape[-2],
        )

        def step(
            block: Block,
            x_B1D: jax.Array,
            context: AttentionContext,
            layer_input: tuple[KeyValues, KeyValues],
        ) -> tuple[Array, KeyValues]:
            shared, past = layer_input
            query_B1NH, new = block.project_qkv(x_B1D, context)
            own = past.with_column(new, column)
            mixed_B1NH = block.attend(query_B1NH, own, context, shared)
            return block.residual_and_mlp(x_B1D, mixed_B1NH), own if unrolled else new

        past = prefix.key_values, cache
        activations, written = self._run_layers(
            step,
            tokens[:, None],
            contexts,
            layer_inputs=tuple(zip(*past, strict=True)) if unrolled else past,
            layers=layers,
            interventions=interventions,
        )
        # A scan only reads the cache and the new column is written after it: XLA copies
        # a cache that a scan both reads and writes, in every layer.
        new_cache = written if unrolled else cache.with_column(written, column)
        return activations.hidden[:, 0], new_cache

    def _run_layers(
        self,
        step: Callable[
            [Block, jax.Array, AttentionContext, Any], tuple[jax.Array, Any]
        ],
        tokens_BT: jax.Array,
        contexts: AttentionContexts,
        *,
        layer_inputs: PyTree = None,
        layers: PyTree,
        capture_layers: tuple[int, ...] = (),
        interventions: tuple[Intervention, ...] = (),
    ) -> tuple[Activations, Any]:
        """Returns the activations of a pass, and the result of `step` for each layer.

        `layer_inputs` holds an input for each layer, stacked or in a tuple like the
        layers.
        """
        config = self.config
        check_layers(
            config.num_layers,
            capture_layers=capture_layers,
            interventions=interventions,
        )
        graphdef = nnx.graphdef(self.blocks)

        def block(
            state: PyTree,
            x_BTD: jax.Array,
            context: AttentionContext,
            layer_input: PyTree,
        ) -> tuple[jax.Array, Any]:
            return step(nnx.merge(graphdef, state), x_BTD, context, layer_input)

        x_BTD = self.embed(tokens_BT)
        x_BTD, captured, outputs = (
            scan_layers if config.scan_layers else unroll_layers
        )(
            rematerialize(block, config.remat),
            self.cast_layers() if layers is None else layers,
            x_BTD,
            layer_types=expand_layer_types(config),
            contexts=contexts,
            layer_inputs=layer_inputs,
            capture_layers=capture_layers,
            interventions=interventions,
        )
        hidden_BTD = self.final_norm(x_BTD)
        if config.sequence_parallel:
            hidden_BTD = with_logical_constraint(hidden_BTD, "batch", None, None)
        return Activations(hidden=hidden_BTD, captured=captured), outputs
