"""Every family's logits and greedy tokens, compared with Hugging Face's."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.models import Transformer, load_hf
from rlvr_jax.sampler import generate
from tests.golden.family_models import LENGTHS, MODELS, NEW_TOKENS, POSITIONS, padded
from tests.golden.family_models import tokens as rows
from tests.support.hub import GOLDEN, written
from tests.support.policies import forward

each_family = pytest.mark.parametrize("family", MODELS)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """Returns each family's policy, loaded once, with either layer loop."""
    root = tmp_path_factory.mktemp("families")

    @functools.cache
    def of(family: str, scan_layers: bool = False) -> Transformer:
        if not scan_layers:
            return load_hf(written(root / family, family))
        plain = of(family)
        config = dataclasses.replace(plain.config, scan_layers=scan_layers)
        other = nnx.eval_shape(
            lambda: Transformer(config, plain.vocab_size, nnx.Rngs(0))
        )
        return nnx.merge(nnx.graphdef(other), nnx.state(plain))

    return of


def _logits(policy: Transformer, side: str) -> list[np.ndarray]:
    """Returns each row's logits at its true tokens."""
    tokens_BT, mask_BT = padded(side)
    logits_BTV = np.asarray(forward(*nnx.split(policy), tokens_BT, mask_BT))
    assert np.isfinite(logits_BTV).all()
    return [row[true] for row, true in zip(logits_BTV, mask_BT, strict=True)]


@each_family
@pytest.mark.parametrize(("side", "scan_layers"), [("left", False), ("right", True)])
def test_logits_are_hugging_faces_beyond_any_window(family, side, scan_layers, loaded):
    found = _logits(loaded(family, scan_layers), side)
    for row, at, expected in zip(
        found, POSITIONS, GOLDEN[family]["logits"], strict=True
    ):
        np.testing.assert_allclose(row[list(at)], expected, rtol=0, atol=1e-4)


@each_family
def test_greedy_tokens_are_hugging_faces(family, loaded):
    """64 tokens in the cache, after prompts of two lengths; windows slide over both."""
    rollouts = generate(
        loaded(family), rows(), max_new_tokens=NEW_TOKENS, temperature=0.0
    )
    np.testing.assert_array_equal(rollouts.tokens, GOLDEN[family]["greedy"])


def _completions(policy: Transformer, tokens_BT: jax.Array) -> tuple:
    """Returns completions' hidden states by `extend`, and by `decode` one by one."""
    prompts_PS, mask_PS = map(jnp.asarray, padded("left"))
    _, prefix = policy.prefill(prompts_PS.astype(jnp.int32), mask_PS)
    extended_BTD = policy.extend(tokens_BT, prefix).hidden
    layers = policy.cast_layers()

    def step(cache, given):
        index, column_B = given
        hidden_BD, cache = policy.decode_step(
            column_B,
            jnp.full(column_B.shape, index),
            prefix,
            column=index,
            cache=cache,
            layers=layers,
        )
        return cache, hidden_BD

    B, T = tokens_BT.shape
    columns = (jnp.arange(T, dtype=jnp.int32), tokens_BT.T)
    _, decoded_TBD = jax.lax.scan(step, policy.init_cache(B, T), columns)
    return extended_BTD, decoded_TBD.swapaxes(0, 1)


@each_family
@pytest.mark.parametrize(
    "scan_layers", [False, pytest.param(True, marks=pytest.mark.slow)]
)
def test_completions_of_a_shared_prompt_are_as_read_whole(family, scan_layers, loaded):
    """Two completions of each prompt, longer than any window, follow left padding."""
    policy = loaded(family, scan_layers)
    T, G = 9, 2
    completions = np.random.RandomState(3).randint(1, 61, (len(LENGTHS) * G, T))
    completions = completions.astype(np.int32)
    width = max(LENGTHS) + T
    whole, mask = np.zeros((len(completions), width), np.int32), []
    for row, completion in enumerate(completions):
        start = LENGTHS[row // G]
        whole[row, : start + T] = [*rows()[row // G], *completion]
        mask.append(np.arange(width) < start + T)

    @jax.jit
    def passes(params):
        policy_ = nnx.merge(nnx.graphdef(policy), params)
        read, _ = policy_.prefill(jnp.asarray(whole), jnp.asarray(np.stack(mask)))
        return read.hidden, *_completions(policy_, jnp.asarray(completions))

    read_BTD, extended_BTD, decoded_BTD = passes(nnx.state(policy))
    for row, read_TD in enumerate(np.asarray(read_BTD)):
        start = LENGTHS[row // G]
        expected_TD = read_TD[start : start + T]
        np.testing.assert_allclose(extended_BTD[row], expected_TD, rtol=0, atol=1e-4)
        np.testing.assert_allclose(decoded_BTD[row], expected_TD, rtol=0, atol=1e-4)
