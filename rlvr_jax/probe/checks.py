"""Checks that an autoencoder fits the policy and the layer that it will read."""

import re
from pathlib import Path

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from sae_jax import io
from sae_jax.formats.record import SAERecord


def load_external_sae(
    path: str, config: Config, *, layer: int, model_name: str
) -> SAERecord:
    """Returns the autoencoder at `path`. Raises ConfigError if it does not fit."""
    record = io.load_record(path)
    check_sae_fits(record, path, config, layer=layer, model_name=model_name)
    return record


def check_sae_fits(
    record: SAERecord,
    sae_path: str | Path,
    config: Config,
    *,
    layer: int,
    model_name: str,
) -> None:
    """Raises ConfigError if an autoencoder has another width, layer or model.

    The message names both. An autoencoder that does not say its layer is refused too.
    One that does not say its model is accepted, and so is one that was trained on the
    model at `pretrained.path`, which the policy starts from.
    """
    tsae, metadata = record.tsae, record.metadata
    if tsae.width != config.model.hidden_size:
        raise ConfigError(
            f"{sae_path} reads activations of width {tsae.width}, but the policy "
            f"{config.name!r} has width {config.model.hidden_size}; use an autoencoder "
            "of this model"
        )
    hook = str(metadata.get("hook_name") or metadata.get("hf_hook_name") or "")
    name = f"blocks.{layer}.hook_resid_post"
    if not hook:
        raise ConfigError(
            f"{sae_path} ({record.format}) does not say which layer it was trained on, "
            f"so it cannot be read at layer={layer}; if it is {name}, state it: "
            f"python -m sae_jax.export --sae={sae_path} --format=saelens "
            f"--hook_name={name} --out=DIR"
        )
    if _stream_layer(hook) != layer:
        raise ConfigError(
            f"{sae_path} was trained on {hook}, but layer={layer} is {name}; choose "
            "that layer, or another autoencoder"
        )
    other = str(metadata.get("model_name") or "").split(", step ", maxsplit=1)[0]
    if other and other != model_name and not _is_start(other, config):
        raise ConfigError(
            f"{sae_path} was trained on the model {other!r}, but the policy is "
            f"{model_name!r}; use an autoencoder of this model, or set "
            f"probe.sae_model_name={other!r} if they are the same"
        )


def _is_start(model_name: str, config: Config) -> bool:
    """Returns whether a model's name is the directory that the policy starts from."""
    start = config.pretrained.path
    return bool(start) and Path(model_name).resolve() == Path(start).resolve()


def _stream_layer(hook: str) -> int | None:
    """Returns the layer after which a hook reads the residual stream, or None.

    A block's input is the previous block's output.
    """
    if found := re.fullmatch(r"blocks\.(\d+)\.hook_resid_(post|pre)", hook):
        return int(found[1]) - (found[2] == "pre")
    found = re.fullmatch(
        r"(?:model\.)?(?:language_model\.)?layers\.(\d+)(?:\.output)?", hook
    )
    return int(found[1]) if found else None
