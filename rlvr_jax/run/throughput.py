"""Tokens, seconds and FLOPs of a training stage."""

import dataclasses
import math
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from rlvr_jax.config import ModelConfig

_NUM_PRODUCTS = 3
PHASES = ("reshard", "rollout", "verify", "update", "probe")
_WAITING = ("reshard", "rollout")  # phases in which the host waits for the sampler

Span = tuple[float, float]  # two times of `time.perf_counter`


class InFlight:
    """Measures when a program started and when its results were ready.

    A separate thread waits for the results; it only reads the clock.
    """

    def __init__(self, results: PyTree):
        self._start, self._end = time.perf_counter(), float("inf")
        if all(leaf.is_ready() for leaf in jax.tree.leaves(results)):
            self._end = self._start
            return
        threading.Thread(target=self._watch, args=(results,), daemon=True).start()

    @property
    def span(self) -> Span:
        """Returns the two times; the second is infinite while the program runs."""
        return self._start, self._end

    def _watch(self, results: PyTree) -> None:
        jax.block_until_ready(results)
        self._end = time.perf_counter()


class StepTimer:
    """Splits one step's wall time into phases."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._others: list[Span] = []
        self.seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        """Adds the time since the last lap to `phase`."""
        now = time.perf_counter()
        self.seconds[phase] = self.seconds.get(phase, 0.0) + now - self._last
        if phase not in _WAITING:
            self._others.append((self._last, now))
        self._last = now

    def overlap_seconds(self, in_flight: Iterable[InFlight]) -> float:
        """Returns how long one of these ran while the host did other work.

        That work is verifying, and updating if the sampler has separate devices.
        """
        return overlap_seconds(self._others, [each.span for each in in_flight])


def overlap_seconds(laps: Sequence[Span], spans: Sequence[Span]) -> float:
    """Returns the seconds of disjoint `laps` in which at least one span was open."""
    total = 0.0
    for start, end in laps:
        covered_to = start
        for opened, closed in sorted(spans):
            first, last = max(opened, covered_to), min(closed, end)
            if last > first:
                total += last - first
                covered_to = last
    return total


@dataclasses.dataclass(frozen=True, kw_only=True)
class Timing:
    """Steps, completion tokens and seconds of a training stage so far.

    `sampled_tokens` counts every group that was sampled, `trained_tokens` only groups
    in updates. `seconds` has a number for each phase of a step; `overlap_seconds` is
    the time in which sampling ran during other phases.
    """

    steps: int = 0
    sampled_tokens: int = 0
    trained_tokens: int = 0
    seconds: Mapping[str, float] = dataclasses.field(
        default_factory=lambda: dict.fromkeys(PHASES, 0.0)
    )
    overlap_seconds: float = 0.0

    def add_step(
        self,
        timer: StepTimer,
        *,
        sampled_tokens: int,
        trained_tokens: int,
        overlap_seconds: float = 0.0,
    ) -> Self:
        """Returns the sums with one more step."""
        return dataclasses.replace(
            self,
            steps=self.steps + 1,
            sampled_tokens=self.sampled_tokens + sampled_tokens,
            trained_tokens=self.trained_tokens + trained_tokens,
            seconds={
                phase: total + timer.seconds.get(phase, 0.0)
                for phase, total in self.seconds.items()
            },
            overlap_seconds=self.overlap_seconds + overlap_seconds,
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
    devices: Sequence[jax.Device],
    num_devices: int,
    num_epochs: int,
    frozen: bool = False,
) -> dict[str, Any]:
    """Returns tokens per second of sampling and of updates, and the update's MFU.

    Tokens are completion tokens; an update reads each `num_epochs` times. The time of
    sampling is the time that steps waited for it, plus the time that it ran during
    other phases (`overlap_share` of all time).

    `mfu` is the update's matrix-product FLOPs per second, over `peak_flops`. It counts
    6 FLOPs for each weight and token: 2 forward and 4 backward, where `frozen` weights
    save 2. It does not count prompts, attention scores and adapters. `peak_flops` is
    measured on this process's `devices` of the update's `num_devices`, and is of all
    of these; it is not taken from a data sheet.

    Empty before any step has been timed.
    """
    if not timing.steps:
        return {}
    weights = num_matmul_weights(model, vocab_size)
    trained = num_epochs * timing.trained_tokens
    flops = (4 if frozen else 6) * weights * trained
    measured, seconds = peak_flops(model.compute_dtype, devices), timing.seconds
    peak = measured * num_devices / len(devices)
    overlap = timing.overlap_seconds
    return {
        "rollout_tokens_per_s": timing.sampled_tokens / (seconds["rollout"] + overlap),
        "update_tokens_per_s": trained / seconds["update"],
        "step_s": timing.total_seconds / timing.steps,
        "verify_share": seconds["verify"] / timing.total_seconds,
        "overlap_share": overlap / timing.total_seconds,
        "mfu": flops / seconds["update"] / peak,
        "peak_flops": peak,
    }


def num_matmul_weights(model: ModelConfig, vocab_size: int) -> int:
    """Returns the weights that multiply every token: layers and output head."""
    heads = 2 * model.num_heads + 2 * model.num_kv_heads
    layer = model.hidden_size * (heads * model.head_dim + 3 * model.intermediate_size)
    return model.num_layers * layer + vocab_size * model.hidden_size


def peak_flops(dtype: str, devices: Sequence[jax.Device]) -> float:
    """Returns the FLOP/s of one large matrix product over these devices."""
    mesh = jax.sharding.Mesh(np.array(devices), ("device",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    width, height = 8192, 8192 * len(devices)
    if devices[0].platform == "cpu":  # CPU devices share the cores of one machine
        width, height = 2048, math.ceil(4096 / len(devices)) * len(devices)
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
