"""Attention by kernels that store no [T, S] scores: cuDNN on GPU, splash on TPU.

Both take the same inputs. A completion's keys are sorted: padding, then the prompt's
true tokens, then its own. This makes a sliding window a band of the matrix. Segment 0
is padding: it attends only to itself, and nothing attends to it.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Array, Bool, Float, Int

from job_jax.mesh import mesh_platform, partition_spec
from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig

Kernel = Literal["plain", "cudnn", "splash"]
_KERNEL_OF_PLATFORM: dict[str, Kernel] = {"gpu": "cudnn", "tpu": "splash"}
# Lengths are padded to multiples: cuDNN's gradients need 2, splash needs whole blocks.
_LENGTH_MULTIPLE = {"cudnn": 2, "splash": 128}
# Block sizes of queries and keys in splash: the largest that divides the length is
# used.
_BLOCK_SIZES = (512, 256, 128)


@dataclasses.dataclass(frozen=True, kw_only=True)
class KernelInputs:
    """Queries, keys and values of B rows, in the kernels' layout.

    Query t is at key t + `offset`. In its own segment it attends to that key and to the
    `window` - 1 keys before it (0: to all before it).
    """

    queries: Float[Array, " B N T H"]
    keys: Float[Array, " B K S H"]
    values: Float[Array, " B K S H"]
    query_segments: Int[Array, " B T"]
    key_segments: Int[Array, " B S"]
    offset: int
    window: int


def select_kernel(config: ModelConfig, *, window: int | None, length: int) -> Kernel:
    """Returns which kernel computes a layer's attention over `length` query tokens.

    `window` is None if it is known only when the layer runs. A single token is always
    "plain": it has one row of scores, and a kernel would read the cache just as often.
    Raises ConfigError if `config.attention` names a kernel that cannot run here.
    """
    requested = config.attention
    if requested == "plain" or length == 1:
        return "plain"
    available = _KERNEL_OF_PLATFORM.get(mesh_platform(), "plain")
    kernel = available if requested == "auto" else requested
    if kernel == "plain":
        return kernel
    reason = None if kernel == available else f"it does not run on {mesh_platform()}"
    reason = reason or _unsupported_reason(kernel, config, window)
    if requested != "auto" and reason:
        raise ConfigError(
            f"model.attention={requested} is impossible: {reason}; set "
            "model.attention=auto, which then uses plain attention"
        )
    # Fewer queries than a block would mostly be padding.
    small = requested == "auto" and length < _LENGTH_MULTIPLE[kernel]
    return "plain" if reason or small else kernel


def takes_packed_rows(config: ModelConfig, *, length: int) -> bool:
    """Returns whether attention can read packed rows of `length` tokens here.

    Kernels only distinguish true tokens from padding, so all layers must be plain, and
    a packed row's tokens must not be split over devices.
    """
    windows: set[int | None] = {
        config.sliding_window if layer_type == "sliding" else 0
        for layer_type in config.layer_types
    }
    if config.scan_layers and len(windows) > 1:
        windows = {None}  # known only when a layer runs
    kernels = {select_kernel(config, window=w, length=length) for w in windows}
    return kernels == {"plain"} and not config.sequence_parallel


def _unsupported_reason(
    kernel: Kernel, config: ModelConfig, window: int | None
) -> str | None:
    """Returns why the kernel cannot compute a layer, or None if it can."""
    if window is None:
        return (
            "a scanned layer gets its window only when it runs; set scan_layers=false"
        )
    if kernel == "splash":
        return None
    if config.compute_dtype != "bfloat16":
        return f"cuDNN computes in bfloat16, not in {config.compute_dtype}"
    if config.attn_logit_softcap:
        return (
            f"cuDNN cannot cap scores (attn_logit_softcap={config.attn_logit_softcap})"
        )
    if config.head_dim % 8 or config.head_dim > 128:
        return f"cuDNN needs heads of 8, 16 ... 128, not of {config.head_dim}"
    return None


def kernel_attention(
    kernel: Kernel,
    queries: Float[Array, " B T N H"],
    key_values: tuple[Float[Array, " B K T H"], Float[Array, " B K T H"]],
    prefix: tuple[Float[Array, " P K S H"], Float[Array, " P K S H"]] | None,
    token_mask: Bool[Array, " P S"],
    *,
    window: int,
    config: ModelConfig,
    interpret: bool = False,
) -> Float[Array, " B T N H"]:
    """Returns the result of `attention.attend`, computed by a kernel.

    `token_mask` marks true tokens, of the prompt if there is one, else of the rows.
    `interpret` runs splash without a TPU, and XLA instead of cuDNN.
    """
    T = queries.shape[1]
    run: dict[Kernel, Callable] = {
        "cudnn": _cudnn_attention,
        "splash": _splash_attention,
    }
    inputs = _kernel_inputs(
        queries,
        key_values,
        prefix,
        token_mask,
        window=window,
        multiple=_LENGTH_MULTIPLE[kernel],
    )
    mixed_BNTH = run[kernel](inputs, config, interpret=interpret)
    return mixed_BNTH[:, :, :T].swapaxes(1, 2).astype(queries.dtype)


def _kernel_inputs(
    query_BTNH: jax.Array,
    key_values: tuple[jax.Array, jax.Array],
    prefix: tuple[jax.Array, jax.Array] | None,
    token_mask_PS: jax.Array,
    *,
    window: int,
    multiple: int,
) -> KernelInputs:
    B, T = query_BTNH.shape[:2]
    pad_length = -T % multiple
    key_BKSH, value_BKSH = key_values
    own_BS = token_mask_PS.astype(jnp.int32)
    key_segment_BS, offset = own_BS, 0
    if prefix is not None:
        own_BS = jnp.ones((B, T), jnp.int32)
        order_PS = jnp.argsort(token_mask_PS, axis=1, stable=True)
        P, S = token_mask_PS.shape
        G, front = B // P, -S % multiple
        offset = S + front

        def joined(prefix_PKSH: jax.Array, own_BKSH: jax.Array) -> jax.Array:
            sorted_PKSH = jnp.take_along_axis(
                prefix_PKSH, order_PS[:, None, :, None], axis=2
            )
            padded_PKSH = _pad(sorted_PKSH, 2, front=front)
            rows_BKSH = jnp.repeat(padded_PKSH, G, axis=0)
            return jnp.concatenate([rows_BKSH, own_BKSH], axis=2)

        key_BKSH, value_BKSH = map(joined, prefix, key_values)
        sorted_PS = jnp.take_along_axis(token_mask_PS, order_PS, axis=1).astype(
            jnp.int32
        )
        before_BS = jnp.repeat(_pad(sorted_PS, 1, front=front), G, axis=0)
        key_segment_BS = jnp.concatenate([before_BS, own_BS], axis=1)
    return KernelInputs(
        queries=_pad(query_BTNH.swapaxes(1, 2), 2, back=pad_length),
        keys=_pad(key_BKSH, 2, back=pad_length),
        values=_pad(value_BKSH, 2, back=pad_length),
        query_segments=_pad(own_BS, 1, back=pad_length),
        key_segments=_pad(key_segment_BS, 1, back=pad_length),
        offset=offset,
        window=window,
    )


def _pad(x: jax.Array, axis: int, *, front: int = 0, back: int = 0) -> jax.Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (front, back)
    return jnp.pad(x, widths)


def _scale(config: ModelConfig) -> float:
    return (config.query_pre_attn_scalar or config.head_dim) ** -0.5


def _cudnn_attention(
    inputs: KernelInputs, config: ModelConfig, *, interpret: bool
) -> jax.Array:
    """Returns attention's output [B, N, T, H], with a mask array [B, 1, T, S]."""

    def kernel(
        query_BNTH: jax.Array,
        key_BKSH: jax.Array,
        value_BKSH: jax.Array,
        query_segment_BT: jax.Array,
        key_segment_BS: jax.Array,
    ) -> jax.Array:
        T, S = query_BNTH.shape[2], key_BKSH.shape[2]
        distance_TS = (inputs.offset + jnp.arange(T))[:, None] - jnp.arange(S)[None]
        causal_TS = distance_TS >= 0
        if inputs.window:
            causal_TS &= distance_TS < inputs.window
        same_segment_BTS = query_segment_BT[:, :, None] == key_segment_BS[:, None]
        mixed_BTNH = jax.nn.dot_product_attention(
            query_BNTH.swapaxes(1, 2),
            key_BKSH.swapaxes(1, 2),
            value_BKSH.swapaxes(1, 2),
            mask=(same_segment_BTS & causal_TS[None])[:, None],
            scale=_scale(config),
            implementation="xla" if interpret else "cudnn",
        )
        return mixed_BTNH.swapaxes(1, 2)

    return _shard_over_mesh(kernel, inputs)


