"""Parses --sae, --layers and --steer: which latents to change, and how far."""

import dataclasses
from collections.abc import Sequence

from job_jax.flags import ConfigFlags, UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentStrengths:
    """The latents to change after one layer."""

    layer: int
    sae: str
    strengths: dict[int, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SteeringFlags(ConfigFlags):
    """The flags that say what to change."""

    sae: tuple[str, ...] = ()  # autoencoders, in any format that sae_jax reads
    layers: tuple[int, ...] = ()  # the layer of each autoencoder, counted from 0
    steer: tuple[str, ...] = ()  # latents with their strengths, such as 382:1.5,17:-1


def parse_steering(flags: SteeringFlags) -> list[LatentStrengths]:
    """Returns the changes after each layer. Raises UsageError."""
    if not flags.steer:
        return []
    layers = flags.layers
    strengths: dict[int, dict[int, float]] = {layer: {} for layer in layers}
    if len(strengths) < len(layers):
        named = ",".join(map(str, layers))
        raise UsageError(f"--layers={named} names one of them twice")
    for item in flags.steer:
        layer, latent, strength = _parse_item(item, layers)
        if latent in strengths[layer]:
            raise UsageError(f"--steer names latent {latent} of layer {layer} twice")
        strengths[layer][latent] = strength
    unused = [layer for layer, changed in strengths.items() if not changed]
    if unused:
        raise UsageError(f"--steer names no latent of layer {unused[0]}")
    return [
        LatentStrengths(layer=layer, sae=sae, strengths=strengths[layer])
        for layer, sae in zip(layers, flags.sae, strict=True)
    ]


def _parse_item(item: str, layers: Sequence[int]) -> tuple[int, int, float]:
    """Returns layer, latent and strength of "382:1.5" or "2/382:1.5"."""
    where, _, strength = item.partition(":")
    layer, slash, latent = where.rpartition("/")
    try:
        found = int(layer) if slash else layers[0], int(latent), float(strength)
    except ValueError as error:
        raise UsageError(
            f"--steer={item}: write latent:strength, such as 382:1.5, or "
            "layer/latent:strength"
        ) from error
    if (not slash and len(layers) > 1) or found[0] not in layers:
        raise UsageError(
            f"--steer={item}: say which of the layers {','.join(map(str, layers))}, "
            f"such as {layers[-1]}/{item.rpartition('/')[2]}"
        )
    return found
