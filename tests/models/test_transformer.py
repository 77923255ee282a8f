"""The policy's logits: with padding, and compared with two other implementations."""

import dataclasses
import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import ModelConfig
from rlvr_jax.models import Transformer
from tests.golden.llama_weights import SIZES, TOKENS, VOCAB_SIZE, llama_weights
from tests.support.policies import (
    TINY,
    filled,
    forward,
    named,
    random_tokens,
    tiny_policy,
)

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "llama_logits.json").read_text()
)

each_loop = pytest.mark.parametrize("scan_layers", [False, True])
each_kind = pytest.mark.parametrize(
    ("scan_layers", "tied"), [(False, True), (True, False)]
)


@pytest.mark.parametrize(
    ("tokens", "mask", "message"),
    [
        ([4, 5], [True, True], "tokens (2,) and mask (2,); both must be [B, T]"),
        ([[4, 5]], [[True]], "tokens (1, 2) and mask (1, 1); both must be [B, T]"),
        (
            [[4, 500]],
            [[True, True]],
            "tokens holds the id 500; the vocabulary has 0 to",
        ),
        ([[-1, 4]], [[True, True]], "tokens holds the id -1; the vocabulary has 0 to"),
        ([[0.5]], [[True]], "tokens holds float32; it must hold token ids"),
    ],
)
def test_invalid_token_batches_are_refused(tokens, mask, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        tiny_policy()(np.array(tokens), np.array(mask))


def test_padding_may_hold_any_id():
    policy, mask = tiny_policy(), np.array([[True, False]])
    found = policy(np.array([[4, -100]]), mask)
    np.testing.assert_array_equal(found[:, 0], policy([[4, 0]], mask)[:, 0])


def _reference(parameters: dict, config: ModelConfig, tokens: np.ndarray) -> np.ndarray:
    """Returns the logits [T, V] of one sequence from the formulas, in float64."""
    w = {name: np.asarray(array, np.float64) for name, array in parameters.items()}
    half = config.head_dim // 2
    angle_TI = np.arange(len(tokens))[:, None] / config.rope_theta ** (
        np.arange(half) / half
    )
    cos_TI, sin_TI = np.cos(angle_TI)[:, None], np.sin(angle_TI)[:, None]

    def norm(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * scale

    def turn(x_TNH):
        a, b = x_TNH[..., :half], x_TNH[..., half:]
        return np.concatenate([a * cos_TI - b * sin_TI, b * cos_TI + a * sin_TI], -1)

    x_TD = w["embedding"][tokens]
    for layer in range(config.num_layers):
        block = {k.removeprefix("blocks."): v[layer] for k, v in w.items() if "b" in k}
        normed_TD = norm(x_TD, block["attention_norm.scale"])
        query_TNH, key_TKH, value_TKH = (
            np.einsum("td,dnh->tnh", normed_TD, block[name])
            for name in ("query", "key", "value")
        )
        query_TNH, key_TKH = turn(query_TNH), turn(key_TKH)
        for head in range(config.num_heads):
            shared = head * config.num_kv_heads // config.num_heads
            scores_TS = query_TNH[:, head] @ key_TKH[:, shared].T
            scores_TS = np.exp(scores_TS / np.sqrt(config.head_dim))
            weights_TS = np.tril(scores_TS)
            weights_TS /= weights_TS.sum(-1, keepdims=True)
            x_TD = x_TD + weights_TS @ value_TKH[:, shared] @ block["out"][head]
        normed_TD = norm(x_TD, block["mlp_norm.scale"])
        gate_TF = normed_TD @ block["gate"]
        silu_TF = gate_TF / (1 + np.exp(-gate_TF))
        x_TD = x_TD + silu_TF * (normed_TD @ block["up"]) @ block["down"]
    head_VD = w["lm_head"] if "lm_head" in w else w["embedding"]
    return norm(x_TD, w["final_norm.scale"]) @ head_VD.T


@each_loop
def test_padding_on_either_side_changes_no_logit_of_a_true_token(scan_layers):
    """The rows are one sequence cut to n tokens, each with several paddings.

    By causality their logits equal the first n of the whole sequence.
    """
    sequence = random_tokens(1, 9)[0]
    rows, masks, truths = [], [], []
    for length in (9, 6, 3, 1):
        for true in (slice(9 - length, None), slice(length)):
            rows.append(np.full(9, 7))
            masks.append(np.zeros(9, bool))
            rows[-1][true], masks[-1][true] = sequence[:length], True
            truths.append(true)
    graphdef, params = nnx.split(tiny_policy(scan_layers=scan_layers))
    logits_BTV = np.asarray(forward(graphdef, params, np.stack(rows), np.stack(masks)))
    assert logits_BTV.dtype == np.float32
    assert np.isfinite(logits_BTV).all()
    for logits_TV, mask_T, true in zip(logits_BTV, masks, truths, strict=True):
        expected_TV = logits_BTV[0, : mask_T.sum()]
        np.testing.assert_allclose(logits_TV[true], expected_TV, rtol=0, atol=1e-5)


@each_kind
def test_float64_formulas_agree(scan_layers, tied):
    policy = tiny_policy(scan_layers=scan_layers, tie_embeddings=tied)
    tokens = random_tokens(3, 6)
    graphdef, params = nnx.split(policy)
    logits_BTV = forward(graphdef, params, tokens, np.ones(tokens.shape, bool))
    for logits_TV, row in zip(logits_BTV, tokens, strict=True):
        expected_TV = _reference(named(params), policy.config, row)
        np.testing.assert_allclose(logits_TV, expected_TV, rtol=0, atol=1e-4)


@each_kind
def test_hugging_faces_llama_agrees(scan_layers, tied):
    config = ModelConfig(**SIZES, tie_embeddings=tied, scan_layers=scan_layers)
    weights = llama_weights(tied=tied)
    policy = filled(
        config, VOCAB_SIZE, lambda path, shape: weights[path].reshape(shape)
    )
    graphdef, params = nnx.split(policy)
    assert named(params).keys() == weights.keys()
    tokens = np.array(TOKENS)
    logits_BTV = forward(graphdef, params, tokens, np.ones(tokens.shape, bool))
    expected_BTV = GOLDEN["logits"]["tied" if tied else "untied"]
    np.testing.assert_allclose(logits_BTV, expected_BTV, rtol=0, atol=1e-4)


def test_numpy_and_jax_arrays_serve_alike():
    policy = tiny_policy(num_layers=1)
    tokens = random_tokens(2, 3)
    mask = np.ones(tokens.shape, bool)
    from_numpy = policy(tokens.astype(np.int64), mask)
    from_jax = policy(jnp.asarray(tokens), jnp.asarray(mask))
    assert isinstance(from_numpy, jax.Array)
    np.testing.assert_array_equal(from_numpy, from_jax)


def test_weights_are_drawn_from_the_seed_at_the_scale_of_their_fan_in():
    @jax.jit
    def weights(seed):
        return nnx.state(Transformer(TINY, 29, nnx.Rngs(jax.random.key(seed))))

    @jax.jit
    def half_as_large(seed):
        config = dataclasses.replace(TINY, init_scale=0.5)
        return nnx.state(Transformer(config, 29, nnx.Rngs(jax.random.key(seed))))

    drawn, other = named(weights(0)), named(weights(1))
    half = named(half_as_large(0))
    np.testing.assert_allclose(half["embedding"], drawn["embedding"] / 2, rtol=1e-6)
    assert not np.array_equal(drawn["embedding"], other["embedding"])
    layers = drawn["blocks.down"]
    assert not np.array_equal(layers[0], layers[1])
    # 2 * 48 * 32 numbers with variance 1/48: their std has a standard error of 1.3 %.
    assert layers.std() == pytest.approx(48**-0.5, rel=0.05)
    assert (drawn["blocks.mlp_norm.scale"] == 1).all()
