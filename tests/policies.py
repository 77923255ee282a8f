"""Tiny policies, and passes through them, for tests."""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rlvr_jax.config import ModelConfig
from rlvr_jax.models import Transformer

VOCAB_SIZE = 23
EOS = 1
TINY = ModelConfig(
    layers=2, width=32, mlp_width=48, heads=4, kv_heads=2, head_width=8, max_length=64
)


def tiny_policy(
    *, vocab_size: int = VOCAB_SIZE, eos_ids: tuple[int, ...] = (EOS,), **changes: Any
) -> Transformer:
    """Returns a policy whose weights are functions of their paths and shapes.

    Matrices have standard deviation 1/sqrt(D), scales of norms lie around 1.
    """
    config = dataclasses.replace(TINY, **changes)

    def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
        seed = zlib.crc32(path.encode())
        noise = np.random.RandomState(seed).standard_normal(shape)
        return 1 + 0.2 * noise if "norm" in path else noise * config.width**-0.5

    return filled(config, vocab_size, weight, eos_ids=eos_ids)


def filled(
    config: ModelConfig,
    vocab_size: int,
    weight: Callable[[str, tuple[int, ...]], np.ndarray],
    *,
    eos_ids: tuple[int, ...] = (),
) -> Transformer:
    """Returns the policy whose parameter at each dotted path is weight(path, shape)."""

    def new() -> Transformer:
        return Transformer(config, vocab_size, nnx.Rngs(0), eos_ids=eos_ids)

    graphdef, params = nnx.split(nnx.eval_shape(new))
    values = [
        (
            path,
            param.replace(
                jnp.asarray(weight(".".join(path), param.shape), param.dtype)
            ),
        )
        for path, param in nnx.to_flat_state(params)
    ]
    return nnx.merge(graphdef, nnx.from_flat_state(values))


def named(params: Any) -> dict[str, np.ndarray]:
    """Returns parameters, or what is shaped like them, by dotted path."""
    flat = nnx.to_flat_state(params)
    return {".".join(path): np.asarray(param[...]) for path, param in flat}


@functools.partial(jax.jit, static_argnames="graphdef")
def forward(graphdef: Any, params: Any, tokens: Any, mask: Any) -> jax.Array:
    """Returns policy(tokens, mask), compiled."""
    return nnx.merge(graphdef, params)(tokens, mask)


def random_tokens(rows: int, width: int, *, seed: int = 0) -> np.ndarray:
    """Returns tokens none of which is end-of-sequence."""
    drawn = np.random.RandomState(seed).randint(2, VOCAB_SIZE, (rows, width))
    return drawn.astype(np.int32)
