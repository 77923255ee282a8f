"""The records that flow between stages. Axes are spelled in docs/notation.md."""

import dataclasses
from typing import Any

import jax
from jaxtyping import Bool, Float, Int

Array = Any  # JAX's on a device, NumPy's on the host: a record travels between both


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs:
    """A batch of token activations `x`, each with a positive of the same document.

    The positive is an earlier token of the same document and role. Written by `pairs`,
    read by `optimize`. Both are raw activations: the trainer normalizes them. Rows
    where `valid` is false are padding: they reach neither loss, gradient nor
    statistics.
    """

    x: Float[Array, " B D"]
    positive: Float[Array, " B D"]
    valid: Bool[Array, " B"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossAux:
    """The parts of a batch's loss. Written by `losses`, read by `optimize`.

    `reconstruction` holds the squared error of each nested reconstruction, in the unit
    of `variance`, the mean squared distance of the valid rows from their mean; neither
    they nor `contrast` and `auxk` are weighted yet. `tokens_since_fired` counts tokens
    since each latent fired, this batch included, and `num_dead` the latents silent for
    too long; `num_active` counts the activations kept, `min_kept` is the smallest (or
    0).
    """

    loss: Float[Array, ""]
    reconstruction: Float[Array, " G"]
    contrast: Float[Array, ""]
    auxk: Float[Array, ""]
    tokens_since_fired: Int[Array, " Z"]
    num_dead: Int[Array, ""]
    min_kept: Float[Array, ""]
    num_active: Int[Array, ""]
    num_rows: Int[Array, ""]
    variance: Float[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepMetrics:
    """The metrics of a training step per replica, from `optimize` to `train`.

    `fve` is the share of the batch's variance that all groups explain, `fve_high` what
    the first group explains alone; `l0` the active latents a token; `threshold` the
    moving average that inference would use now, on normalized activations.
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
