"""Decoding as in nano-vllm's published benchmark, with the sequences of `workload`."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from benchmarks.accelerator.roofline import decode_bytes
from benchmarks.accelerator.shapes import model_size, new_policy
from benchmarks.accelerator.timing import peak_memory, time_call
from benchmarks.accelerator.workload import (
    EOS_IDS,
    NUM_REAL_TOKENS,
    Workload,
    as_prompts,
)
from benchmarks.job import FINAL_NORM_SCALE
from rlvr_jax.config import SamplingConfig
from rlvr_jax.models import ModelSize, Transformer
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.sampler import sample
from rlvr_jax.types import Prompts

_TEMPERATURE = 0.6  # as in the published benchmark


def measure_decoding(
    shape: str, workload: Workload, *, batch: int, repeats: int
) -> dict[str, Any]:
    """Returns tokens and seconds of sampling the workload, `batch` rows at a time.

    `prefill` is the pass over the prompts, timed separately. The sampler runs it too,
    so decoding takes the difference of the two medians. Layers are unrolled, because in
    a scan each step would copy a layer's weights before it reads them.
    """
    size = model_size(shape)
    graphdef, params = _draw_policy(size)
    prompts = jax.device_put(as_prompts(workload, vocab_size=size.vocab_size))
    sampling = SamplingParams.from_config(
        SamplingConfig(
            max_new_tokens=workload.limit + 1,
            min_new_tokens=workload.limit,
            temperature=_TEMPERATURE,
        )
    )

    def run() -> Any:
        return sample(
            graphdef,
            params,
            prompts,
            sampling,
            key=jax.random.key(0),
            weight_version=jnp.int32(0),
            num_samples=1,
            max_new_tokens=workload.limit,
            num_slots=batch,
        )

    rollouts, sampled = time_call(run, repeats=repeats)
    lengths = np.asarray(jax.device_get(rollouts.lengths))
    del rollouts
    _, read = time_call(lambda: _prefill(graphdef, params, prompts), repeats=repeats)
    prompt_lengths = [len(prompt) for prompt in workload.prompts]
    return {
        "sequences": len(lengths),
        "batch": batch,
        "prompt_tokens": sum(prompt_lengths),
        "tokens": int(lengths.sum()),
        "planned_tokens": sum(workload.new_tokens),
        "bytes": decode_bytes(
            size.model,
            size.vocab_size,
            prompt_lengths=prompt_lengths,
            new_tokens=lengths.tolist(),
            slots=batch,
        ),
        "sample": sampled,
        "prefill": read,
        "num_parameters": sum(math.prod(x.shape) for x in jax.tree.leaves(params)),
        "peak_memory": peak_memory(),
    }


def _draw_policy(size: ModelSize) -> tuple[Any, Any]:
    """Returns a policy that draws its few real tokens with equal probability."""

    def new() -> Transformer:
        policy = new_policy(size, eos_ids=EOS_IDS, num_real_tokens=NUM_REAL_TOKENS)
        policy.final_norm.scale[...] *= FINAL_NORM_SCALE
        return policy

    return nnx.graphdef(nnx.eval_shape(new)), jax.jit(lambda: nnx.state(new()))()


@functools.partial(jax.jit, static_argnames="graphdef")
def _prefill(graphdef: Any, params: PyTree, prompts: Prompts) -> Any:
    """Returns the last hidden states of the prompts, and all keys and values."""
    policy: Transformer = nnx.merge(graphdef, params)
    activations, prefix = policy.prefill(prompts.tokens, prompts.mask)
    return activations.hidden[:, -1], prefix.key_values
