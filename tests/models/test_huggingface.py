"""Checkpoints: reading, writing and refusals."""

import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from job_jax.config import MeshConfig
from job_jax.mesh import make_mesh
from job_jax.schema import ConfigError
from rlvr_jax.models import load_hf, save_hf
from rlvr_jax.models.huggingface import abstract_policy, save
from tests.golden.family_models import CONFIGS, MODELS
from tests.support.hub import tensors, written
from tests.support.policies import forward, named, random_tokens, tiny_policy

each_family = pytest.mark.parametrize("family", MODELS)


@each_family
def test_an_export_holds_every_tensor_bit_for_bit(family, tmp_path, monkeypatch):
    """Export inverts loading: names, shapes, numbers, and the accompanying files."""
    source = written(tmp_path / "in", family, shards=3, bos_token_id=5)
    (source / "tokenizer.json").write_text('{"added_tokens": []}')
    (source / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    policy = load_hf(source)
    assert policy.eos_ids == (2, 7)
    monkeypatch.setattr(save, "_SHARD_BYTES", 20_000)
    save_hf(policy, tmp_path / "out")
    files = sorted((tmp_path / "out").glob("*.safetensors"))
    assert len(files) > 3
    found = {name: a for file in files for name, a in load_file(file).items()}
    expected = tensors(family)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    for name in ("tokenizer.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (source / name).read_bytes()
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["bos_token_id"] == 5
    assert settings["architectures"] == MODELS[family]["architectures"]
    again = load_hf(tmp_path / "out")
    assert again.config == policy.config


@pytest.mark.parametrize(
    ("family", "axes"),
    [
        ("qwen2", (8, 1, 1)),
        ("qwen2", (2, 2, 2)),
        ("qwen2", (1, 4, 2)),
        ("llama_yarn", (1, 4, 2)),  # with all biases
    ],
)
def test_every_mesh_loads_the_same_policy(family, axes, tmp_path):
    source = written(tmp_path, family)
    data, fsdp, tensor = axes
    mesh = make_mesh(MeshConfig(data=data, fsdp=fsdp, tensor=tensor))
    on_mesh, alone = load_hf(source, mesh=mesh), load_hf(source)
    expected = named(nnx.state(alone))
    for name, array in named(nnx.state(on_mesh)).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    gate = on_mesh.blocks.gate[...]
    assert gate.sharding.num_devices == 8
    shard = gate.addressable_shards[0].data.shape
    assert shard == (3, 32 // fsdp, 48 // tensor)


def test_bfloat16_files_and_bfloat16_policies(tmp_path):
    source = written(tmp_path, "llama3")
    held = {n: a.astype(ml_dtypes.bfloat16) for n, a in tensors("llama3").items()}
    save_file(held, source / "model.safetensors")
    wide, narrow = load_hf(source), load_hf(source, dtype="bfloat16")
    for name, array in named(nnx.state(narrow)).items():
        assert array.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(
            named(nnx.state(wide))[name], array.astype(np.float32)
        )


def test_constants_copies_and_parts_that_see_are_left_aside(tmp_path):
    """Gemma 3's wrapper renames its text part and puts it next to a vision tower."""
    source = written(tmp_path / "in", "gemma3")
    plain = named(nnx.state(load_hf(source)))
    held = {f"language_model.{name}": a for name, a in tensors("gemma3").items()}
    held["vision_tower.vision_model.embeddings.weight"] = np.ones((2, 2), np.float32)
    held["language_model.model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(
        4, np.float32
    )
    held["language_model.lm_head.weight"] = held[
        "language_model.model.embed_tokens.weight"
    ]
    save_file(held, source / "model.safetensors")
    settings = CONFIGS["gemma3"]
    wrapper = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": settings,
    }
    (source / "config.json").write_text(json.dumps(wrapper))
    for name, array in named(nnx.state(load_hf(source))).items():
        np.testing.assert_array_equal(array, plain[name])


def test_a_policy_of_our_own_is_exported(tmp_path):
    policy = tiny_policy()
    save_hf(policy, tmp_path / "out")
    again = load_hf(tmp_path / "out")
    assert again.eos_ids == policy.eos_ids
    tokens = random_tokens(2, 5)
    mask = np.ones(tokens.shape, bool)
    np.testing.assert_array_equal(
        forward(*nnx.split(again), tokens, mask),
        forward(*nnx.split(policy), tokens, mask),
    )


def test_a_policy_that_no_architecture_computes_is_not_exported(tmp_path):
    policy = tiny_policy(scale_embeddings=True)
    with pytest.raises(ConfigError, match=r"family=llama .* model\.scale_embed"):
        save_hf(policy, tmp_path)
    save_hf(tiny_policy(), tmp_path)
    with pytest.raises(ConfigError, match="holds weights already"):
        save_hf(tiny_policy(), tmp_path)


def _truncated(source):
    whole = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(whole[:-100])


def _changed(**changes):
    def change(source):
        path = source / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def _tensor(name, array):
    def change(source):
        held = load_file(source / "model.safetensors")
        held.pop(name, None)
        if array is not None:
            held[name] = array
        save_file(held, source / "model.safetensors")

    return change


def _planted(name, value):
    def change(source):
        held = load_file(source / "model.safetensors")
        held[name].flat[-1] = value
        save_file(held, source / "model.safetensors")

    return change


_UP = "model.layers.1.mlp.up_proj.weight"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncated, r"model\.safetensors is damaged \("),
        (_tensor(_UP, None), rf"lacks '{_UP}'"),
        (_tensor(_UP, np.ones((48, 32), np.int8)), rf"{_UP} holds I8"),
        (_tensor(_UP, np.ones((32, 48), np.float32)), r"shape \(32, 48\), .* \(48, 32"),
        (_planted(_UP, np.nan), rf": '{_UP}' holds NaN or infinite numbers"),
        (
            _planted("model.embed_tokens.weight", -np.inf),
            r": 'model\.embed_tokens\.weight' holds NaN or infinite",
        ),
        (
            _tensor("model.extra.weight", np.ones(3, np.float32)),
            r"model\.extra\.weight",
        ),
        (_changed(vocab_size=64), r"61 tokens .* vocab_size=64"),
        (_changed(architectures=["Qwen2MoeForCausalLM"]), "mean 'Qwen2ForCausalLM'"),
        (
            _changed(rope_scaling={"rope_type": "axial"}),
            "RoPE of type 'axial' is not supported",
        ),
        (
            _changed(hidden_size="x"),
            "transformers refuses it: .*'hidden_size' expected",
        ),
        (
            lambda s: (s / "generation_config.json").write_text("{"),
            r"generation_config\.json is not JSON",
        ),
        (_changed(hidden_act="relu"), "activation 'relu' is not supported"),
        (lambda s: (s / "config.json").write_text("{"), "is not JSON"),
        (lambda s: (s / "config.json").unlink(), "no .*config.json; give a directory"),
        (
            lambda s: (s / "model.safetensors").unlink(),
            "no .*; its directory holds 'config",
        ),
        (
            lambda s: (s / "tokenizer.json").write_text(
                json.dumps({"added_tokens": [{"id": 61, "content": "<x>"}]})
            ),
            "tokenizer.json has 62 tokens, .*vocab_size=61",
        ),
    ],
)
def test_a_checkpoint_that_cannot_be_right_is_refused(damage, message, tmp_path):
    damage(written(tmp_path, "qwen2"))
    with pytest.raises(ConfigError, match=message):
        load_hf(tmp_path)


