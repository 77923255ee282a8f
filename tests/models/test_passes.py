"""One decoder and many ways through it, which must all compute the same function."""

import dataclasses
import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.models import Transformer
from rlvr_jax.models.attention import KeyValues, reference_attention
from rlvr_jax.models.masks import completion_contexts
from tests.support.policies import TINY, VOCAB_SIZE, named, random_tokens, tiny_policy

P, G, S, T = 2, 3, 5, 4
PROMPT_LENGTHS = np.array([5, 2], np.int32)
PROMPTS = random_tokens(P, S, seed=1)
COMPLETIONS = random_tokens(P * G, T, seed=2)

each_loop = pytest.mark.parametrize("scan_layers", [False, True])


def _compiled(policy: Transformer, function):
    """Returns function(policy, *args) as a jitted function of args."""
    graphdef, params = nnx.split(policy)
    jitted = jax.jit(lambda params, *args: function(nnx.merge(graphdef, params), *args))
    return functools.partial(jitted, params)


def _mask(lengths: np.ndarray, width: int) -> np.ndarray:
    return np.arange(width) < lengths[:, None]


def _prefix(policy: Transformer):
    return policy.prefill(jnp.asarray(PROMPTS), jnp.asarray(_mask(PROMPT_LENGTHS, S)))[
        1
    ]


def _extended(policy: Transformer, tokens: jax.Array) -> jax.Array:
    return policy.extend(tokens, _prefix(policy)).hidden


def _decoded(policy: Transformer, tokens: jax.Array) -> jax.Array:
    """Returns the completions' hidden states, computed one token at a time."""
    prefix, layers = _prefix(policy), policy.cast_layers()

    def step(cache, given):
        index, column = given
        hidden_BD, cache = policy.decode_step(
            column,
            jnp.full(column.shape, index),
            prefix,
            column=index,
            cache=cache,
            layers=layers,
        )
        return cache, hidden_BD

    columns = (jnp.arange(T, dtype=jnp.int32), tokens.T)
    _, hidden_TBD = jax.lax.scan(step, policy.init_cache(P * G, T), columns)
    return hidden_TBD.swapaxes(0, 1)


