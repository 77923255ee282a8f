"""Records that pass between stages. docs/method/notation.md explains the axes."""

import dataclasses
from typing import Any

import jax
from jaxtyping import Bool, Float, Int

Array = Any  # JAX on a device or NumPy on the host; records move between both


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs:
    """A batch of token activations `x`, each with a positive of the same document.

    The positive is an earlier token of the same document and role. Made by `pairs`,
    used by `optimize`. Both are raw activations; the trainer normalizes them. Rows
    where `valid` is false are padding and affect no loss, gradient or statistic.
    """

    x: Float[Array, " B D"]
    positive: Float[Array, " B D"]
    valid: Bool[Array, " B"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossAux:
    """The parts of a batch's loss. Made by `losses`, used by `optimize`.

    `reconstruction` holds the squared error of each nested reconstruction, in the unit
    of `variance`, which is the mean squared distance of the valid rows from their mean.
    These, `contrast` and `auxk` are not weighted yet. `tokens_since_fired` counts the
    tokens since each latent fired, including this batch, and `num_dead` the latents
    that have been silent too long. `num_active` counts the kept activations, and
    `min_kept` is the smallest of them (or 0).
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

    `fve` is the share of the batch's variance that all groups explain, and `fve_high`
    the share that the first group explains alone. `l0` is the number of active latents
    a token, and `threshold` the moving average that inference would use now, on
    normalized activations.
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
