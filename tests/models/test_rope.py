"""RoPE scaled for a longer context: frequencies, magnitudes, and config.json."""

import dataclasses
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models import load_hf, save_hf
from rlvr_jax.models.huggingface import resolve_model
from rlvr_jax.models.huggingface.config import read_model_config, to_hf_config
from rlvr_jax.models.rope import rope_tables
from tests.support.hub import written
from tests.support.policies import tiny_policy

CONTEXT = 1024
# theta^(-i/8) = 2^-i: pair i turns CONTEXT 2^-i / (2 pi) times within the context.
POWERS = ModelConfig(head_dim=16, rope_theta=256.0, rope_original_max_position=CONTEXT)


def waves(config, layer_type="full"):
    """Returns each pair's frequency, in radians a token, and its magnitude."""
    cos, sin = rope_tables(jnp.ones((1, 1), jnp.int32), config, layer_type)
    half = config.head_dim // 2
    np.testing.assert_array_equal(cos[..., :half], cos[..., half:])
    np.testing.assert_array_equal(sin[..., :half], sin[..., half:])
    cos, sin = (np.asarray(x, np.float64).ravel()[:half] for x in (cos, sin))
    return np.arctan2(sin, cos), np.hypot(sin, cos)


def turns_of_pair(pair):
    return CONTEXT * 2.0**-pair / (2 * math.pi)


@pytest.mark.parametrize(
    ("fast", "slow", "truncate", "unscaled"),
    [
        (1, 5, False, [1, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0, 0]),
        (1.5, 4.5, True, [1, 1, 3 / 4, 1 / 2, 1 / 4, 0, 0, 0]),
        (1.5, 4.5, False, [1, 1, 5 / 6, 1 / 2, 1 / 6, 0, 0, 0]),
        # It begins at pair 0 at the earliest and ends at pair 15, but only 8 pairs
        # exist.
        (-3, 4, False, [1, 3 / 4, 1 / 2, 1 / 4, 0, 0, 0, 0]),
        (1, 10, False, [1, 1, 8 / 9, 7 / 9, 6 / 9, 5 / 9, 4 / 9, 3 / 9]),
        (1, 20, False, [1, 1, *(1 - n / 14 for n in range(1, 7))]),
        (-1.5, -0.5, True, [1, 0, 0, 0, 0, 0, 0, 0]),
        (-2.5, -1.5, True, [1, 1, 1, 1, 1, 1, 1, 1]),
    ],
)
def test_yarn_mixes_frequencies_between_two_pairs(fast, slow, truncate, unscaled):
    config = dataclasses.replace(
        POWERS,
        rope_scaling="yarn",
        rope_factor=4.0,
        rope_beta_fast=turns_of_pair(fast),
        rope_beta_slow=turns_of_pair(slow),
        rope_truncate=truncate,
    )
    share = np.array(unscaled)
    expected = 2.0 ** -np.arange(8) * (share + (1 - share) / 4.0)
    np.testing.assert_allclose(waves(config)[0], expected, rtol=1e-6)


def _authors_frequencies(*, base, width, context, factor):
    """Returns YaRN's frequencies as the authors' code computes them, in float64."""
    pair = np.arange(0, width, 2, dtype=np.float64)

    def dimension(turns):
        return width * np.log(context / (turns * 2 * np.pi)) / (2 * np.log(base))

    low, high = np.floor(dimension(32.0)), np.ceil(dimension(1.0))
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0.0, 1.0)
    unscaled = base ** -(pair / width)
    return unscaled / factor * ramp + unscaled * (1.0 - ramp)


