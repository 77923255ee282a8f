"""The optimizer: AdamW behind a global-norm clip, and its learning rate by step."""

import jax
import optax
from jaxtyping import Array

from rlvr_jax.config import OptimizerConfig


def schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Returns the learning rate by optimizer step: a linear warm-up, then its shape."""
    peak, ramp = config.learning_rate, config.warmup_steps
    after = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(
            peak, max(1, total_steps - ramp), alpha=config.final_fraction
        ),
    }[config.schedule]
    # Step 0 of a ramp from 0 would be an optimizer step that moves nothing.
    start = peak / (ramp + 1)
    return optax.join_schedules(
        [optax.linear_schedule(start, peak, ramp), after], [ramp]
    )


def make_optimizer(
    config: OptimizerConfig, total_steps: int
) -> optax.GradientTransformation:
    """Returns AdamW behind a global-norm clip; the scales of norms are not decayed."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(
            schedule(config, total_steps),
            b1=config.b1,
            b2=config.b2,
            eps=config.eps,
            weight_decay=config.weight_decay,
            mask=lambda params: jax.tree_util.tree_map_with_path(_is_decayed, params),
        ),
    )


def _is_decayed(path: tuple, _: Array) -> bool:
    return not any("norm" in str(part) for part in path)
