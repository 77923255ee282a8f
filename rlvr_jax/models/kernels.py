"""Attention by kernels that hold no [T, S] scores: cuDNN on GPU, splash on TPU.

Both see one arrangement of a pass. A completion's keys are padding, then the prompt's
true tokens, then its own: true tokens stand side by side, so a window is a band of the
matrix. Segment 0 is padding, which sees itself alone and is seen by no other.
"""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Array, Bool, Float, Int

from job_jax.mesh import partition
from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig

Kernel = Literal["plain", "cudnn", "splash"]
_PLATFORMS: dict[str, Kernel] = {"gpu": "cudnn", "tpu": "splash"}
# What lengths are padded to: cuDNN's gradients want them even, splash whole blocks.
_MULTIPLE = {"cudnn": 2, "splash": 128}
_BLOCKS = (512, 256, 128)  # of queries and of keys, in splash: the largest that divides


@dataclasses.dataclass(frozen=True, kw_only=True)
class Arranged:
    """Queries, keys and values of B rows as the kernels read them.

    Query t stands at key t + `offset` and sees it, the `window` - 1 keys before it (0:
    all of them) and no others, of its own segment.
    """

    queries: Float[Array, " B N T H"]
    keys: Float[Array, " B K S H"]
    values: Float[Array, " B K S H"]
    query_segments: Int[Array, " B T"]
    key_segments: Int[Array, " B S"]
    offset: int
    window: int


def chosen(config: ModelConfig, *, window: int | None, length: int) -> Kernel:
    """Returns what computes the attention of a layer in a pass over `length` tokens.

    `window` is None where it is known only when the layer runs. One token at a time is
    always read plainly: there are no scores to save, and the cache is read once either
    way. Raises ConfigError where config.attention names what cannot be.
    """
    asked = config.attention
    if asked == "plain" or length == 1:
        return "plain"
    here = _PLATFORMS.get(platform(), "plain")
    kernel = here if asked == "auto" else asked
    if kernel == "plain":
        return kernel
    obstacle = None if kernel == here else f"it does not run on {platform()}"
    obstacle = obstacle or _obstacle(kernel, config, window)
    if asked != "auto" and obstacle:
        raise ConfigError(
            f"model.attention={asked} is impossible: {obstacle}; set "
            "model.attention=auto, which is plain there"
        )
    # Less than a block of queries would mostly be padding.
    small = asked == "auto" and length < _MULTIPLE[kernel]
    return "plain" if obstacle or small else kernel


