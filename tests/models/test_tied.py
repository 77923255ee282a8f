"""Checkpoints that claim a tied output layer but also contain one."""

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
from rlvr_jax import convert
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models import load_hf, save_hf
from rlvr_jax.models.huggingface import resolve_model, tied
from tests.golden.family_models import padded
from tests.support.hub import tensors, written
from tests.support.policies import forward, named

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@pytest.fixture(autouse=True)
def few_rows_at_a_time(monkeypatch):
    """Compares two rows of 32 numbers at a time; the last of the 61 rows is alone."""
    monkeypatch.setattr(tied, "_CHUNK_NUMBERS", 64)


def with_head(directory, head, *, shards=1, **changes):
    """Returns the directory with a tied checkpoint that also contains this head."""
    written(directory, "qwen2", shards=shards, tie_word_embeddings=True, **changes)
    if shards == 1:
        held = tensors("qwen2") | {HEAD: head}
        save_file(held, directory / "model.safetensors")
        return directory
    save_file({HEAD: head}, directory / "model-head.safetensors")
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][HEAD] = "model-head.safetensors"
    path.write_text(json.dumps(index))
    return directory


def changed(row, column, by=1e-6):
    """Returns the embedding with one number changed slightly."""
    head = tensors("qwen2")[EMBEDDING].copy()
    head[row, column] += by
    assert (head != tensors("qwen2")[EMBEDDING]).sum() == 1
    return head


def logits(policy):
    return np.asarray(forward(*nnx.split(policy), *padded("right")))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (31, 5), (60, 31)])
def test_one_number_that_differs_unties(row, column, shards, tmp_path, capsys):
    head = changed(row, column)
    policy = load_hf(with_head(tmp_path, head, shards=shards))
    assert not policy.config.tie_embeddings
    np.testing.assert_array_equal(policy.lm_head[...], head)
    np.testing.assert_array_equal(policy.embedding[...], tensors("qwen2")[EMBEDDING])
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{HEAD} differs from {EMBEDDING}" in line
    assert "tie_word_embeddings: true" in line


@pytest.mark.parametrize("shards", [1, 3])
def test_the_same_numbers_are_tied_without_a_word(shards, tmp_path, capsys):
    head = tensors("qwen2")[EMBEDDING]
    policy = load_hf(with_head(tmp_path, head, shards=shards))
    assert policy.config.tie_embeddings
    assert "lm_head" not in named(nnx.state(policy))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("exact", "is_tied"), [(True, True), (False, False)])
def test_numbers_of_two_dtypes_are_compared_as_numbers(exact, is_tied, tmp_path):
    narrow = tensors("qwen2")[EMBEDDING].astype(ml_dtypes.bfloat16)
    wide = tensors("qwen2")[EMBEDDING] if not exact else narrow.astype(np.float32)
    source = with_head(tmp_path, wide)
    held = tensors("qwen2") | {HEAD: wide, EMBEDDING: narrow}
    save_file(held, source / "model.safetensors")
    assert load_hf(source).config.tie_embeddings == is_tied


def test_logits_are_those_of_a_checkpoint_that_says_untied(tmp_path):
    """The export has both the head's numbers and the setting that it is untied."""
    head = np.flip(tensors("qwen2")[EMBEDDING], axis=0).copy()
    source = with_head(tmp_path / "says_tied", head)
    says_untied = with_head(tmp_path / "says_untied", head)
    settings = json.loads((says_untied / "config.json").read_text())
    (says_untied / "config.json").write_text(
        json.dumps(settings | {"tie_word_embeddings": False})
    )
    policy = load_hf(source)
    expected = logits(load_hf(says_untied))
    np.testing.assert_array_equal(logits(policy), expected)
    tied_policy = load_hf(written(tmp_path / "tied", "qwen2"))
    assert np.abs(logits(tied_policy) - expected)[padded("right")[1]].max() > 1
    save_hf(policy, tmp_path / "out")
    exported = json.loads((tmp_path / "out" / "config.json").read_text())
    assert exported["tie_word_embeddings"] is False
    held = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(held[HEAD], head)
    np.testing.assert_array_equal(logits(load_hf(tmp_path / "out")), expected)