def test_an_export_keeps_the_context_that_the_weights_were_made_for(tmp_path):
    policy = load_hf(written(tmp_path / "in", "qwen2", max_position_embeddings=4096))
    policy.config = dataclasses.replace(policy.config, max_seq_len=64)
    save_hf(policy, tmp_path / "out")
    settings = json.loads((tmp_path / "out/config.json").read_text())
    assert settings["max_position_embeddings"] == 4096


def test_a_tokenizer_may_have_every_token_of_the_embedding(tmp_path):
    """With 61 rows the last token is 60; the test above refuses one token more."""
    source = written(tmp_path, "qwen2")
    tokenizer = {"added_tokens": [{"id": 60, "content": "<x>"}]}
    (source / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert abstract_policy(source, dtype="float32").vocab_size == 61


@pytest.mark.parametrize("dtype", ["bfloat16", jax.numpy.bfloat16, np.float32])
def test_a_dtype_may_be_an_object(dtype, tmp_path):
    policy = load_hf(written(tmp_path, "qwen2"), dtype=dtype)
    assert policy.embedding[...].dtype == jax.numpy.dtype(dtype)
    assert policy.config.param_dtype == jax.numpy.dtype(dtype).name


@pytest.mark.parametrize("dtype", ["float16", np.float16])
def test_another_dtype_is_refused_by_its_name(dtype, tmp_path):
    message = "^dtype='float16'; it must be one of float32, bfloat16$"
    with pytest.raises(ConfigError, match=message):
        load_hf(written(tmp_path, "qwen2"), dtype=dtype)


def test_a_mesh_with_other_axes_is_refused_with_the_fix(tmp_path):
    mesh = jax.make_mesh((8,), ("model",))
    with pytest.raises(
        ConfigError, match=r"axes \('model',\), not \('data', 'fsdp'.*make"
    ):
        load_hf(written(tmp_path, "qwen2"), mesh=mesh)


@pytest.mark.parametrize(("family", "act"), [("gemma2", "gelu_pytorch_tanh")])
def test_an_export_names_one_activation(family, act, tmp_path):
    """Programs that read the older name must not take a Gemma for a silu model."""
    save_hf(load_hf(written(tmp_path / "in", family)), tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["hidden_act"] == settings["hidden_activation"] == act


def test_a_missing_shard_is_named(tmp_path):
    source = written(tmp_path, "qwen3", shards=2)
    (source / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"no .*model-00002-of-00002\.safetensors"):
        load_hf(source)


def test_a_tensor_that_only_the_index_names_is_missed(tmp_path):
    """The policy has no use for it, but a file that lost one may have lost others."""
    source = written(tmp_path, "qwen3", shards=2)
    load_hf(source)
    index = json.loads((source / save.INDEX).read_text())
    index["weight_map"]["model.extra.weight"] = "model-00002-of-00002.safetensors"
    (source / save.INDEX).write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"'model\.extra\.weight', in no file"):
        load_hf(source)


def test_a_single_device_holds_a_policy_loaded_without_a_mesh(tmp_path):
    policy = load_hf(written(tmp_path, "mistral"))
    for leaf in jax.tree.leaves(nnx.state(policy)):
        assert leaf.devices() == {jax.devices()[0]}