@pytest.mark.parametrize(
    ("base", "width", "context", "factor"),
    [(1e6, 128, 32_768, 4.0), (1e4, 128, 4096, 16.0), (1e4, 64, 2048, 2.0)],
)
def test_yarn_of_published_sizes_has_the_authors_frequencies(
    base, width, context, factor
):
    config = ModelConfig(
        head_dim=width,
        rope_theta=base,
        rope_scaling="yarn",
        rope_factor=factor,
        rope_original_max_position=context,
    )
    expected = _authors_frequencies(
        base=base, width=width, context=context, factor=factor
    )
    found, magnitude = waves(config)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    np.testing.assert_allclose(magnitude, 0.1 * math.log(factor) + 1, rtol=1e-6)
    # From the paper: fast pairs are unchanged, slow ones are divided by the factor.
    plain = base ** (-2 * np.arange(width // 2) / width)
    turns = context * plain / (2 * np.pi)
    ends = {1.0: turns > 32 * base ** (2 / width), factor: turns < base ** (-2 / width)}
    for divisor, pairs in ends.items():
        assert pairs.any()
        np.testing.assert_allclose(found[pairs], plain[pairs] / divisor, rtol=2e-6)


def test_a_given_magnitude_replaces_the_formula():
    yarn = {"rope_scaling": "yarn", "rope_factor": 4.0}
    for given, expected in ((0.0, 1 + 0.1 * math.log(4)), (1.3, 1.3), (0.5, 0.5)):
        config = dataclasses.replace(POWERS, **yarn, rope_attention_factor=given)
        np.testing.assert_allclose(waves(config)[1], expected, rtol=1e-6)
    shorter = dataclasses.replace(POWERS, rope_scaling="yarn", rope_factor=0.5)
    np.testing.assert_allclose(waves(shorter)[1], 1.0, rtol=1e-6)
    linear = dataclasses.replace(
        POWERS, rope_scaling="linear", rope_factor=4.0, rope_attention_factor=1.3
    )
    np.testing.assert_allclose(waves(linear)[1], 1.0, rtol=1e-6)


def test_sliding_layers_with_a_theta_of_their_own_are_never_scaled():
    config = dataclasses.replace(
        POWERS,
        rope_scaling="yarn",
        rope_factor=4.0,
        layer_types=("sliding", "full"),
        sliding_window=4,
    )
    own = dataclasses.replace(config, rope_local_theta=16.0)
    frequency, magnitude = waves(own, "sliding")
    np.testing.assert_allclose(frequency, 16.0 ** -(np.arange(8) / 8), rtol=1e-6)
    np.testing.assert_allclose(magnitude, 1.0, rtol=1e-6)
    for scaled in (waves(own), waves(config, "sliding")):
        np.testing.assert_array_equal(scaled, waves(config))
    assert (waves(config)[1] > 1.1).all()


def test_dynamic_changes_nothing_within_the_context_and_ends_there():
    dynamic = {"rope_scaling": "dynamic", "rope_factor": 4.0, "max_seq_len": CONTEXT}
    config = dataclasses.replace(POWERS, **dynamic)
    np.testing.assert_array_equal(waves(config), waves(POWERS))
    with pytest.raises(ConfigError, match=r"max_seq_len=1025 .* choose at most 1024"):
        dataclasses.replace(config, max_seq_len=CONTEXT + 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope_scaling": "yarn"}, r"rope_factor=1\.0 with rope_scaling=yarn"),
        ({"rope_factor": 2.0}, r"rope_factor=2\.0 with rope_scaling=none"),
        ({"rope_beta_slow": 32.0}, r"rope_beta_slow=32\.0 must be below .*fast=32\.0"),
        (
            {"rope_scaling": "yarn", "rope_factor": 2.0, "rope_theta": 1.0},
            r"rope_theta=1\.0 with rope_scaling=yarn; raise it above 1",
        ),
    ],
)
def test_a_scaling_that_cannot_be_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        ModelConfig(**changes)


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
FIELDS = {
    "rope_scaling": "yarn",
    "rope_factor": 4.0,
    "rope_original_max_position": 64,
    "max_seq_len": 256,
}


def _read(directory, family="llama3", **settings):
    written(directory, family, **settings)
    return read_model_config(directory, dtype="float32")


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        (YARN, FIELDS | {"rope_beta_fast": 32.0, "rope_attention_factor": 0.0}),
        # max_position_embeddings of 256 may be the context before YaRN or after it.
        (YARN | {"factor": 8.0}, {"rope_factor": 8.0, "max_seq_len": 512}),
        (YARN | {"factor": 1.5}, {"rope_factor": 1.5, "max_seq_len": 256}),
        (YARN | {"factor": None}, FIELDS),
        (
            {"type": "yarn", "factor": 4.0},
            FIELDS | {"rope_original_max_position": 256, "max_seq_len": 1024},
        ),
        (YARN | {"beta_fast": 8, "beta_slow": 0}, FIELDS | {"rope_beta_fast": 8.0}),
        (YARN | {"truncate": False}, FIELDS | {"rope_truncate": False}),
        (YARN | {"attention_factor": 0.7}, FIELDS | {"rope_attention_factor": 0.7}),
        (
            YARN | {"mscale": 0.7, "mscale_all_dim": 2},
            {
                "rope_attention_factor": (1 + 0.07 * math.log(4))
                / (1 + 0.2 * math.log(4))
            },
        ),
        (YARN | {"mscale": 0.7}, {"rope_attention_factor": 0.0}),
        (
            YARN | {"mscale": 1, "mscale_all_dim": 2, "attention_factor": 0.7},
            {"rope_attention_factor": 0.7},
        ),
        (YARN | {"factor": 1.0}, {"rope_scaling": "none", "max_seq_len": 256}),
        (
            {"rope_type": "dynamic", "factor": 1.0},
            {"rope_scaling": "dynamic", "rope_original_max_position": 256},
        ),
    ],
)
def test_config_json_is_read_as_transformers_reads_it(scaling, expected, tmp_path):
    config = _read(tmp_path, rope_scaling=scaling)
    found = {name: vars(config)[name] for name in expected}
    assert found == pytest.approx(expected)


