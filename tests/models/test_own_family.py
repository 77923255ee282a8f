"""A custom model family is one file: the example in docs/use/extend.md."""

import json
import pathlib
import re

import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file

from job_jax.schema import ConfigError
from rlvr_jax.config import ModelConfig, PretrainedConfig
from rlvr_jax.models import load_hf, save_hf
from rlvr_jax.models.families import load_family
from rlvr_jax.models.huggingface import resolve_model
from tests.support.policies import named, tiny_policy

MINE = "my_family:FAMILY"
FIELDS = {"family": MINE, "qk_norm": True}
EXTEND = pathlib.Path(__file__).parents[2] / "docs/use/extend.md"


@pytest.fixture(scope="module", autouse=True)
def my_family(tmp_path_factory):
    """Installs the page's example as a module that Python can import."""
    section = EXTEND.read_text().split("## A family of models")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    directory = tmp_path_factory.mktemp("user")
    (directory / "my_family.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(directory)
        yield


def test_a_custom_family_is_written_and_read(tmp_path):
    policy = tiny_policy(**FIELDS)
    save_hf(policy, tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["architectures"] == ["MineForCausalLM"]
    assert settings["model_type"] == "mine"
    assert "model.layers.1.mlp.w1.weight" in load_file(tmp_path / "model.safetensors")
    again = load_hf(tmp_path, family=MINE)
    assert again.config == policy.config
    expected = named(nnx.state(policy))
    for name, array in named(nnx.state(again)).items():
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    resolve_model(PretrainedConfig(path=str(tmp_path)), policy.config)


def test_a_directory_of_another_family_is_refused(tmp_path):
    save_hf(tiny_policy(**FIELDS), tmp_path / "mine")
    with pytest.raises(ConfigError, match=r"'MineForCausalLM' is not supported; did"):
        load_hf(tmp_path / "mine")
    save_hf(tiny_policy(), tmp_path / "llama")
    with pytest.raises(ConfigError, match=r"'LlamaForCausalLM' is not of .*MineFor"):
        load_hf(tmp_path / "llama", family=MINE)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("json:dumps", "is a function, not a"),
        ("my_family:FAMILLY", "has no 'FAMILLY'; did you mean 'FAMILY'"),
        ("no_such_module:FAMILY", "cannot import no_such_module"),
    ],
)
def test_a_place_without_a_family_is_refused(name, message):
    with pytest.raises(ConfigError, match=message):
        load_family(name)


def test_an_unknown_family_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"family='qwen4' is unknown; did.*'qwen"):
        ModelConfig(family="qwen4")
