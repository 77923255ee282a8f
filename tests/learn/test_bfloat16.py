"""Gradients of a bfloat16 policy: where they are summed, types of products."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import OptimizerConfig
from rlvr_jax.learn.objectives import supervised_objective
from rlvr_jax.learn.update import Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.models.parameters import add_bias, einsum_float32, look_up
from rlvr_jax.types import Batch
from tests.support.policies import named, random_tokens, tiny_policy

BFLOAT16 = {"param_dtype": "bfloat16", "compute_dtype": "bfloat16"}
ALL_KINDS = {
    "num_layers": 1,
    "qkv_bias": True,
    "out_bias": True,
    "mlp_bias": True,
    "qk_norm": True,
    "use_post_norms": True,
    "tie_embeddings": False,
    "scale_embeddings": True,
    "attn_logit_softcap": 20.0,
}
KINDS = {
    "plain": {},
    "all_kinds": ALL_KINDS,
    "scanned": {"scan_layers": True, "qkv_bias": True, "remat": "block"},
    "chunked": {"attention_chunk_size": 3, "remat": "dots"},
}


def _batch(prompts_PS, completions_BT) -> Batch:
    """Returns a batch with weight 1 for every completion token."""
    (P, S), (B, T) = prompts_PS.shape, completions_BT.shape
    zeros_BT = np.zeros((B, T), np.float32)
    return Batch(
        prompt_tokens=prompts_PS,
        prompt_lengths=np.full(P, S, np.int32),
        tokens=completions_BT,
        lengths=np.full(B, T, np.int32),
        loss_weights=zeros_BT + 1,
        advantages=np.ones(B, np.float32),
        old_logprobs=zeros_BT,
        ref_logprobs=zeros_BT,
        bands=np.zeros(B, np.int32),
    )


def _updater(policy, logits_chunk_size: int) -> Updater:
    return Updater(
        nnx.graphdef(policy),
        supervised_objective,
        optimizer=OptimizerConfig(),
        total_steps=1,
        logits_chunk_size=logits_chunk_size,
    )


def _gradient(batch: Batch, *, logits_chunk_size: int = 1, **changes):
    """Returns the gradient of the log-likelihood, by dotted path, in float64."""
    policy = tiny_policy(**changes)
    grads, _ = _updater(policy, logits_chunk_size).gradient(
        nnx.state(policy), batch, SamplingParams.unmodified(), None
    )
    return {k: v.astype(np.float64) for k, v in named(grads).items()}


@functools.cache
def _repeated(kind: str, copies: int):
    """Returns the gradient of `copies` copies of a prompt and its 16 completions."""
    prompt, row = random_tokens(1, 3), np.full((1, 8), 5, np.int32)
    batch = _batch(prompt.repeat(copies, 0), row.repeat(16 * copies, 0))
    return _gradient(batch, **BFLOAT16, **KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_repeated_has_its_gradient_as_often(kind):
    """Checks every parameter; 8,192 completion tokens have one id.

    64 is a power of two, so only XLA's fusion of bfloat16 differs between the sizes.
    Sums in bfloat16 stop growing when a term is below half of their spacing. With such
    sums the frequent row's gradient was 0.5 to 0.8 of its value, and biases were off by
    3 to 10 %.
    """
    once, many = _repeated(kind, 1), _repeated(kind, 64)
    for path, gradient in once.items():
        error = np.linalg.norm(many[path] / 64 - gradient)
        assert error < 2.5e-2 * np.linalg.norm(gradient), path


GRADIENTS = jnp.asarray(
    1 + np.random.RandomState(0).standard_normal((64, 128, 16)), jnp.bfloat16
)
IDS = np.full((64, 128), 3, np.int32)
SUMS = {
    "look_up": lambda rows: look_up(rows, IDS),
    "add_bias": lambda rows: add_bias(jnp.zeros_like(GRADIENTS), rows[3]),
    # The same sums in bfloat16: the bound must refuse them.
    "index": lambda rows: rows[IDS],
    "plus": lambda rows: jnp.zeros_like(GRADIENTS) + rows[3][None, None],
}


@pytest.mark.parametrize("name", SUMS)
def test_a_gradient_over_8192_tokens_is_the_sum_in_float64(name):
    """Sums bfloat16 gradients with mean 1, to 1 %."""
    rows = jnp.zeros((7, 16), jnp.bfloat16)
    found = np.asarray(jax.vjp(SUMS[name], rows)[1](GRADIENTS)[0], np.float64)
    expected = np.asarray(GRADIENTS, np.float64).sum(axis=(0, 1))
    error = np.abs(found[3] / expected - 1).max()
    assert (error < 1e-2) == (name in ("look_up", "add_bias"))
    assert not found[[0, 1, 2, 4, 5, 6]].any()


def test_a_bias_is_added_as_the_dtype_adds():
    x, bias = GRADIENTS[:2], GRADIENTS[5, 0]
    found = add_bias(x, bias)
    np.testing.assert_array_equal(found, x + bias[None, None])
    assert found.dtype == jnp.bfloat16


def test_a_look_up_is_the_tables_rows():
    """With repeated ids, float32 stays exact: gradients add up to the counts."""
    table = jnp.arange(12, dtype=jnp.float32).reshape(4, 3)
    tokens = jnp.int32([[2, 2, 0]])
    np.testing.assert_array_equal(look_up(table, tokens), table[tokens])
    counted = jax.grad(lambda table: look_up(table, tokens).sum())(table)
    np.testing.assert_array_equal(counted[:, 0], [1, 0, 2, 0])


def test_the_output_layers_gradient_adds_up_over_chunks():
    """256 chunks of one position, or all positions at once."""
    tokens = np.full((1, 256), 5, np.int32)
    batch = _batch(random_tokens(1, 3), tokens)
    settings = {**BFLOAT16, "tie_embeddings": False, "num_layers": 1}
    in_chunks, at_once = (
        _gradient(batch, logits_chunk_size=size, **settings)["lm_head"]
        for size in (1, 256)
    )
    error = np.linalg.norm(in_chunks - at_once)
    assert error < 1e-2 * np.linalg.norm(at_once)


def _products(lowered: str) -> list[tuple[str, str]]:
    """Returns the operand dtypes of each product in a StableHLO text."""
    pattern = (
        r"stablehlo\.dot_general .*: \(tensor<([^>]*)>, tensor<([^>]*)>\) -> tensor<"
    )
    return [
        tuple(kind.split("x")[-1] for kind in found)
        for found in re.findall(pattern, lowered)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("param_dtype", ["float32", "bfloat16"])
def test_no_product_of_an_update_has_a_float32_operand(kind, param_dtype):
    """Forward, recomputed and backward. A TPU or GPU would run it in float32."""
    policy = tiny_policy(
        compute_dtype="bfloat16", param_dtype=param_dtype, **KINDS[kind]
    )
    batch = _batch(random_tokens(2, 3), random_tokens(4, 8))
    lowered = _updater(policy, 2).lower(
        nnx.state(policy), batch, SamplingParams.unmodified(), None
    )
    products = _products(lowered["gradient"]().as_text())
    # Seven weights, for prompts and completions, forward and two backward products.
    assert len(products) > 42
    assert set(products) == {("bf16", "bf16")}


def test_a_float32_policys_products_are_float32():
    policy = tiny_policy()
    batch = _batch(random_tokens(2, 3), random_tokens(4, 8))
    lowered = _updater(policy, 2).lower(
        nnx.state(policy), batch, SamplingParams.unmodified(), None
    )
    assert set(_products(lowered["gradient"]().as_text())) == {("f32", "f32")}


@pytest.mark.parametrize(
    ("formula", "left", "right"),
    [
        ("cd,vd->cv", (3, 4), (5, 4)),
        ("bkqh,bksh->bkqs", (2, 3, 4, 5), (2, 3, 6, 5)),
        ("bkqs,bksh->bkqh", (2, 3, 4, 6), (2, 3, 6, 5)),
    ],
)
def test_einsums_gradient_is_what_jax_derives(formula, left, right):
    random = np.random.RandomState(0)
    a, b = (jnp.float32(random.standard_normal(s)) for s in (left, right))

    def loss(einsum, a, b):
        return jnp.sin(einsum(formula, a, b)).sum()

    expected = jax.grad(loss, argnums=(1, 2))(jnp.einsum, a, b)
    found = jax.grad(loss, argnums=(1, 2))(einsum_float32, a, b)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
        found,
        expected,
    )
