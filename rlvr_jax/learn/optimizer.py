"""The optimizer: AdamW behind a global-norm clip, in float32 or rounded to bfloat16.

Rounding is stochastic, so bfloat16 is right on average. A step of 1e-6 on a weight of
0.02 is far below half of bfloat16's spacing there, 1e-4; rounding to the nearest would
undo every such step. We round up with probability step / spacing, so the mean over
steps moves as in float32 (arXiv 2010.06192).
"""

import dataclasses
import math
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree, UInt16, UInt32

from rlvr_jax.config import OptimizerConfig

_DROPPED_BITS = 16  # bits of a float32's mantissa that a bfloat16 has no room for


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerMetrics:
    """Diagnostics of one optimizer step. Written by the update, read by the loop."""

    grad_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]
    consecutive_nonfinite: Int[Array, ""]

    def to_metrics(self) -> dict[str, float]:
        """Returns the metrics by name; optimizer/skipped is 1 for a skipped step."""
        return {
            "optimizer/grad_norm": float(self.grad_norm),
            "optimizer/learning_rate": float(self.learning_rate),
            "optimizer/skipped": int(self.consecutive_nonfinite > 0),
        }


class DivergedError(RuntimeError):
    """Too many optimizer steps in a row had a non-finite gradient."""


def check_not_diverged(
    report: OptimizerMetrics, max_consecutive_nonfinite: int
) -> None:
    """Raises DivergedError after more than that many non-finite steps in a row."""
    if report.consecutive_nonfinite > max_consecutive_nonfinite:
        raise DivergedError(
            f"{int(report.consecutive_nonfinite)} optimizer steps in a row had a "
            "non-finite gradient (optimizer.max_consecutive_nonfinite="
            f"{max_consecutive_nonfinite}); lower the learning rate, or look for "
            "infinities in the data"
        )


def make_schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Returns the learning rate by optimizer step: linear warm-up, then the rest."""
    peak, ramp = config.learning_rate, config.warmup_steps
    after = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(
            peak, max(1, total_steps - ramp), alpha=config.end_lr_fraction
        ),
    }[config.schedule]
    # A ramp that starts at 0 would waste step 0: it would move nothing.
    start = peak / (ramp + 1)
    return optax.join_schedules(
        [optax.linear_schedule(start, peak, ramp), after], [ramp]
    )


def make_optimizer(
    config: OptimizerConfig, total_steps: int
) -> optax.GradientTransformation:
    """Returns AdamW behind a global-norm clip; only matrices are decayed."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(
            make_schedule(config, total_steps),
            b1=config.b1,
            b2=config.b2,
            eps=config.eps,
            weight_decay=config.weight_decay,
            mask=lambda params: jax.tree_util.tree_map_with_path(_is_decayed, params),
        ),
    )


def restart_schedule(opt_state: PyTree) -> Any:
    """Returns an optimizer's state with its moments, at the schedule's first step.

    Adam's own count, which corrects the bias of young moments, does not restart.
    """

    def restart(node: object) -> PyTree:
        if isinstance(node, optax.ScaleByScheduleState):
            return node._replace(count=node.count * 0)
        return node

    return jax.tree.map(
        restart, opt_state, is_leaf=lambda x: isinstance(x, optax.ScaleByScheduleState)
    )


def _is_decayed(path: tuple, param: Array) -> bool:
    """Returns whether a parameter is a matrix: not a bias, a norm's scale or a vector.

    The layers of a stack share one array, whose first axis is the layer.
    """
    name = jax.tree_util.keystr(path)
    num_axes = param.ndim - ("blocks" in name)
    return num_axes > 1 and "norm" not in name and "bias" not in name


def stochastic_round(
    x: Float[Array, "*shape"], bits: UInt16[Array, "*shape"]
) -> Float[Array, "*shape"]:
    """Returns float32 x in bfloat16, one of its two neighbors there.

    Exactly as many of the 2^16 values of `bits` round x away from 0 as make the mean
    over all of them x. Numbers that bfloat16 holds and non-finite ones do not change.
    """
    raw = jax.lax.bitcast_convert_type(x, jnp.uint32)
    raised = raw + bits.astype(jnp.uint32)
    kept = (raised >> _DROPPED_BITS).astype(jnp.uint16)
    rounded = jax.lax.bitcast_convert_type(kept, jnp.bfloat16)
    return jnp.where(jnp.isfinite(x), rounded, x.astype(jnp.bfloat16))


def cast_like(tree: PyTree, like: PyTree, *, seed: int, step: Int[Array, ""]) -> PyTree:
    """Returns the tree in the dtypes of `like`, stochastically rounded to bfloat16.

    The random bits of a number are a function of (seed, step, path of its leaf,
    position in the leaf). They depend neither on other leaves nor on the mesh.
    """
    start = _hash_uint32(_hash_uint32(jnp.uint32(seed)) + step.astype(jnp.uint32))

    def rounded(path: tuple, x: Array, old: Array) -> Array:
        if old.dtype != jnp.bfloat16:
            return x
        name = zlib.crc32(jax.tree_util.keystr(path).encode())
        return stochastic_round(x, random_bits(start + jnp.uint32(name), x.shape))

    return jax.tree_util.tree_map_with_path(rounded, tree, like)


def random_bits(
    seed: UInt32[Array, ""], shape: tuple[int, ...]
) -> UInt16[Array, "..."]:
    """Returns 16 bits for each position of an array, a hash of `seed` and the position.

    It takes a few integer operations per number and no communication between devices;
    JAX's own keys take about 100. Positions are counted modulo 2^32.
    """
    strides = [math.prod(shape[axis + 1 :]) % 2**32 for axis in range(len(shape))]
    place = jnp.zeros(shape, jnp.uint32)
    for axis, stride in enumerate(strides):
        along = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        place = place + along * np.uint32(stride)
    word = jnp.broadcast_to(_hash_uint32(seed), shape)
    return (_hash_uint32(_hash_uint32(place ^ word) + word) >> _DROPPED_BITS).astype(
        jnp.uint16
    )


def to_float32(tree: PyTree) -> PyTree:
    """Returns the tree with its floating-point numbers in float32."""
    return jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x,
        tree,
    )


def _hash_uint32(x: Array) -> Array:
    """Returns a hash of each uint32: flipping a bit of x flips about half the bits."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = (x ^ (x >> shift)) * np.uint32(factor)
    return x ^ (x >> 16)
