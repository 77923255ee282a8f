"""Times a call on a device: compiling separately, then several calls in a row."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax

from job_jax.metrics import CompileCounter


def time_call(call: Callable[[], Any], *, repeats: int) -> tuple[Any, dict[str, Any]]:
    """Returns the last result of `call`, and the seconds until each result is ready.

    `first_s` is the first call with tracing and compiling; `compile_s` is the part for
    compiling (little if the program was in the compile cache). `seconds` has the
    `repeats` calls after it; `min_s` and `median_s` are their minimum and median.
    """
    compiles = CompileCounter()
    result, first_s = _timed(call)
    compile_s = compiles.seconds
    seconds = []
    for _ in range(repeats):
        del result  # two results may not fit into the device's memory
        result, took = _timed(call)
        seconds.append(took)
    return result, {
        "first_s": first_s,
        "compile_s": compile_s,
        "seconds": seconds,
        "min_s": min(seconds),
        "median_s": statistics.median(seconds),
    }


def peak_memory() -> int | None:
    """Returns the device's peak memory in bytes, or None if it does not report it."""
    stats = jax.local_devices()[0].memory_stats()
    return None if stats is None else stats.get("peak_bytes_in_use")


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    return result, time.perf_counter() - start
