"""Prints this machine's peak FLOP/s and bandwidth, as measured with JAX."""

import json
import statistics
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from job_jax.config import MeshConfig
from job_jax.mesh import configure_cpu, describe_devices
from rlvr_jax.run.throughput import peak_flops

_TRIES = 5
_ARRAY_SIZE = 1 << 26  # float32 numbers, 256 MiB: beyond any cache


def main() -> None:
    """Measures on the devices of our default mesh."""
    configure_cpu(MeshConfig())
    measured = {
        "device": describe_devices(),
        "peak_flops": max(
            peak_flops("float32", jax.local_devices()) for _ in range(_TRIES)
        ),
        "bytes_per_s": bytes_per_s(),
    }
    print(json.dumps(measured))


def bytes_per_s(
    devices: Sequence[jax.Device] | None = None, *, passes: int = 1
) -> float:
    """Returns the rate of reads and writes together of a large array.

    It runs on `devices` (default: all), and waits for the array after `passes` passes,
    because a fast device takes less time for one than the host takes to start it.
    """
    devices = jax.devices() if devices is None else devices
    mesh = jax.make_mesh((len(devices),), ("device",), devices=devices)
    rows = NamedSharding(mesh, PartitionSpec("device"))
    step = jax.jit(lambda x: x + 1, donate_argnums=0, out_shardings=rows)
    seconds = []
    with jax.set_mesh(mesh):
        # In place, because a new array would measure page faults.
        x = jax.jit(lambda: jnp.zeros(_ARRAY_SIZE, jnp.float32), out_shardings=rows)()
        x = jax.block_until_ready(step(x))
        for _ in range(_TRIES):
            start = time.perf_counter()
            for _ in range(passes):
                x = step(x)
            jax.block_until_ready(x)
            seconds.append(time.perf_counter() - start)
    return 2 * passes * x.nbytes / statistics.median(seconds)


if __name__ == "__main__":
    main()
