"""What a config names of a probe before there is one, and whether it can be."""

from collections.abc import Callable, Sequence
from pathlib import Path

from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.selection import check_named
from sae_jax import io
from sae_jax.formats.record import SAERecord


def given(config: Config) -> SAERecord:
    """Returns the autoencoder at probe.path; ConfigError where it cannot be one."""
    probe = config.probe
    record = io.read(probe.path)
    check_fits(record, probe.path, config, layer=probe.layer)
    if record.tsae.top_k is not None:
        raise ConfigError(
            f"probe.path={probe.path!r} keeps each token's {record.tsae.top_k} largest "
            "latents, so that none can be read without all the others; use one with "
            "thresholds"
        )
    return record


def check_asked(config: Config, tokenize: Callable[[str], Sequence[int]]) -> None:
    """Raises ConfigError where the probe that a config asks for cannot be.

    Before any work: its autoencoder, if it exists already, and its features, if named.
    """
    probe = config.probe
    if probe.source == "path":
        latents = given(config).tsae.latents
    else:
        latents = probe.dictionary.sae.latents
    if probe.source != "off":
        check_named(probe.features, latents, tokenize=tokenize)


def check_fits(
    record: SAERecord, where: str | Path, config: Config, *, layer: int
) -> None:
    """Raises ConfigError where an autoencoder is of another width, layer or model.

    Both are named. What its metadata do not say is not checked.
    """
    tsae, told = record.tsae, record.metadata
    model = config.probe.model or config.name
    if tsae.width != config.model.width:
        raise ConfigError(
            f"{where} reads activations of width {tsae.width}, but the policy "
            f"{config.name!r} has width {config.model.width}; use an autoencoder of "
            "this model"
        )
    hook = str(told.get("hook_name") or "")
    known = (f"blocks.{layer}.hook_resid_post", f"model.layers.{layer}")
    if hook and hook not in known:
        raise ConfigError(
            f"{where} was trained on {hook}, but layer={layer} is {known[0]}; choose "
            "that layer, or another autoencoder"
        )
    other = str(told.get("model_name") or "").split(", step ", maxsplit=1)[0]
    if other and other != model:
        raise ConfigError(
            f"{where} was trained on the model {other!r}, but the policy is {model!r}; "
            f"use an autoencoder of this model, or set probe.model={other!r} if they "
            "are the same"
        )
