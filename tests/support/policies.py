"""Tiny policies, and passes through them, for tests."""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from job_jax.config import MeshConfig
from rlvr_jax.config import (
    Config,
    EvalConfig,
    LoRAConfig,
    ModelConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.models import Transformer, lora
from rlvr_jax.tasks import ChainMix, FiniteFieldTask

VOCAB_SIZE = 23
EOS = 1
TINY = ModelConfig(
    num_layers=2,
    hidden_size=32,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    max_seq_len=64,
)
_CHAINS = ChainMix(chain_lengths=(1,))
# A run with one layer on eight devices that begins with RL.
TINY_RUN = Config(
    task=FiniteFieldTask(modulus=5, sft=_CHAINS, train=_CHAINS, eval=_CHAINS),
    model=dataclasses.replace(TINY, num_layers=1, max_seq_len=128),
    mesh=MeshConfig(data=2, fsdp=2, tensor=2),
    sft=SFTConfig(steps=0),
    train=TrainConfig(batch_size=8, group_size=2),
)

# A policy with two layers of width 16 and eleven problems, each sampled twice: the
# last batch of eight is not full.
TINY_EVAL = Config(
    name="tiny",
    task=FiniteFieldTask(modulus=5, eval=ChainMix(chain_lengths=(1, 2))),
    model=ModelConfig(
        num_layers=2,
        hidden_size=16,
        intermediate_size=16,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    eval=EvalConfig(
        num_problems=11,
        num_samples=2,
        k=(1, 2),
        batch_size=8,
        bootstrap_resamples=100,
        sampling=SamplingConfig(max_new_tokens=8),
    ),
)


def tiny_policy(
    *, vocab_size: int = VOCAB_SIZE, eos_ids: tuple[int, ...] = (EOS,), **changes: Any
) -> Transformer:
    """Returns a policy with weights computed from their paths and shapes.

    Matrices have standard deviation 1/sqrt(D); scales of norms are around 1.
    """
    config = dataclasses.replace(TINY, **changes)

    def weight(path: str, shape: tuple[int, ...]) -> np.ndarray:
        seed = zlib.crc32(path.encode())
        noise = np.random.RandomState(seed).standard_normal(shape)
        return 1 + 0.2 * noise if "norm" in path else noise * config.hidden_size**-0.5

    return filled(config, vocab_size, weight, eos_ids=eos_ids)


def filled(
    config: ModelConfig,
    vocab_size: int,
    weight: Callable[[str, tuple[int, ...]], np.ndarray],
    *,
    eos_ids: tuple[int, ...] = (),
) -> Transformer:
    """Returns the policy with parameters weight(path, shape) at each dotted path."""

    def new() -> Transformer:
        return Transformer(config, vocab_size, nnx.Rngs(0), eos_ids=eos_ids)

    graphdef, params = nnx.split(nnx.eval_shape(new))
    values = [
        (
            path,
            param.replace(
                jax.device_put(  # unlike jnp.asarray, it compiles nothing
                    np.asarray(weight(".".join(path), param.shape), param.dtype)
                )
            ),
        )
        for path, param in nnx.to_flat_state(params)
    ]
    return nnx.merge(graphdef, nnx.from_flat_state(values))


class Adapted(NamedTuple):
    """A policy as graphdef and parameters, before and after adapters are added."""

    graphdef: Any
    base: PyTree
    changed: Any
    adapters: PyTree
    frozen: PyTree


def adapted(config: LoRAConfig, *, trained: bool = True, **changes: Any) -> Adapted:
    """Returns a tiny policy with adapters; with `trained`, B is random and not 0."""
    graphdef, base = nnx.split(tiny_policy(**changes))

    def adapt(base: PyTree) -> Transformer:
        return lora.add_adapters(nnx.merge(graphdef, base), config, jax.random.key(0))

    which = (lora.ADAPTERS, ...)
    adapters, frozen = jax.jit(lambda base: nnx.split(adapt(base), *which)[1:])(base)

    def random(x: jax.Array) -> jax.Array:
        drawn = np.random.RandomState(x.size).standard_normal(x.shape)
        return jnp.asarray(0.2 * drawn, x.dtype)

    return Adapted(
        graphdef=graphdef,
        base=base,
        changed=nnx.split(nnx.eval_shape(adapt, base), *which)[0],
        adapters=jax.tree.map(random, adapters) if trained else adapters,
        frozen=frozen,
    )


def named(params: PyTree) -> dict[str, np.ndarray]:
    """Returns parameters, or a tree of the same shape, by dotted path."""
    flat = nnx.to_flat_state(params)
    return {".".join(path): np.asarray(param[...]) for path, param in flat}


@functools.partial(jax.jit, static_argnames="graphdef")
def forward(graphdef: Any, params: PyTree, tokens: Any, mask: Any) -> jax.Array:
    """Returns policy(tokens, mask), compiled."""
    return nnx.merge(graphdef, params)(tokens, mask)


def random_tokens(rows: int, width: int, *, seed: int = 0) -> np.ndarray:
    """Returns random tokens without end-of-sequence."""
    drawn = np.random.RandomState(seed).randint(2, VOCAB_SIZE, (rows, width))
    return drawn.astype(np.int32)
