"""Adapters through qwix: no effect at first, then W + (alpha / rank) A B; W fixed."""

import functools

import jax
import numpy as np
import pytest
from flax import nnx

from job_jax.schema import ConfigError
from rlvr_jax.config import LoRAConfig
from rlvr_jax.models import lora
from tests.support.policies import adapted, forward, named, random_tokens

TOKENS = random_tokens(2, 9)
MASK = np.arange(9) < np.array([[9], [6]])
SOME = LoRAConfig(rank=3, alpha=6.0, target_modules=("q_proj", "o_proj", "down_proj"))


def test_new_adapters_change_no_bit_of_the_logits():
    graphdef, base, changed, adapters, frozen = adapted(
        SOME, trained=False, qkv_bias=True
    )
    before = forward(graphdef, base, TOKENS, MASK)
    after = forward(changed, nnx.merge_state(adapters, frozen), TOKENS, MASK)
    np.testing.assert_array_equal(after, before)
    drawn = {name for name, x in named(adapters).items() if x.any()}
    assert drawn == {f"blocks.{n}.weight_lora_a" for n in ("query", "out", "down")}
    assert abs(named(adapters)["blocks.down.weight_lora_a"]).max() < 48**-0.5


def test_every_matrix_of_every_layer_has_separate_draws():
    """k_proj and v_proj have one shape in two layers: four draws, all different."""
    config = LoRAConfig(rank=3, target_modules=("k_proj", "v_proj"))
    drawn = named(adapted(config, trained=False).adapters)
    layers = [
        layer
        for name in ("key", "value")
        for layer in drawn[f"blocks.{name}.weight_lora_a"]
    ]
    assert {layer.shape for layer in layers} == {(32, 3)}
    assert len({layer.tobytes() for layer in layers}) == 4


def test_adapters_are_float32_with_bfloat16_weights():
    """Steps of 1e-4 from 0.1 are lost in bfloat16: its numbers there are 5e-4 apart."""
    graphdef, base, changed, adapters, frozen = adapted(
        SOME, trained=False, param_dtype="bfloat16", compute_dtype="bfloat16"
    )
    assert {str(x.dtype) for x in named(base).values()} >= {"bfloat16"}
    assert {str(x.dtype) for x in named(adapters).values()} == {"float32"}
    np.testing.assert_array_equal(
        forward(changed, nnx.merge_state(adapters, frozen), TOKENS, MASK),
        forward(graphdef, base, TOKENS, MASK),
    )


def test_in_nf4_sixty_four_numbers_of_a_column_share_a_scale():
    """A large number coarsens the first 64 rows of its column and nothing else."""
    config = LoRAConfig(rank=1, target_modules=("q_proj",), quantize="nf4")
    graphdef, base, _, adapters, _ = adapted(
        config, trained=False, num_layers=1, intermediate_size=128
    )
    weight = base["blocks"]["down"]
    weight[...] = weight[...].at[:, 0].set(100.0)
    old = named(base)["blocks.down"][0]
    merge = functools.partial(lora.merge_adapters, graphdef, config=config)
    new = named(jax.jit(merge)(base, adapters=adapters))["blocks.down"][0]
    assert old.shape == new.shape == (128, 32)
    assert (new[1:64] == 0).all()
    gap = abs(new - old)[64:] / abs(old[64:]).max(axis=0)
    assert 0 < gap.max() < 0.16  # nf4's widest step is 0.28


@pytest.mark.parametrize(
    ("quantize", "scan_layers"),
    [("none", False), ("none", True), ("int8", False), ("nf4", True)],
)
def test_adapters_are_worth_their_product_added_to_the_weights(quantize, scan_layers):
    config = LoRAConfig(
        rank=3, alpha=6.0, target_modules=SOME.target_modules, quantize=quantize
    )
    graphdef, base, changed, adapters, frozen = adapted(config, scan_layers=scan_layers)
    through = forward(changed, nnx.merge_state(adapters, frozen), TOKENS, MASK)
    merged = jax.jit(lambda b, a: lora.merge_adapters(graphdef, b, a, config))(
        base, adapters
    )
    np.testing.assert_allclose(
        through[MASK], forward(graphdef, merged, TOKENS, MASK)[MASK], atol=1e-5, rtol=0
    )
    old, new = named(base), named(merged)
    a, b = (named(adapters)[f"blocks.out.weight_lora_{x}"] for x in "ab")
    if quantize == "none":
        change = (6.0 / 3) * np.einsum("lxr,lry->lxy", a, b).reshape(2, 4, 8, 32)
        np.testing.assert_allclose(
            new["blocks.out"] - old["blocks.out"], change, atol=1e-6
        )
        assert (new["blocks.gate"] == old["blocks.gate"]).all()
        return
    # int8 of a column rounds by half a step of max / 127; nf4's widest step is 0.28.
    gap = abs(new["blocks.gate"] - old["blocks.gate"])
    largest = abs(old["blocks.gate"]).max(axis=1, keepdims=True)
    step = {"int8": 0.51 / 127, "nf4": 0.16}[quantize]
    assert 0 < (gap / largest).max() < step


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"quantize": "int8"}, "quantize=int8 without adapters"),
        ({"alpha": 2.0}, "alpha=2.0 without adapters"),
        ({"rank": 2, "target_modules": ("q_proj", "q_proj")}, "repeats a module"),
    ],
)
def test_settings_that_would_do_nothing_are_refused(changes, told):
    with pytest.raises(ConfigError, match=told):
        LoRAConfig(**changes)
