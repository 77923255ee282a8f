"""Parses --sae, --layers and --steer: which latents to change, and how far."""

import dataclasses
from collections.abc import Sequence

from absl import flags

from job_jax.command import UsageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentStrengths:
    """The latents to change after one layer."""

    layer: int
    sae: str
    strengths: dict[int, float]


def parse_steering(values: flags.FlagValues) -> list[LatentStrengths]:
    """Returns the changes after each layer. Raises UsageError."""
    if not values.steer:
        return []
    try:
        layers = [int(layer) for layer in values.layers]
    except ValueError as error:
        raise UsageError(
            f"--layers={','.join(values.layers)}: write numbers, such as 2 or 2,5"
        ) from error
    strengths: dict[int, dict[int, float]] = {layer: {} for layer in layers}
    if len(strengths) < len(layers):
        raise UsageError(f"--layers={','.join(values.layers)} names one of them twice")
    for item in values.steer:
        layer, latent, strength = _parse_item(item, layers)
        if latent in strengths[layer]:
            raise UsageError(f"--steer names latent {latent} of layer {layer} twice")
        strengths[layer][latent] = strength
    unused = [layer for layer, changed in strengths.items() if not changed]
    if unused:
        raise UsageError(f"--steer names no latent of layer {unused[0]}")
    return [
        LatentStrengths(layer=layer, sae=sae, strengths=strengths[layer])
        for layer, sae in zip(layers, values.sae, strict=True)
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
