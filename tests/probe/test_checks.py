"""Whether an autoencoder belongs to the policy that will read it."""

import pytest

from job_jax.schema import ConfigError
from rlvr_jax.config import Config, ModelConfig, PretrainedConfig
from rlvr_jax.probe.checks import check_sae_fits
from sae_jax.formats.record import SAERecord
from sae_jax.sae import TSAE

D = 16


def check(model_name, config):
    record = SAERecord(
        tsae=TSAE.init(0, width=D, latents=8),
        metadata={
            "hook_name": "blocks.1.hook_resid_post",
            "model_name": str(model_name),
        },
        format="saelens",
    )
    check_sae_fits(record, "sae", config, layer=1, model_name=config.name)


def test_a_dictionary_of_the_model_that_a_policy_starts_from_fits(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = ModelConfig(hidden_size=D, num_heads=2, num_kv_heads=1, head_dim=8)
    start = PretrainedConfig(path=str(tmp_path / "model"))
    config = Config(name="run", model=model, pretrained=start)
    check(tmp_path / "model", config)
    check("model", config)  # the same directory, relative to the current one
    check("run, step 7", config)
    with pytest.raises(ConfigError, match="trained on the model 'other'"):
        check("other", config)
    with pytest.raises(ConfigError, match="trained on the model 'model'"):
        check("model", Config(name="run", model=model))