def _whole(policy: Transformer, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return policy.prefill(tokens, mask)[0].hidden


@functools.cache
def _read_whole() -> np.ndarray:
    """Returns the completions' hidden states, each row read from its prompt on."""
    joined, mask = np.zeros((P * G, S + T), np.int32), np.zeros((P * G, S + T), bool)
    starts = PROMPT_LENGTHS.repeat(G)
    for row, start in enumerate(starts):
        joined[row, :start] = PROMPTS[row // G, :start]
        joined[row, start : start + T] = COMPLETIONS[row]
        mask[row, : start + T] = True
    hidden_BTD = _compiled(tiny_policy(), _whole)(joined, mask)
    return np.stack(
        [hidden_BTD[row, start : start + T] for row, start in enumerate(starts)]
    )


@functools.cache
def _decoded_one_by_one(scan_layers: bool, compute_dtype: str) -> np.ndarray:
    policy = tiny_policy(scan_layers=scan_layers, compute_dtype=compute_dtype)
    return _compiled(policy, _decoded)(COMPLETIONS)


@each_loop
def test_reading_in_parts_is_reading_the_whole(scan_layers):
    """Reads the prompt, then the completion at once or token by token."""
    policy = tiny_policy(scan_layers=scan_layers)
    extended_BTD = _compiled(policy, _extended)(COMPLETIONS)
    np.testing.assert_allclose(extended_BTD, _read_whole(), rtol=0, atol=1e-5)
    decoded_BTD = _decoded_one_by_one(scan_layers, "float32")
    np.testing.assert_allclose(decoded_BTD, extended_BTD, rtol=0, atol=1e-5)


def _loss(policy: Transformer, tokens: jax.Array) -> jax.Array:
    """Returns a smooth function of everything that a pass computes."""
    mask = jnp.ones(tokens.shape, bool)
    logits_BTV = policy.logits(_whole(policy, tokens, mask))
    return jnp.square(jax.nn.log_softmax(logits_BTV)).mean()


@functools.cache
def _value_and_gradient(scan_layers: bool, remat: str) -> tuple[float, dict]:
    policy = tiny_policy(scan_layers=scan_layers, remat=remat)
    value, gradient = _compiled(policy, jax.value_and_grad(_loss))(PROMPTS)
    return float(value), named(nnx.state(gradient))


@pytest.mark.parametrize(
    ("scan_layers", "remat"), [(True, "none"), (True, "dots"), (False, "block")]
)
def test_layer_loop_and_rematerialization_change_neither_value_nor_gradient(
    scan_layers, remat
):
    value, gradient = _value_and_gradient(False, "none")
    other_value, other_gradient = _value_and_gradient(scan_layers, remat)
    assert other_value == pytest.approx(value, rel=1e-6)
    for name, expected in gradient.items():
        scale = np.abs(expected).max()
        assert scale > 0, name
        np.testing.assert_allclose(
            other_gradient[name], expected, rtol=0, atol=1e-5 * scale, err_msg=name
        )


@pytest.mark.parametrize(
    ("remat", "least", "most"), [("none", 3, 99), ("dots", 2, 2), ("block", 0, 0)]
)
def test_rematerialization_keeps_what_it_says(remat, least, most):
    """Of arrays as wide as the MLP, gate and up are products; the rest follows."""
    graphdef, params = nnx.split(tiny_policy(num_layers=1, remat=remat))

    def pullback(params):
        def loss(params):
            return _loss(nnx.merge(graphdef, params), jnp.asarray(PROMPTS))

        return jax.vjp(loss, params)[1]

    wide = [
        leaf
        for leaf in jax.tree.leaves(jax.eval_shape(pullback, params))
        if leaf.size == P * S * TINY.intermediate_size
        and leaf.shape[-1] == TINY.intermediate_size
    ]
    assert least <= len(wide) <= most


@each_loop
def test_every_product_contracts_one_axis(scan_layers):
    """Also in the backward pass: XLA on CPU copies operands to contract two axes."""
    graphdef, params = nnx.split(tiny_policy(scan_layers=scan_layers))

    def loss(params):
        policy = nnx.merge(graphdef, params)
        mask_PS = jnp.asarray(_mask(PROMPT_LENGTHS, S))
        hidden_PSD = _whole(policy, jnp.asarray(PROMPTS), mask_PS)
        return (policy.logits(hidden_PSD) ** 2).sum()

    program = jax.jit(jax.grad(loss)).lower(params).as_text()
    contracted = re.findall(r"contracting_dims = \[(.*?)\] x \[(.*?)\]", program)
    # A layer has seven matrices, and there are the head and attention's two products.
    assert len(contracted) >= 3 * 10
    assert {axes for pair in contracted for axes in pair} <= set("0123")


def test_the_angles_of_a_position_are_computed_once():
    """They are not repeated per row, head and layer: completions share S + T."""
    graphdef, params = nnx.split(tiny_policy())

    def run(params, tokens):
        return _extended(nnx.merge(graphdef, params), tokens)

    program = jax.jit(run).lower(params, jnp.asarray(COMPLETIONS)).as_text()
    for function in ("cosine", "sine"):
        shapes = re.findall(rf"stablehlo.{function} .*tensor<([\dx]+)xf32>", program)
        assert set(shapes) == {f"1x{n}x1x{TINY.head_dim}" for n in (S, S + T)}


@pytest.mark.parametrize("lift", [-200.0, 0.0, 200.0])
def test_attention_over_prompt_and_completion_is_one_softmax(lift):
    """The prompt's scores may be arbitrarily far from the completion's."""
    rng = np.random.default_rng(0)
    config = dataclasses.replace(TINY, num_heads=1, num_kv_heads=1, head_dim=4)
    query, own_key, own_value = rng.standard_normal((3, P * G, T, 1, 4))
    prefix_key, prefix_value = rng.standard_normal((2, P, S, 1, 4))
    query[..., 0], own_key[..., 0], prefix_key[..., 0] = 2.0, 0.0, lift
    mask = _mask(PROMPT_LENGTHS, S)
    context = completion_contexts(
        config, jnp.asarray(mask), jnp.arange(T), rows=P * G, length=T
    )["full"]
    mixed = reference_attention(
        jnp.float32(query),
        KeyValues.from_projections(jnp.float32(own_key), jnp.float32(own_value)),
        context,
        KeyValues.from_projections(jnp.float32(prefix_key), jnp.float32(prefix_value)),
        config=config,
    )
    for row in range(P * G):
        true = mask[row // G]
        for t in range(T):
            keys = np.r_[prefix_key[row // G, true, 0], own_key[row, : t + 1, 0]]
            values = np.r_[prefix_value[row // G, true, 0], own_value[row, : t + 1, 0]]
            scores = keys @ query[row, t, 0] / 2
            weights = np.exp(scores - scores.max())
            expected = weights @ values / weights.sum()
            np.testing.assert_allclose(mixed[row, t, 0], expected, atol=1e-4)


@each_loop
def test_a_tap_is_the_stream_after_its_layer(scan_layers):
    """If the model is cut off after a layer, that layer's stream is the last."""

    def tapped(taps, policy, tokens):
        passed = policy.extend(tokens, _prefix(policy), capture_layers=taps)
        return passed, tuple(map(policy.final_norm, passed.captured))

    deep = tiny_policy(scan_layers=scan_layers)
    passed, (last_BTD, first_BTD) = _compiled(deep, functools.partial(tapped, (1, 0)))(
        COMPLETIONS
    )
    np.testing.assert_allclose(last_BTD, passed.hidden, rtol=0, atol=1e-5)
    params = nnx.state(deep)
    params["blocks"] = jax.tree.map(lambda stack: stack[:1], params["blocks"])
    cut = tiny_policy(num_layers=1, scan_layers=scan_layers)
    nnx.update(cut, params)
    cut_passed, _ = _compiled(cut, functools.partial(tapped, (0,)))(COMPLETIONS)
    np.testing.assert_allclose(
        passed.captured[1], cut_passed.captured[0], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(first_BTD, cut_passed.hidden, rtol=0, atol=1e-5)


@each_loop
def test_a_pass_without_taps_carries_and_returns_no_stream_but_the_last(scan_layers):
    policy = tiny_policy(scan_layers=scan_layers)

    def streams(taps):
        """Returns how many [B, T, D] arrays leave the pass, and how many its scan."""

        def run(tokens):
            return policy.extend(tokens, _prefix(policy), capture_layers=taps)

        jaxpr = jax.make_jaxpr(run)(jnp.asarray(COMPLETIONS)).jaxpr
        carried = [
            sum(v.aval.shape == (P * G, T, TINY.hidden_size) for v in equation.outvars)
            for equation in jaxpr.eqns
            if equation.primitive.name == "scan"
        ]
        leaving = sum(
            v.aval.shape == (P * G, T, TINY.hidden_size) for v in jaxpr.outvars
        )
        return leaving, max(carried, default=0)

    scanned = scan_layers
    assert streams(()) == (1, 1 if scanned else 0)
    assert streams((0, 1)) == (3, 3 if scanned else 0)


def test_scanned_layers_read_the_cache_and_return_one_column():
    """XLA copies a cache that a scan both reads and writes, once in every layer."""
    policy = tiny_policy(scan_layers=True)

    def run(tokens, cache):
        return policy.decode_step(
            tokens,
            jnp.zeros(P * G, jnp.int32),
            _prefix(policy),
            column=jnp.int32(0),
            cache=cache,
            layers=policy.cast_layers(),
        )

    tokens = jnp.asarray(COMPLETIONS)[:, 0]
    jaxpr = jax.make_jaxpr(run)(tokens, policy.init_cache(P * G, T)).jaxpr
    *_, scan = [each for each in jaxpr.eqns if each.primitive.name == "scan"]
    cache = (2, P * G, TINY.num_kv_heads, T, TINY.head_dim)
    column = (2, P * G, TINY.num_kv_heads, 1, TINY.head_dim)
    assert [v.aval.shape for v in scan.invars].count(cache) == 2
    written = [v.aval.shape for v in scan.outvars]
    assert written.count(column) == 2
    assert cache not in written


@pytest.mark.parametrize("tap", [-1, 2])
def test_a_tap_that_no_layer_has_is_refused(tap):
    with pytest.raises(ValueError, match=rf"capture_layers=\({tap},\) must be in 0..1"):
        tiny_policy().prefill(
            jnp.asarray(PROMPTS), jnp.ones(PROMPTS.shape, bool), capture_layers=(tap,)
        )


@each_loop
def test_bfloat16_is_close_to_float32(scan_layers):
    """8 bits of mantissa give 0.4 % per rounding, some tens of roundings deep."""
    expected = _decoded_one_by_one(scan_layers, "float32")
    close = _decoded_one_by_one(scan_layers, "bfloat16")
    assert close.dtype == jnp.bfloat16
    error = np.abs(close.astype(np.float32) - expected).mean()
    assert 0 < error < 0.03 * expected.std()


def test_bfloat16_gradients_add_up_in_the_parameters_dtype():
    """A token that occurs n times gets n times its share, however large n is.

    A bfloat16 sum of 512 equal gradients would stop growing at 256.
    """
    tokens = jnp.full((512, 1), 5, jnp.int32)

    def stream(policy, share_B):
        passed, _ = policy.prefill(
            tokens, jnp.ones(tokens.shape, bool), capture_layers=(0,)
        )
        return (passed.captured[0].astype(jnp.float32).sum(axis=(1, 2)) * share_B).sum()

    policy = tiny_policy(num_layers=1, compute_dtype="bfloat16")
    gradient = _compiled(policy, jax.grad(stream))
    shares = {"one": np.eye(512)[0], "all": np.ones(512)}
    one, all_ = (
        named(nnx.state(gradient(share.astype(np.float32))))["embedding"][5]
        for share in shares.values()
    )
    np.testing.assert_allclose(all_, 512 * one, rtol=1e-2, atol=1.0)


def test_logits_are_float32_in_any_compute_dtype():
    policy = tiny_policy(num_layers=1, compute_dtype="bfloat16")
    shapes = jax.eval_shape(policy, jnp.asarray(PROMPTS), jnp.ones(PROMPTS.shape, bool))
    assert shapes == jax.ShapeDtypeStruct((P, S, VOCAB_SIZE), jnp.float32)


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_queries_taken_in_chunks_mix_the_same_values(chunk):
    """Values and gradients, of prompts and of completions, also in sliding layers."""
    sliding = {"layer_types": ("sliding", "full"), "sliding_window": 3}
    at_once, chunked = (
        tiny_policy(attention_chunk_size=width, **sliding) for width in (0, chunk)
    )
    weights = jnp.asarray(np.random.RandomState(0).standard_normal((P * G, T, 32)))

    def graded(policy: Transformer, tokens: jax.Array):
        graphdef, params = nnx.split(policy)

        def loss(params):
            hidden = _extended(nnx.merge(graphdef, params), tokens)
            return (hidden * weights.astype(jnp.float32)).sum(), hidden

        return jax.value_and_grad(loss, has_aux=True)(params)

    (_, hidden), grads = _compiled(at_once, graded)(jnp.asarray(COMPLETIONS))
    (_, found), found_grads = _compiled(chunked, graded)(jnp.asarray(COMPLETIONS))
    np.testing.assert_allclose(found, hidden, atol=1e-5)
    expected = named(grads)
    for name, array in named(found_grads).items():
        np.testing.assert_allclose(array, expected[name], atol=1e-4, err_msg=name)