def _splash_attention(
    inputs: KernelInputs, config: ModelConfig, *, interpret: bool
) -> jax.Array:
    """Returns attention's output [B, N, T, H]; scores exist one block at a time."""

    def kernel(
        query_BNTH: jax.Array,
        key_BKSH: jax.Array,
        value_BKSH: jax.Array,
        query_segment_BT: jax.Array,
        key_segment_BS: jax.Array,
    ) -> jax.Array:
        N, T = query_BNTH.shape[1:3]
        shape = (T, key_BKSH.shape[2])
        mask: splash.Mask = splash.CausalMask(shape, offset=inputs.offset)
        if inputs.window:
            band = (inputs.window - 1, 0)
            mask = splash.LocalMask(shape, window_size=band, offset=inputs.offset)
        attend = splash.make_splash_mha(
            mask=splash.MultiHeadMask([mask] * N),
            head_shards=1,
            q_seq_shards=1,
            block_sizes=_block_sizes(*shape),
            attn_logits_soft_cap=config.attn_logit_softcap or None,
            interpret=interpret,
        )
        scaled_BNTH = (query_BNTH.astype(jnp.float32) * _scale(config)).astype(
            query_BNTH.dtype
        )
        segments = splash.SegmentIds(q=query_segment_BT, kv=key_segment_BS)
        return jax.vmap(attend)(scaled_BNTH, key_BKSH, value_BKSH, segments)

    return _shard_over_mesh(kernel, inputs)


