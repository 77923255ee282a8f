"""A recipe's model settings, read from the checkpoint that it starts from."""

import copy
import dataclasses
import json
import pickle

import pytest

from job_jax.config_io import from_json, override, override_faults, to_json
from job_jax.schema import ConfigError
from rlvr_jax.config import Config, ModelConfig, PretrainedConfig, TokenizerConfig
from rlvr_jax.models.huggingface import resolve_pretrained
from rlvr_jax.probe import SAEProbeConfig
from tests.support.checkpoints import MODEL, word_config, write_checkpoint


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("start") / "hf")


@pytest.fixture
def recipe(start, tmp_path):
    """Returns a function that builds a run from the checkpoint with this model."""

    def make(model, **sections):
        return word_config(start, tmp_path / "problems.jsonl", model=model, **sections)

    return make


OURS = ModelConfig(
    compute_dtype="bfloat16", scan_layers=True, remat="block", max_seq_len=96
)


@pytest.mark.parametrize("model", ["pretrained", ModelConfig(), MODEL])
def test_omitted_settings_are_read_from_the_checkpoint(recipe, model):
    room = model.max_seq_len if isinstance(model, ModelConfig) else 512
    resolved = resolve_pretrained(recipe(model)).model
    assert resolved == dataclasses.replace(MODEL, max_seq_len=room)


def test_how_it_computes_is_the_runs_own(recipe):
    resolved = resolve_pretrained(recipe(OURS)).model
    assert resolved == dataclasses.replace(
        MODEL,
        compute_dtype="bfloat16",
        scan_layers=True,
        remat="block",
        max_seq_len=96,
    )


def test_the_room_of_a_run_ends_with_the_checkpoints_context(recipe, tmp_path):
    short = write_checkpoint(tmp_path / "short", max_seq_len=64)
    start = PretrainedConfig(path=str(short))
    config = dataclasses.replace(recipe("pretrained"), pretrained=start)
    assert resolve_pretrained(config).model.max_seq_len == 64
    longer = recipe(ModelConfig(max_seq_len=65), pretrained=start)
    with pytest.raises(ConfigError, match=r"model.max_seq_len: 65 -> 64"):
        resolve_pretrained(longer)


def test_given_settings_must_agree_even_at_their_default(recipe):
    """`num_layers` is 4 by default; a recipe that states 4 must still agree."""
    assert resolve_pretrained(recipe(ModelConfig(num_layers=1))).model.num_layers == 1
    given = {"num_layers": 4, "qkv_bias": False, "num_heads": 3, "head_dim": 8}
    config = recipe(ModelConfig(family="pretrained", **given))
    with pytest.raises(ConfigError) as refused:
        resolve_pretrained(config)
    line = str(refused.value)
    for part in ("num_layers: 4 -> 1", "qkv_bias: False -> True", "num_heads: 3 -> 2"):
        assert f"model.{part}" in line
    assert "head_dim" not in line
    assert "--config.model=pretrained" in line


def test_overrides_are_given_and_the_rest_is_not(recipe):
    config = override(recipe("pretrained"), {"model.max_seq_len": "80"})
    assert resolve_pretrained(config).model.max_seq_len == 80
    wrong = override(recipe(ModelConfig()), {"model.num_layers": "4"})
    with pytest.raises(ConfigError, match=r"model.num_layers: 4 -> 1"):
        resolve_pretrained(wrong)


def test_the_word_pretrained_replaces_a_recipes_model(recipe):
    own = recipe(ModelConfig(num_layers=3, hidden_size=24, rms_norm_unit_offset=True))
    config = override(own, {"model": "pretrained", "model.scan_layers": "true"})
    resolved = resolve_pretrained(config).model
    assert resolved == dataclasses.replace(MODEL, scan_layers=True, max_seq_len=512)
    assert override_faults(own, {"model": "pretrained"}) == []  # from a command line
    (fault,) = override_faults(own, {"model": "pretraned"})
    assert "or write model=pretrained" in fault
    with pytest.raises(ConfigError, match="or write model=pretrained"):
        override(own, {"model": "pretraned"})
    with pytest.raises(ConfigError, match=r"model expects a ModelConfig, got 'pre'"):
        recipe("pre")


def test_the_word_needs_a_checkpoint():
    with pytest.raises(ConfigError, match=r"pretrained.path is empty"):
        Config(model="pretrained")
    with pytest.raises(ConfigError, match=r"pretrained.path is empty"):
        override(Config(), {"model": "pretrained"})


