"""Tokens, seconds and FLOPs of a training stage."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.config import ModelConfig

_PRODUCTS = 3
_PARTS = ("reshard", "rollout", "judge", "update", "probe")


def nothing() -> dict[str, float]:
    """Returns the counts before the first step: plain JSON, fit for a checkpoint."""
    counts = ("steps", "sampled", "learnt", *(f"{part}_s" for part in _PARTS))
    return dict.fromkeys(counts, 0.0)


class Clock:
    """Splits one step's wall time into its parts."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, part: str) -> None:
        """Adds the time since the last lap to that of `part`."""
        now = time.perf_counter()
        name = f"{part}_s"
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._last
        self._last = now


def add(
    total: dict[str, float], clock: Clock, *, sampled: int, learnt: int
) -> dict[str, float]:
    """Returns the counts with one more step, its completion tokens counted twice.

    `sampled` are those of every group drawn, `learnt` those of the groups updated on.
    """
    step = {"steps": 1.0, "sampled": sampled, "learnt": learnt, **clock.seconds}
    return {name: value + step.get(name, 0.0) for name, value in total.items()}


def summary(
    total: dict[str, float],
    *,
    model: ModelConfig,
    vocab_size: int,
    frozen: bool = False,
) -> dict[str, Any]:
    """Returns rates over the counted steps, and the update's share of the peak.

    Tokens are completion tokens: a rollout's rate counts all that were sampled, the
    update's those that it read. `mfu` is the update's matrix-product FLOPs for them
    (6 a weight: 2 forward, 4 backward, of which `frozen` weights save 2; prompts,
    attention scores and adapters are not counted) over its seconds and over
    `peak_flops`, which is measured, not taken from a sheet.
    """
    if not total["steps"]:
        return {}
    flops = (4 if frozen else 6) * matmul_weights(model, vocab_size) * total["learnt"]
    peak = peak_flops(model.compute_dtype)
    return {
        "rollout_tokens_per_s": total["sampled"] / total["rollout_s"],
        "update_tokens_per_s": total["learnt"] / total["update_s"],
        "step_s": sum(total[f"{part}_s"] for part in _PARTS) / total["steps"],
        "judge_share": total["judge_s"] / sum(total[f"{part}_s"] for part in _PARTS),
        "mfu": flops / total["update_s"] / peak,
        "peak_flops": peak,
    }


def matmul_weights(model: ModelConfig, vocab_size: int) -> int:
    """Returns the weights that multiply every token: layers and output head."""
    heads = 2 * model.heads + 2 * model.kv_heads
    layer = model.width * (heads * model.head_width + 3 * model.mlp_width)
    return model.layers * layer + vocab_size * model.width


def peak_flops(dtype: str) -> float:
    """Returns the FLOP/s of one large matrix product over all local devices."""
    devices = np.array(jax.local_devices())
    mesh = jax.sharding.Mesh(devices, ("device",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    width = 2048 if devices[0].platform == "cpu" else 8192
    height = width * len(devices)
    a = jax.device_put(np.ones((height, width), dtype), rows)
    b = jax.device_put(np.ones((width, width), dtype), whole)
    with jax.set_mesh(mesh):
        multiply = jax.jit(jnp.matmul)
        multiply(a, b).block_until_ready()
        start = time.perf_counter()
        for _ in range(_PRODUCTS):
            product = multiply(a, b)
        product.block_until_ready()
    seconds = time.perf_counter() - start
    return _PRODUCTS * 2.0 * height * width * width / seconds
