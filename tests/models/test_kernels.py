"""Attention kernels equal plain attention: values, gradients, padding, windows, heads.

Splash runs interpreted. For cuDNN, XLA runs the call with the same arguments.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from job_jax.schema import ConfigError
from rlvr_jax.models.attention import KeyValues, reference_attention
from rlvr_jax.models.kernels import kernel_attention, select_kernel
from rlvr_jax.models.masks import completion_contexts, prompt_contexts
from tests.support.policies import TINY

P, G, S, T = 2, 2, 5, 6
N, K, H = 4, 2, 8
TRUE = {
    "right": np.array([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]], bool),
    "left": np.array([[0, 1, 1, 1, 1], [0, 0, 0, 1, 1]], bool),
}


def _config(window: int, **changes):
    kinds = ("sliding",) if window else ("full",)
    return dataclasses.replace(
        TINY, layer_types=kinds, sliding_window=window, **changes
    )


def _arrays(rows: int, length: int, heads: int, count: int) -> list[jax.Array]:
    random = np.random.RandomState(heads + length)
    shape = (rows, length, heads, H)
    return [
        jnp.asarray(random.standard_normal(shape), jnp.float32) for _ in range(count)
    ]


def _both(kernel, config, view, queries, own, prefix, true):
    """Returns values and gradients of plain attention and of the kernel.

    Only true tokens count; values of padding are ignored.
    """
    (weights,) = _arrays(queries.shape[0], queries.shape[1], N, 1)
    weights = jnp.where(true[:, :, None, None], weights, 0.0)

    def stored(pair):
        return None if pair is None else KeyValues.from_projections(*pair)

    def by_plain(queries, own, prefix):
        return reference_attention(
            queries, stored(own), view, stored(prefix), config=config
        )

    def by_kernel(queries, own, prefix):
        pairs = (
            None if x is None else (x.keys, x.values)
            for x in (stored(own), stored(prefix))
        )
        return kernel_attention(
            kernel,
            queries,
            *pairs,
            view.token_mask,
            window=view.window,
            config=config,
            interpret=True,
        )

    found = []
    for attention in (by_plain, by_kernel):

        def loss(arrays, attention=attention):
            mixed = attention(*arrays)
            return (mixed * weights).sum(), mixed

        grads, mixed = jax.jit(jax.grad(loss, has_aux=True))((queries, own, prefix))
        found.append((jnp.where(true[:, :, None, None], mixed, 0.0), grads))
    return found


CASES = [
    ("splash", "right", 0, {}),
    ("splash", "left", 3, {"attn_logit_softcap": 2.0, "query_pre_attn_scalar": 5.0}),
    ("cudnn", "left", 0, {"query_pre_attn_scalar": 5.0}),
    ("cudnn", "right", 3, {}),
]


@pytest.mark.parametrize(("kernel", "side", "window", "changes"), CASES)
def test_whole_sequences(kernel, side, window, changes):
    config, true = _config(window, **changes), TRUE[side]
    (view,) = prompt_contexts(config, jnp.asarray(true)).values()
    (queries,), own = _arrays(P, S, N, 1), _arrays(P, S, K, 2)
    ours, theirs = _both(kernel, config, view, queries, own, None, true)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6, rtol=0), ours, theirs
    )


@pytest.mark.parametrize(("kernel", "side", "window", "changes"), CASES)
def test_completions_of_a_shared_prompt(kernel, side, window, changes):
    config, true = _config(window, **changes), jnp.asarray(TRUE[side])
    (view,) = completion_contexts(
        config, true, jnp.arange(T, dtype=jnp.int32), rows=P * G, length=T
    ).values()
    (queries,), own = _arrays(P * G, T, N, 1), _arrays(P * G, T, K, 2)
    prefix = _arrays(P, S, K, 2)
    whole = np.ones((P * G, T), bool)
    ours, theirs = _both(kernel, config, view, queries, own, prefix, whole)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6, rtol=0), ours, theirs
    )


@pytest.mark.parametrize("tensor", [2, 4])
def test_devices_compute_their_rows_and_their_heads(tensor):
    # Two key heads over four devices: each query head has its own copy of a key head.
    config, true = _config(0), TRUE["right"]
    (view,) = prompt_contexts(config, jnp.asarray(true)).values()
    (queries,), own = _arrays(P, S, N, 1), _arrays(P, S, K, 2)
    mesh = make_mesh(MeshConfig(data=2, fsdp=4 // tensor, tensor=tensor))
    with jax.set_mesh(mesh):
        ours, theirs = _both("cudnn", config, view, queries, own, None, true)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6, rtol=0), ours, theirs
    )


def test_cpu_is_plain_unless_told_otherwise():
    assert select_kernel(_config(0), window=0, length=512) == "plain"
    asked = _config(0, attention="splash")
    assert select_kernel(asked, window=0, length=1) == "plain"  # a decoding step
    with pytest.raises(ConfigError, match="splash is impossible: it does not run on"):
        select_kernel(asked, window=0, length=512)


@pytest.mark.parametrize(
    ("platform", "changes", "window", "kernel"),
    [
        ("tpu", {}, 0, "splash"),
        ("tpu", {"attn_logit_softcap": 50.0}, 7, "splash"),
        ("tpu", {}, None, "plain"),  # scanned layers of two kinds
        ("gpu", {}, 0, "plain"),  # float32
        ("gpu", {"compute_dtype": "bfloat16"}, 7, "cudnn"),
        ("gpu", {"compute_dtype": "bfloat16", "attn_logit_softcap": 50.0}, 0, "plain"),
        ("gpu", {"compute_dtype": "bfloat16", "head_dim": 256}, 0, "plain"),
    ],
)
def test_auto_takes_the_kernel_that_can(platform, changes, window, kernel, monkeypatch):
    monkeypatch.setattr("rlvr_jax.models.kernels.mesh_platform", lambda: platform)
    config = _config(0, **changes)
    assert select_kernel(config, window=window, length=512) == kernel
    if kernel == "plain":
        name = {"tpu": "splash", "gpu": "cudnn"}[platform]
        asked = dataclasses.replace(config, attention=name)
        with pytest.raises(ConfigError, match=f"attention={name} is impossible: "):
            select_kernel(asked, window=window, length=512)


@pytest.mark.parametrize(("length", "kernel"), [(127, "plain"), (128, "splash")])
def test_auto_takes_no_kernel_for_less_than_a_block(length, kernel, monkeypatch):
    monkeypatch.setattr("rlvr_jax.models.kernels.mesh_platform", lambda: "tpu")
    assert select_kernel(_config(0), window=0, length=length) == kernel
    asked = _config(0, attention="splash")
    assert select_kernel(asked, window=0, length=length) == "splash"