def test_a_context_outside_of_ropes_settings_has_priority(tmp_path):
    config = _read(tmp_path, rope_scaling=YARN, original_max_position_embeddings=32)
    assert config.rope_original_max_position == 32
    with_it = written(
        tmp_path / "in",
        "llama3",
        rope_scaling=YARN,
        original_max_position_embeddings=32,
    )
    save_hf(load_hf(with_it), tmp_path / "out")
    assert load_hf(tmp_path / "out").config == load_hf(with_it).config


_NESTED = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    "full_attention": YARN | {"rope_theta": 10_000.0},
}


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        (
            "llama3",
            {"rope_scaling": YARN | {"attention_factor": 0.0}},
            r"attention_factor=0\.0 of YaRN; it must be positive",
        ),
        (
            "llama3",
            {"rope_scaling": YARN | {"factor": 1.0, "attention_factor": 2.0}},
            r"rope_factor=1\.0 with rope_scaling=yarn",
        ),
        (
            "gemma3",
            {"rope_scaling": YARN | {"truncate": False}},
            "truncate=false of full_attention is not supported",
        ),
        (
            "gemma3",
            {
                "rope_scaling": None,
                "rope_parameters": _NESTED
                | {"sliding_attention": {"rope_type": "linear", "factor": 2.0}},
            },
            "RoPE of type 'linear' in sliding layers is not supported",
        ),
        ("qwen2", {"attention_bias": True}, "attention_bias=True is not supported"),
        ("qwen3", {"mlp_bias": True}, "mlp_bias=True is not supported"),
    ],
)
def test_a_setting_that_is_not_computed_is_refused(family, settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        _read(tmp_path, family, **settings)


def test_the_room_of_a_run_is_not_the_context_where_dynamic_begins(tmp_path):
    source = written(tmp_path / "in", "llama_dynamic")
    start = PretrainedConfig(path=str(source))
    model = resolve_model(start, ModelConfig(max_seq_len=40))
    assert (model.max_seq_len, model.rope_original_max_position) == (40, 256)
    settings = to_hf_config(model, vocab_size=61, extra={})
    assert settings["max_position_embeddings"] == 256
    expected = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10_000.0}
    assert settings["rope_scaling"] == expected
    with pytest.raises(ConfigError, match=r"model\.max_seq_len: 300 -> 256"):
        resolve_model(start, ModelConfig(max_seq_len=300))


def test_a_run_may_use_the_whole_context_that_yarn_reaches(tmp_path):
    source = written(tmp_path, "llama3", rope_scaling=YARN | {"factor": 8.0})
    start = PretrainedConfig(path=str(source))
    assert resolve_model(start, ModelConfig(max_seq_len=512)).max_seq_len == 512
    with pytest.raises(ConfigError, match=r"model\.max_seq_len: 513 -> 512"):
        resolve_model(start, ModelConfig(max_seq_len=513))


_SLIDING = {"layer_types": ("sliding", "full"), "sliding_window": 4}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"qkv_bias": True}, "qkv_bias"),
        ({"out_bias": True}, "qkv_bias"),
        ({"family": "qwen3", "qk_norm": True, "mlp_bias": True}, "mlp_bias"),
        ({"family": "qwen2", "qkv_bias": True, "out_bias": True}, "out_bias"),
        ({"family": "mistral", "qkv_bias": True}, "qkv_bias"),
    ],
)
def test_biases_that_a_family_cannot_have_are_not_exported(changes, named, tmp_path):
    policy = tiny_policy(**changes)
    with pytest.raises(ConfigError, match=rf"would change model\.{named}"):
        save_hf(policy, tmp_path)


@pytest.mark.parametrize("scaling", ["none", "linear"])
def test_a_scaled_gemma_whose_sliding_layers_are_scaled_too_is_not_exported(scaling):
    """Gemma 3 of transformers scales full layers only; unscaled, all have one RoPE."""
    config = ModelConfig(
        family="gemma3",
        qk_norm=True,
        activation="gelu_tanh",
        rms_norm_unit_offset=True,
        use_post_norms=True,
        scale_embeddings=True,
        rope_scaling=scaling,
        rope_factor=1.0 if scaling == "none" else 2.0,
        **_SLIDING,
    )
    if scaling == "none":
        settings = to_hf_config(config, vocab_size=8, extra={})
        assert settings["rope_local_base_freq"] == config.rope_theta
        return
    with pytest.raises(ConfigError, match=r"would change model\.rope_local_theta"):
        to_hf_config(config, vocab_size=8, extra={})


def test_an_export_says_yarn_in_full(tmp_path):
    source = written(tmp_path / "in", "qwen3_yarn")
    save_hf(load_hf(source), tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "config.json").read_text())
    assert settings["attention_bias"] is True
    assert settings["rope_scaling"] == {
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 16,
        "beta_fast": 2.0,
        "beta_slow": 0.1,
        "truncate": False,
        "attention_factor": 1.3,
    }
