"""How fast the run's devices are: measured in a moment, or published."""

import dataclasses
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from job_jax.machine import usable_cores
from rlvr_jax.plan.topology import Chip

_NUM_RUNS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """The rates of all devices together."""

    flops: float  # a second, of matrix products
    bytes_per_s: float

    @classmethod
    def of_chips(cls, chip: Chip, count: int) -> "Speed":
        """Returns the published rates of `count` chips."""
        return cls(
            flops=count * chip.bfloat16_flops, bytes_per_s=count * chip.hbm_bytes_per_s
        )

    @classmethod
    def measure(cls, dtype: str, devices: Sequence[jax.Device]) -> "Speed":
        """Returns the rates of these devices, measured in about a tenth of a second.

        On a CPU they are the rates of an idle machine, even if other work runs now,
        because processor time is counted.
        """
        on_cpu, count = devices[0].platform == "cpu", len(devices)
        width, numbers = (1024, 1 << 23) if on_cpu else (8192, 1 << 28)
        rows = max(1, 2 * width // count) * count
        mesh = jax.sharding.Mesh(np.array(devices), ("device",))
        split, whole = (
            jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))
            for axes in (("device",), ())
        )
        left = jax.device_put(np.ones((rows, width), dtype), split)
        right = jax.device_put(np.ones((width, width), dtype), whole)
        array = jax.device_put(np.ones((numbers // count * count,), "float32"), split)
        clock = _processor_seconds if on_cpu else time.perf_counter
        with jax.set_mesh(mesh):
            product = _time(jax.jit(jnp.matmul), left, right, clock=clock)
            copy = _time(jax.jit(lambda x: x + 1), array, clock=clock)
        return cls(
            flops=2.0 * rows * width * width / product,
            bytes_per_s=2 * array.nbytes / copy,
        )


def _processor_seconds() -> float:
    """Returns this process's processor time over the cores that it may use."""
    return time.process_time() / usable_cores()


def _time(
    program: Callable[..., jax.Array], *args: jax.Array, clock: Callable[[], float]
) -> float:
    """Returns the least seconds of a run, after one that compiles."""
    program(*args).block_until_ready()
    seconds = []
    for _ in range(_NUM_RUNS):
        start = clock()
        program(*args).block_until_ready()
        seconds.append(clock() - start)
    return max(min(seconds), 1e-9)
