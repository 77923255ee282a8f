"""The records that flow between stages. Axes are spelled in docs/notation.md."""

import dataclasses
from typing import Any

import jax
from jaxtyping import Bool, Float, Int

Array = Any  # JAX's on a device, NumPy's on the host: a record travels between both


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs:
    """Activations with a partner each, from the same document and role.

    Written by `pairs`, read by `optimize`. Raw activations: normalisation is the
    trainer's. Rows where `valid` is false are padding: they reach neither loss,
    gradient nor statistics.
    """

    x: Float[Array, " B D"]
    partner: Float[Array, " B D"]
    valid: Bool[Array, " B"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossParts:
    """What the loss says of itself. Written by `losses`, read by `optimize`.

    `reconstruction` holds the squared error of each nested reconstruction, in the unit
    of `variance`, the mean squared distance of the valid rows from their mean; neither
    they nor `contrast` and `auxk` carry a weight. `silence` counts tokens since each
    latent fired, this batch included, and `dead` the latents silent for too long;
    `active` counts the activations kept and `cut` is the smallest of them, or 0.
    """

    loss: Float[Array, ""]
    reconstruction: Float[Array, " G"]
    contrast: Float[Array, ""]
    auxk: Float[Array, ""]
    silence: Int[Array, " Z"]
    dead: Int[Array, ""]
    cut: Float[Array, ""]
    active: Int[Array, ""]
    rows: Int[Array, ""]
    variance: Float[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """What a step says of each clone. Written by `optimize`, read by `train`.

    `fve` is the share of the batch's variance that all groups explain, `fve_high` what
    the first group explains alone; `l0` the active latents a token; `threshold` the one
    that inference would use now, on normalised activations.
    """

    loss: Float[Array, " C"]
    contrast: Float[Array, " C"]
    auxk: Float[Array, " C"]
    fve: Float[Array, " C"]
    fve_high: Float[Array, " C"]
    l0: Float[Array, " C"]
    dead: Int[Array, " C"]
    threshold: Float[Array, " C"]
    grad_norm: Float[Array, " C"]
    learning_rate: Float[Array, " C"]