@pytest.mark.parametrize("differs", [False, True])
def test_every_mesh_decides_alike(differs, tmp_path):
    head = changed(60, 31) if differs else tensors("qwen2")[EMBEDDING]
    source = with_head(tmp_path, head, shards=3)
    mesh = make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))
    on_mesh, alone = load_hf(source, mesh=mesh), load_hf(source)
    assert on_mesh.config == alone.config
    expected = named(nnx.state(alone))
    assert ("lm_head" in expected) == differs
    for name, array in named(nnx.state(on_mesh)).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_a_recipe_is_resolved_as_the_weights_will_be_loaded(tmp_path):
    source = with_head(tmp_path / "hf", changed(7, 7))
    start = PretrainedConfig(path=str(source))
    resolved = resolve_model(start, ModelConfig())
    assert not resolved.tie_embeddings
    assert resolve_model(start, resolved) == resolved
    with pytest.raises(ConfigError, match=r"model\.tie_embeddings: True -> False"):
        resolve_model(start, ModelConfig(tie_embeddings=True))
    # A plan may have no weights, and then config.json decides.
    (source / "model.safetensors").unlink()
    assert resolve_model(start, ModelConfig()).tie_embeddings


def test_a_file_that_is_replaced_is_compared_again(tmp_path):
    source = with_head(tmp_path, tensors("qwen2")[EMBEDDING])
    assert load_hf(source).config.tie_embeddings
    with_head(tmp_path, changed(3, 3))
    assert not load_hf(source).config.tie_embeddings


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (np.ones((62, 32), np.float32), rf"{HEAD} has 62 tokens x \(32,\)"),
        (np.ones(61, np.float32), rf"{HEAD} has 61 tokens x \(\)"),
        (np.ones((61, 32), np.int8), rf"{HEAD} holds I8"),
        (np.full((61, 32), np.nan, np.float32), rf"'{HEAD}' holds NaN"),
    ],
)
def test_a_head_that_cannot_be_loaded_is_refused_by_its_name(head, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        load_hf(with_head(tmp_path, head))


def test_a_checkpoint_made_of_it_keeps_the_head(tmp_path):
    """The checkpoint's config.json comes without weights; it must say untied."""
    source = with_head(tmp_path / "hf", changed(7, 7))
    assert convert.main(["from-hf", str(source), str(tmp_path / "made")]) == 0
    assert convert.main(["to-hf", str(tmp_path / "made"), str(tmp_path / "out")]) == 0
    held = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(held[HEAD], changed(7, 7))
    np.testing.assert_array_equal(held[EMBEDDING], tensors("qwen2")[EMBEDDING])


def test_a_wrapper_with_a_separate_head_also_keeps_it(tmp_path):
    source = written(tmp_path / "hf", "gemma3")
    settings = json.loads((source / "config.json").read_text())
    wrapper = {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": settings,
    }
    (source / "config.json").write_text(json.dumps(wrapper))
    held = {f"language_model.{name}": a for name, a in tensors("gemma3").items()}
    head = 2 * held[f"language_model.{EMBEDDING}"]
    save_file(held | {f"language_model.{HEAD}": head}, source / "model.safetensors")
    assert convert.main(["from-hf", str(source), str(tmp_path / "made")]) == 0
    assert convert.main(["to-hf", str(tmp_path / "made"), str(tmp_path / "out")]) == 0
    np.testing.assert_array_equal(
        load_file(tmp_path / "out" / "model.safetensors")[HEAD], head
    )
    for leaf in jax.tree.leaves(nnx.state(load_hf(tmp_path / "out"))):
        assert np.isfinite(leaf).all()