def test_other_spellings_of_one_model_agree(tmp_path, recipe):
    other = write_checkpoint(tmp_path / "sliding", family="mistral", qkv_bias=False)
    settings = json.loads((other / "config.json").read_text())
    assert settings["model_type"] == "mistral"
    given = ModelConfig(layer_types=("full", "full"), query_pre_attn_scalar=8.0)
    config = recipe(given, pretrained=PretrainedConfig(path=str(other)))
    resolved = resolve_pretrained(config).model
    assert resolved.layer_types == ("full", "full")
    assert resolved.family == "mistral"


def test_a_layer_to_probe_waits_for_the_layers(recipe):
    """By default layers 0..3 exist; the checkpoint has only layer 0."""
    for layer in (1, 7):
        config = recipe("pretrained", probe=SAEProbeConfig(layer=layer))
        with pytest.raises(ConfigError, match=rf"layer={layer}, but .* layers 0..0"):
            resolve_pretrained(config)
    with pytest.raises(ConfigError, match=r"layer=7, but the policy has layers 0..3"):
        Config(model=ModelConfig(num_layers=4), probe=SAEProbeConfig(layer=7))


def test_a_resolved_config_is_whole(recipe):
    resolved = resolve_pretrained(recipe("pretrained"))
    read = from_json(Config, to_json(resolved))
    assert read == resolved
    assert resolve_pretrained(read) == resolved


@pytest.mark.parametrize("make", [copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_a_copy_knows_what_was_given(make):
    made = make(ModelConfig(num_layers=4))
    assert made == ModelConfig()
    assert made.stated == {"num_layers"}


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (
            "Qwen/Qwen2.5-0.5B",
            "run hf download Qwen/Qwen2.5-0.5B --local-dir models/Qwen2.5-0.5B, and "
            "set pretrained.path=models/Qwen2.5-0.5B",
        ),
        (
            "models/Qwen2.5-0.5B",
            "hf download ORGANIZATION/NAME --local-dir models/Qwen2.5-0.5B",
        ),
        (
            "there/Qwen2.5-0.5B",
            "hf download ORGANIZATION/NAME --local-dir there/Qwen2.5-0.5B",
        ),
        ("a/b/c", "hf download ORGANIZATION/NAME --local-dir a/b/c"),
    ],
)
def test_a_missing_directory_says_how_to_get_it(
    tmp_path, monkeypatch, recipe, path, told
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    config = recipe("pretrained", pretrained=PretrainedConfig(path=path))
    with pytest.raises(ConfigError) as refused:
        resolve_pretrained(config)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_plan_needs_no_directory_where_all_is_given(tmp_path, recipe):
    none = PretrainedConfig(path=str(tmp_path / "none"), vocab_size=8)
    planned = recipe(ModelConfig(num_layers=1), pretrained=none)
    assert resolve_pretrained(planned) is planned
    with pytest.raises(ConfigError, match=r"no directory .*none; give"):
        resolve_pretrained(recipe("pretrained", pretrained=none))


def test_without_a_checkpoint_nothing_is_read():
    config = Config(tokenizer=TokenizerConfig())
    assert resolve_pretrained(config) is config


@pytest.mark.parametrize(
    ("changes", "given", "is_scanned"),
    [
        ({"num_layers": 15}, {}, False),
        ({"num_layers": 16}, {}, True),
        ({"num_layers": 16}, {"scan_layers": False}, False),
        ({"num_layers": 1}, {"scan_layers": True}, True),
    ],
)
def test_a_deep_checkpoint_is_scanned_unless_the_recipe_says_otherwise(
    tmp_path, recipe, changes, given, is_scanned
):
    directory = write_checkpoint(tmp_path / "deep", **changes)
    model = ModelConfig(family="pretrained", **given)
    config = recipe(model, pretrained=PretrainedConfig(path=str(directory)))
    resolved = resolve_pretrained(config)
    assert resolved.model.scan_layers is is_scanned
    assert resolve_pretrained(resolved) == resolved


def test_layers_of_two_types_are_not_scanned(tmp_path, recipe):
    """Scanned layers would lose the kernels that need to know the window beforehand."""
    mixed = {"layer_types": ("sliding", "full"), "sliding_window": 4}
    directory = write_checkpoint(
        tmp_path / "mixed", family="qwen2", num_layers=16, qkv_bias=True, **mixed
    )
    config = recipe("pretrained", pretrained=PretrainedConfig(path=str(directory)))
    resolved = resolve_pretrained(config).model
    assert {*resolved.layer_types} == {"sliding", "full"}
    assert not resolved.scan_layers