def platform() -> str:
    """Returns what the program will run on: the mesh's devices, or JAX's default."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def _obstacle(kernel: Kernel, config: ModelConfig, window: int | None) -> str | None:
    """Returns why the kernel cannot compute a layer, None where it can."""
    if window is None:
        return "a scanned layer learns its window when it runs; unroll the layers"
    if kernel == "splash":
        return None
    if config.compute_dtype != "bfloat16":
        return f"cuDNN computes in bfloat16, not in {config.compute_dtype}"
    if config.score_cap:
        return f"cuDNN caps no scores, and score_cap={config.score_cap}"
    if config.head_width % 8 or config.head_width > 128:
        return f"cuDNN takes heads of 8, 16 ... 128, not of {config.head_width}"
    return None


def fused(
    kernel: Kernel,
    queries: Float[Array, " B T N H"],
    own: tuple[Float[Array, " B K T H"], Float[Array, " B K T H"]],
    prefix: tuple[Float[Array, " P K S H"], Float[Array, " P K S H"]] | None,
    true: Bool[Array, " P S"],
    *,
    window: int,
    config: ModelConfig,
    interpret: bool = False,
) -> Float[Array, " B T N H"]:
    """Returns what `attention.attend` returns, by a kernel.

    `true` tells padding: among the rows' own tokens, or the prefix's where there is
    one. `interpret` runs splash without a TPU, and XLA in the place of cuDNN.
    """
    T = queries.shape[1]
    run: dict[Kernel, Callable] = {"cudnn": _cudnn, "splash": _splash}
    arranged = _arranged(
        queries, own, prefix, true, window=window, multiple=_MULTIPLE[kernel]
    )
    mixed_BNTH = run[kernel](arranged, config, interpret=interpret)
    return mixed_BNTH[:, :, :T].swapaxes(1, 2).astype(queries.dtype)


def _arranged(
    query_BTNH: jax.Array,
    own: tuple[jax.Array, jax.Array],
    prefix: tuple[jax.Array, jax.Array] | None,
    true_PS: jax.Array,
    *,
    window: int,
    multiple: int,
) -> Arranged:
    B, T = query_BTNH.shape[:2]
    behind = -T % multiple
    key_BKSH, value_BKSH = own
    own_BS = true_PS.astype(jnp.int32)
    key_segment_BS, offset = own_BS, 0
    if prefix is not None:
        own_BS = jnp.ones((B, T), jnp.int32)
        order_PS = jnp.argsort(true_PS, axis=1, stable=True)
        P, S = true_PS.shape
        G, front = B // P, -S % multiple
        offset = S + front

        def joined(prefix_PKSH: jax.Array, own_BKSH: jax.Array) -> jax.Array:
            sorted_PKSH = jnp.take_along_axis(
                prefix_PKSH, order_PS[:, None, :, None], axis=2
            )
            padded_PKSH = _pad(sorted_PKSH, 2, front=front)
            rows_BKSH = jnp.repeat(padded_PKSH, G, axis=0)
            return jnp.concatenate([rows_BKSH, own_BKSH], axis=2)

        key_BKSH, value_BKSH = map(joined, prefix, own)
        sorted_PS = jnp.take_along_axis(true_PS, order_PS, axis=1).astype(jnp.int32)
        before_BS = jnp.repeat(_pad(sorted_PS, 1, front=front), G, axis=0)
        key_segment_BS = jnp.concatenate([before_BS, own_BS], axis=1)
    return Arranged(
        queries=_pad(query_BTNH.swapaxes(1, 2), 2, back=behind),
        keys=_pad(key_BKSH, 2, back=behind),
        values=_pad(value_BKSH, 2, back=behind),
        query_segments=_pad(own_BS, 1, back=behind),
        key_segments=_pad(key_segment_BS, 1, back=behind),
        offset=offset,
        window=window,
    )


def _pad(x: jax.Array, axis: int, *, front: int = 0, back: int = 0) -> jax.Array:
    widths = [(0, 0)] * x.ndim
    widths[axis] = (front, back)
    return jnp.pad(x, widths)


def _scale(config: ModelConfig) -> float:
    return (config.score_width or config.head_width) ** -0.5


def _cudnn(arranged: Arranged, config: ModelConfig, *, interpret: bool) -> jax.Array:
    """Returns the mix of values [B, N, T, H]; what is seen is an array [B, 1, T, S]."""

    def kernel(
        query_BNTH: jax.Array,
        key_BKSH: jax.Array,
        value_BKSH: jax.Array,
        query_segment_BT: jax.Array,
        key_segment_BS: jax.Array,
    ) -> jax.Array:
        T, S = query_BNTH.shape[2], key_BKSH.shape[2]
        distance_TS = (arranged.offset + jnp.arange(T))[:, None] - jnp.arange(S)[None]
        seen_TS = distance_TS >= 0
        if arranged.window:
            seen_TS &= distance_TS < arranged.window
        same_BTS = query_segment_BT[:, :, None] == key_segment_BS[:, None]
        mixed_BTNH = jax.nn.dot_product_attention(
            query_BNTH.swapaxes(1, 2),
            key_BKSH.swapaxes(1, 2),
            value_BKSH.swapaxes(1, 2),
            mask=(same_BTS & seen_TS[None])[:, None],
            scale=_scale(config),
            implementation="xla" if interpret else "cudnn",
        )
        return mixed_BTNH.swapaxes(1, 2)

    return _on_mesh(kernel, arranged)


def _splash(arranged: Arranged, config: ModelConfig, *, interpret: bool) -> jax.Array:
    """Returns the mix of values [B, N, T, H]; scores live in one block at a time."""

    def kernel(
        query_BNTH: jax.Array,
        key_BKSH: jax.Array,
        value_BKSH: jax.Array,
        query_segment_BT: jax.Array,
        key_segment_BS: jax.Array,
    ) -> jax.Array:
        N, T = query_BNTH.shape[1:3]
        shape = (T, key_BKSH.shape[2])
        mask: splash.Mask = splash.CausalMask(shape, offset=arranged.offset)
        if arranged.window:
            band = (arranged.window - 1, 0)
            mask = splash.LocalMask(shape, window_size=band, offset=arranged.offset)
        attend = splash.make_splash_mha(
            mask=splash.MultiHeadMask([mask] * N),
            head_shards=1,
            q_seq_shards=1,
            block_sizes=_block_sizes(*shape),
            attn_logits_soft_cap=config.score_cap or None,
            interpret=interpret,
        )
        scaled_BNTH = (query_BNTH.astype(jnp.float32) * _scale(config)).astype(
            query_BNTH.dtype
        )
        segments = splash.SegmentIds(q=query_segment_BT, kv=key_segment_BS)
        return jax.vmap(attend)(scaled_BNTH, key_BKSH, value_BKSH, segments)

    return _on_mesh(kernel, arranged)


def _block_sizes(T: int, S: int) -> splash.BlockSizes:
    q, kv = (next(n for n in _BLOCKS if length % n == 0) for length in (T, S))
    return splash.BlockSizes(
        block_q=q,
        block_kv=kv,
        block_q_dkv=q,
        block_kv_dkv=kv,
        block_kv_dkv_compute=kv,
        block_q_dq=q,
        block_kv_dq=kv,
    )


def _on_mesh(kernel: Callable[..., jax.Array], arranged: Arranged) -> jax.Array:
    """Returns the kernel's result, each device computing its rows and its heads.

    A compiler cannot split what it cannot see into. Where key heads do not divide over
    the devices that query heads do, every query head gets a key head of its own.
    """
    arrays = (
        arranged.queries,
        arranged.keys,
        arranged.values,
        arranged.query_segments,
        arranged.key_segments,
    )
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return kernel(*arrays)
    queries, keys, values, *segments = arrays
    by_query = partition(queries.shape, ("batch", "heads", None, None), mesh)
    by_key = partition(keys.shape, ("batch", "kv_heads", None, None), mesh)
    if by_query != by_key:
        R = queries.shape[1] // keys.shape[1]
        keys, values = (jnp.repeat(x, R, axis=1) for x in (keys, values))
    rows = partition(segments[0].shape, ("batch", None), mesh)
    return jax.shard_map(
        kernel,
        in_specs=(by_query, by_query, by_query, rows, rows),
        out_specs=by_query,
        check_vma=False,
    )(queries, keys, values, *segments)
