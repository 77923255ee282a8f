"""Sizes as data, compared with the publishers' counts."""

import json

import jax
import pytest
from flax import nnx

from rlvr_jax.models import Transformer
from rlvr_jax.models.families import SIZES
from rlvr_jax.models.huggingface.config import read_model_config, to_hf_config
from rlvr_jax.models.masks import expand_layer_types

# From memory of the model cards; not checked against them here.
PARAMETERS = {
    "Qwen2.5-0.5B": 494_032_768,
    "Qwen2.5-1.5B": 1_543_714_304,
    "Qwen2.5-7B": 7_615_616_512,
    "Qwen2.5-Math-1.5B": 1_543_714_304,
    "Qwen2.5-Math-7B": 7_615_616_512,
    "Qwen3-0.6B": 596_049_920,
    "Qwen3-1.7B": 1_720_574_976,
    "Qwen3-8B": 8_190_735_360,
    "Llama-3.2-1B": 1_235_814_400,
    "Llama-3.2-3B": 3_212_749_824,
    "Llama-3.1-8B": 8_030_261_248,
    "deepseek-math-7b": 6_910_365_696,
    "Mistral-7B-v0.1": 7_241_732_096,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,  # of 4,300,079,472, without vision and projector
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_has_the_number_of_parameters_on_record(name):
    size = SIZES[name]
    policy = nnx.eval_shape(
        lambda: Transformer(size.model, size.vocab_size, nnx.Rngs(0))
    )
    leaves = jax.tree.leaves(nnx.state(policy))
    assert sum(leaf.size for leaf in leaves) == PARAMETERS[name]


@pytest.mark.parametrize("name", SIZES)
def test_a_size_comes_back_from_its_config_json(name, tmp_path):
    size = SIZES[name]
    settings = to_hf_config(size.model, vocab_size=size.vocab_size, extra={})
    (tmp_path / "config.json").write_text(json.dumps(settings))
    read = read_model_config(tmp_path, dtype="float32")
    assert expand_layer_types(read) == expand_layer_types(size.model)
    assert read.family == size.model.family
    assert read.sliding_window == size.model.sliding_window
    assert read.rope_factor == size.model.rope_factor
