"""Checks that an autoencoder fits the policy and the layer it is to read."""

from pathlib import Path

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from sae_jax import io
from sae_jax.formats.record import SAERecord


def load_external_sae(
    path: str, config: Config, *, layer: int, model_name: str
) -> SAERecord:
    """Returns the autoencoder at `path`. Raises ConfigError if no probe can read it."""
    record = io.load_record(path)
    check_sae_fits(record, path, config, layer=layer, model_name=model_name)
    if record.tsae.top_k is not None:
        raise ConfigError(
            f"probe.sae_path={path!r} keeps each token's {record.tsae.top_k} largest "
            "latents, so that none can be read without all the others; use one with "
            "thresholds"
        )
    return record


def check_sae_fits(
    record: SAERecord,
    sae_path: str | Path,
    config: Config,
    *,
    layer: int,
    model_name: str,
) -> None:
    """Raises ConfigError if an autoencoder is of another width, layer or model.

    The message names both. What the autoencoder's metadata leave out is not checked.
    """
    tsae, metadata = record.tsae, record.metadata
    if tsae.width != config.model.hidden_size:
        raise ConfigError(
            f"{sae_path} reads activations of width {tsae.width}, but the policy "
            f"{config.name!r} has width {config.model.hidden_size}; use an autoencoder "
            "of this model"
        )
    hook = str(metadata.get("hook_name") or "")
    hooks_of_layer = (f"blocks.{layer}.hook_resid_post", f"model.layers.{layer}")
    if hook and hook not in hooks_of_layer:
        raise ConfigError(
            f"{sae_path} was trained on {hook}, but layer={layer} is "
            f"{hooks_of_layer[0]}; choose that layer, or another autoencoder"
        )
    other = str(metadata.get("model_name") or "").split(", step ", maxsplit=1)[0]
    if other and other != model_name:
        raise ConfigError(
            f"{sae_path} was trained on the model {other!r}, but the policy is "
            f"{model_name!r}; use an autoencoder of this model, or set "
            f"probe.sae_model_name={other!r} if they are the same"
        )
