"""Training steps of the autoencoder on activations that stay on the device."""

from typing import Any

import jax

from benchmarks.accelerator.timing import peak_memory, time_call
from benchmarks.sae.job import Job
from benchmarks.sae.ours import TrainStep, make_config

_STEPS = 10  # per timed call, so that dispatching one step does not count


def measure_training(job: Job, *, kind: str, repeats: int) -> dict[str, Any]:
    """Returns the seconds of training steps, and the FLOPs of their dense products.

    `kind` is "temporal" (the T-SAE) or "batchtopk" (the same without contrast). The
    FLOPs are counted for BatchTopK; a T-SAE step does more.
    """
    step = TrainStep(make_config(kind, job), job.activations(), jax.sharding.get_mesh())

    def steps() -> Any:
        for _ in range(_STEPS):
            report = step()
        return report

    _, timing = time_call(steps, repeats=repeats)
    return {
        "kind": kind,
        "width": job.width,
        "latents": job.latents,
        "pairs": job.batch_size * _STEPS,
        "flops": _STEPS * job.matmul_flops()["dense"],
        "steps": timing,
        "peak_memory": peak_memory(),
    }