def _block_sizes(T: int, S: int) -> splash.BlockSizes:
    q, kv = (next(n for n in _BLOCK_SIZES if length % n == 0) for length in (T, S))
    return splash.BlockSizes(
        block_q=q,
        block_kv=kv,
        block_q_dkv=q,
        block_kv_dkv=kv,
        block_kv_dkv_compute=kv,
        block_q_dq=q,
        block_kv_dq=kv,
    )


def _shard_over_mesh(
    kernel: Callable[..., jax.Array], inputs: KernelInputs
) -> jax.Array:
    """Returns the kernel's result, with each device computing its rows and heads.

    XLA cannot partition a kernel, so `shard_map` does. If query heads divide over the
    devices but key heads do not, every query head gets a copy of its key head.
    """
    arrays = (
        inputs.queries,
        inputs.keys,
        inputs.values,
        inputs.query_segments,
        inputs.key_segments,
    )
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(*arrays)
    queries, keys, values, *segments = arrays
    by_query = partition_spec(queries.shape, ("batch", "heads", None, None), mesh)
    by_key = partition_spec(keys.shape, ("batch", "kv_heads", None, None), mesh)
    if by_query != by_key:
        R = queries.shape[1] // keys.shape[1]
        keys, values = (jnp.repeat(x, R, axis=1) for x in (keys, values))
    rows = partition_spec(segments[0].shape, ("batch", None), mesh)
    return jax.shard_map(
        kernel,
        in_specs=(by_query, by_query, by_query, rows, rows),
        out_specs=by_query,
        check_vma=False,
    )(queries, keys, values, *segments)
