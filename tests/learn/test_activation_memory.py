"""The memory of a backward pass, compared with the compiler's report."""

import dataclasses
import functools
import re

import jax
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import LoRAConfig, LossConfig, OptimizerConfig
from rlvr_jax.learn.activation_memory import activation_bytes
from rlvr_jax.learn.batches import abstract_batch
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer, lora
from rlvr_jax.models.distribution import SamplingParams
from tests.support.policies import TINY

P, G, S, T, V = 2, 4, 32, 32, 97
_SHAPE = dataclasses.replace(
    TINY,
    hidden_size=64,
    intermediate_size=192,
    num_heads=2,
    num_kv_heads=1,
    head_dim=32,
    scan_layers=True,
    max_seq_len=S + T,
)


def _lower_gradient(model, rank):
    """Returns the gradient program of an update, for adapters only or all weights."""

    def make():
        policy = Transformer(model, V, nnx.Rngs(0))
        if rank:
            lora.add_adapters(policy, LoRAConfig(rank=rank), jax.random.key(1))
        return policy

    filters = (lora.ADAPTERS, ...) if rank else (...,)
    graphdef, params, *frozen = nnx.split(nnx.eval_shape(make), *filters)
    updater = Updater(
        graphdef,
        policy_objective(LossConfig()),
        optimizer=OptimizerConfig(),
        total_steps=1,
        logits_chunk_size=1,
        frozen=tuple(frozen),
    )
    batch = abstract_batch(
        num_prompts=P,
        group_size=G,
        prompt_width=S,
        width=T,
        with_external=False,
    )
    sampling = SamplingParams.unmodified()
    return updater.lower(params, batch, sampling, None)["gradient"]()


@functools.cache
def _temporaries(num_layers, rank, remat):
    model = dataclasses.replace(_SHAPE, num_layers=num_layers, remat=remat)
    memory = _lower_gradient(model, rank).compile().memory_analysis()
    return memory.temp_size_in_bytes


@pytest.mark.parametrize(
    ("rank", "remat"), [(2, "none"), (0, "none"), (2, "dots"), (2, "block")]
)
def test_the_estimate_is_near_what_the_compiler_reserves(rank, remat):
    """Adds six layers; a full update also keeps those layers' gradients."""
    grown = _temporaries(8, rank, remat) - _temporaries(2, rank, remat)
    model = dataclasses.replace(_SHAPE, num_layers=6, remat=remat)
    estimate = P * activation_bytes(model, rows=G, prompt_width=S, width=T)
    D, F, heads = 64, 192, (2 * 2 + 2 * 1) * 32
    gradients = 0 if rank else 6 * 4 * D * (heads + 3 * F)
    assert 0.6 * estimate < grown - gradients < 1.3 * estimate


@pytest.mark.parametrize("rank", [0, 2])
def test_an_update_of_adapters_makes_no_gradient_of_a_frozen_matrix(rank):
    """A gradient of the gate is a product [D, F]; only a full update has one."""
    program = _lower_gradient(dataclasses.replace(_SHAPE, num_layers=2), rank).as_text()
    results = re.findall(r"dot_general.*-> tensor<([\dx]+)xf32>", program)
    made = {shape for shape in results if shape in ("64x192", "192x64", f"{V}x64")}
    assert made == (set() if rank else {"64x192", "192x64", f"{V}x64"})


@pytest.mark.parametrize("rank", [0, 2])
def test_no_update_holds_the_logits_of_all_positions(rank):
    program = _lower_gradient(dataclasses.replace(_SHAPE, num_layers=2), rank).as_text()
    shapes = re.findall(rf"tensor<((?:\d+x)+){V}xf32>", program)
    sizes = [np.prod([int(n) for n in lead.split("x") if n]) for lead in shapes]
    assert P * G in sizes
    assert max(sizes) < P * G * T
