"""Tokens, seconds and FLOPs of a training stage."""

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from rlvr_jax.config import ModelConfig

_NUM_PRODUCTS = 3
PHASES = ("reshard", "rollout", "verify", "update", "probe")


class StepTimer:
    """Splits one step's wall time into phases."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Adds the time since the last lap to that of `phase`."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        self._last = now


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """Steps, completion tokens and seconds of a training stage so far.

    `sampled_tokens` are those of every group drawn, `trained_tokens` those of the
    groups in updates. `seconds` has a number for each phase of a step.
    """

    steps: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    seconds: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(PHASES, 0.0)
    )

    def add_step(
        self, timer: StepTimer, *, sampled_tokens: int, trained_tokens: int
    ) -> Self:
        """Returns the sums with one more step in them."""
        return dataclasses.replace(
            self,
            steps=self.steps + 1,
            sampled_tokens=self.sampled_tokens + sampled_tokens,
            trained_tokens=self.trained_tokens + trained_tokens,
            seconds={
                phase: total + timer.seconds.get(phase, 0.0)
                for phase, total in self.seconds.items()
            },
        )

    @property
    def total_seconds(self) -> float:
        """Returns the seconds of all phases together."""
        return sum(self.seconds.values())

    def to_json(self) -> dict[str, Any]:
        """Returns the record as plain JSON; `Timing(**data)` reads it back."""
        return dataclasses.asdict(self)


def summary(
    timing: Timing,
    *,
    model: ModelConfig,
    vocab_size: int,
    frozen: bool = False,
) -> dict[str, Any]:
    """Returns tokens per second of sampling and of updates, and the update's MFU.

    Tokens are completion tokens. `mfu` is the matrix-product FLOPs of the update's
    tokens (6 a weight: 2 forward, 4 backward, of which `frozen` weights save 2;
    prompts, attention scores and adapters are not counted) over its seconds and over
    `peak_flops`, which is measured, not taken from a data sheet. Empty before any step
    has been timed.
    """
    if not timing.steps:
        return {}
    weights = num_matmul_weights(model, vocab_size)
    flops = (4 if frozen else 6) * weights * timing.trained_tokens
    peak, seconds = peak_flops(model.compute_dtype), timing.seconds
    return {
        "rollout_tokens_per_s": timing.sampled_tokens / seconds["rollout"],
        "update_tokens_per_s": timing.trained_tokens / seconds["update"],
        "step_s": timing.total_seconds / timing.steps,
        "verify_share": seconds["verify"] / timing.total_seconds,
        "mfu": flops / seconds["update"] / peak,
        "peak_flops": peak,
    }


def num_matmul_weights(model: ModelConfig, vocab_size: int) -> int:
    """Returns the weights that multiply every token: layers and output head."""
    heads = 2 * model.num_heads + 2 * model.num_kv_heads
    layer = model.hidden_size * (heads * model.head_dim + 3 * model.intermediate_size)
    return model.num_layers * layer + vocab_size * model.hidden_size


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
        for _ in range(_NUM_PRODUCTS):
            product = multiply(a, b)
        product.block_until_ready()
    seconds = time.perf_counter() - start
    return _NUM_PRODUCTS * 2.0 * height * width * width / seconds
