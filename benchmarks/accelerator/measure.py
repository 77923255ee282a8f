"""The measurements: one function for each `Part.kind` that runs on the device."""

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import jax

from benchmarks.accelerator.autoencoder import measure_training
from benchmarks.accelerator.decode import measure_decoding
from benchmarks.accelerator.grpo import measure_step
from benchmarks.accelerator.parity import compare_kernel
from benchmarks.accelerator.parts import StepSize
from benchmarks.accelerator.workload import published_workload
from benchmarks.machine import bytes_per_s
from benchmarks.sae.job import JOBS
from job_jax.mesh import describe_devices
from rlvr_jax.run.throughput import peak_flops

_PACKAGES = ("jax", "jaxlib", "flax", "optax")
_TRIES = 3


def machine() -> dict[str, Any]:
    """Returns the device, the versions, and the measured peaks."""
    device = jax.devices()[0]
    on_cpu = device.platform == "cpu"
    dtype = "float32" if on_cpu else "bfloat16"
    return {
        "platform": device.platform,
        "kind": device.device_kind,
        "devices": describe_devices(),
        "versions": {"python": sys.version.split()[0]}
        | {name: metadata.version(name) for name in _PACKAGES},
        "dtype": dtype,
        "peak_flops": max(peak_flops(dtype, [device]) for _ in range(_TRIES)),
        "bytes_per_s": bytes_per_s([device], passes=1 if on_cpu else 20),
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        "load": os.getloadavg()[0],
    }


def attention(shapes: Sequence[str]) -> dict[str, Any]:
    """Returns the error of the attention kernel with the heads of each shape."""
    return {"cases": [{"shape": shape, **compare_kernel(shape)} for shape in shapes]}


def decoding(
    shape: str, batch: int, *, least: int, shortest: int, longest: int, repeats: int
) -> dict[str, Any]:
    """Returns tokens and seconds for `least` sequences, or `batch` if that is more."""
    work = published_workload(max(least, batch), shortest=shortest, limit=longest)
    return measure_decoding(shape, work, batch=batch, repeats=repeats)


def grpo(shape: str, adapters: bool, *, step: StepSize, repeats: int) -> dict[str, Any]:
    """Returns the seconds and FLOPs of a GRPO step, by part."""
    return measure_step(shape, adapters=adapters, step=step, repeats=repeats)


def autoencoder(jobs: Sequence[str], *, repeats: int) -> dict[str, Any]:
    """Returns the seconds of training steps, for the T-SAE and for BatchTopK."""
    return {
        "cases": [
            measure_training(JOBS[name], kind=kind, repeats=repeats)
            for name in jobs
            for kind in ("temporal", "batchtopk")
        ]
    }
