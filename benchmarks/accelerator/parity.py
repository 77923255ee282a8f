"""Compares the device's attention kernel with plain attention in float32."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accelerator.shapes import model_size
from rlvr_jax.config import ModelConfig
from rlvr_jax.models.attention import KeyValues, reference_attention
from rlvr_jax.models.kernels import kernel_attention, select_kernel
from rlvr_jax.models.masks import completion_contexts

_PROMPTS, _GROUP_SIZE = 2, 4
_PROMPT_TOKENS, _NEW_TOKENS = 256, 512
_TOLERANCE = 2e-2  # bfloat16 rounds at 2^-8 of a number


def compare_kernel(shape: str) -> dict[str, Any]:
    """Returns how far the kernel is from plain attention: values and gradients.

    Both get the same bfloat16 numbers: completions after prompts of different lengths.
    An error is the norm of the difference divided by the norm of the reference. If the
    device has no kernel, the code around cuDNN's kernel runs with XLA's attention.
    """
    model = model_size(shape, compute_dtype="bfloat16").model
    chosen = select_kernel(model, window=0, length=_NEW_TOKENS)
    lengths_P = np.linspace(_PROMPT_TOKENS // 2, _PROMPT_TOKENS, _PROMPTS, dtype=int)
    mask_PS = jnp.asarray(np.arange(_PROMPT_TOKENS)[None] < lengths_P[:, None])
    (view,) = completion_contexts(
        model,
        mask_PS,
        jnp.arange(_NEW_TOKENS, dtype=jnp.int32),
        rows=_PROMPTS * _GROUP_SIZE,
        length=_NEW_TOKENS,
    ).values()
    arrays, weights = _draw_inputs(model)

    def by_plain(queries: Any, own: Any, prefix: Any) -> jax.Array:
        own, prefix = (KeyValues.from_projections(*pair) for pair in (own, prefix))
        return reference_attention(queries, own, view, prefix, config=model)

    def by_kernel(queries: Any, own: Any, prefix: Any) -> jax.Array:
        own, prefix = (KeyValues.from_projections(*pair) for pair in (own, prefix))
        return kernel_attention(
            "cudnn" if chosen == "plain" else chosen,
            queries,
            (own.keys, own.values),
            (prefix.keys, prefix.values),
            mask_PS,
            window=0,
            config=model,
            interpret=chosen == "plain",
        )

    with jax.default_matmul_precision("highest"):
        exact = jax.tree.map(lambda x: x.astype(jnp.float32), arrays)
        expected = _values_and_gradients(by_plain, exact, weights)
    value_error, *gradient_errors = map(
        _error, _values_and_gradients(by_kernel, arrays, weights), expected
    )
    return {
        "kernel": chosen,
        "value_error": value_error,
        "gradient_error": max(gradient_errors),
        "tolerance": _TOLERANCE,
        "passed": max(value_error, *gradient_errors) < _TOLERANCE,
    }


def _draw_inputs(model: ModelConfig) -> tuple[Any, jax.Array]:
    """Returns queries, own and the prompts' keys and values, and a loss's weights."""
    keys = jax.random.split(jax.random.key(0), 6)
    rows, N, K = _PROMPTS * _GROUP_SIZE, model.num_heads, model.num_kv_heads

    def draw(key: jax.Array, batch: int, length: int, heads: int) -> jax.Array:
        drawn = jax.random.normal(key, (batch, length, heads, model.head_dim))
        return drawn.astype(jnp.bfloat16)

    queries, weights = (draw(key, rows, _NEW_TOKENS, N) for key in keys[:2])
    own = [draw(key, rows, _NEW_TOKENS, K) for key in keys[2:4]]
    prefix = [draw(key, _PROMPTS, _PROMPT_TOKENS, K) for key in keys[4:]]
    return (queries, own, prefix), weights.astype(jnp.float32)


def _values_and_gradients(
    attention: Callable[..., jax.Array], arrays: Any, weights: jax.Array
) -> list[jax.Array]:
    """Returns attention's values, and the gradients of their weighted sum."""

    def loss(arrays: Any) -> tuple[jax.Array, jax.Array]:
        mixed = attention(*arrays)
        return (mixed.astype(jnp.float32) * weights).sum(), mixed

    gradients, values = jax.jit(jax.grad(loss, has_aux=True))(arrays)
    return [values, *jax.tree.leaves(gradients)]


def _error(ours: jax.Array, theirs: jax.Array) -> float:
    a, b = (np.asarray(x, np.float32) for x in (ours, theirs))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
