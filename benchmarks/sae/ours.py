"""Worker: our training step, on the default mesh of `sae_jax.train`.

The first argument is `batchtopk`, as the peers train, or `temporal`: nested groups,
the contrast between tokens and their partners, and no twin.
"""

import sys
import time
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.sae.job import Job
from job_jax.mesh import batch_sharding, configure_cpu, make_mesh
from job_jax.metrics import CompileCounter
from sae_jax.config import Config, LossConfig, PairsConfig, SAEConfig, TrainConfig
from sae_jax.optimize import init_state, train_step
from sae_jax.types import Pairs

_WARM_STEPS = 2


def make_config(kind: str, job: Job) -> Config:
    """Returns the config for a kind of training, `batchtopk` or `temporal`."""
    groups, weights, alpha = {
        "batchtopk": ((1.0,), (1.0,), 0.0),
        "temporal": ((0.2, 0.8), (1.0, 1.0), 0.1),
    }[kind]
    rows = min(LossConfig().contrast_block_size, job.batch_size)
    return Config(
        sae=SAEConfig(latents=job.latents, k=job.k, group_fractions=groups),
        loss=LossConfig(alpha=alpha, group_weights=weights, contrast_block_size=rows),
        pairs=PairsConfig(batch_size=job.batch_size),
        train=TrainConfig(no_contrast_baseline=False),
    )


class TrainStep:
    """A training step on one batch that stays on the mesh; each call takes a step."""

    def __init__(self, config: Config, x_BD: np.ndarray, mesh: Mesh):
        pairs = Pairs(
            x=x_BD, positive=np.roll(x_BD, 1, axis=0), valid=np.ones(len(x_BD), bool)
        )
        self._pairs = jax.device_put(pairs, batch_sharding(mesh))
        self._config = config
        self._state = init_state(self._pairs, config=config)

    def __call__(self) -> Any:
        """Returns the step's report, which may still be in computation."""
        self._state, report = train_step(self._state, self._pairs, config=self._config)
        return report


def main() -> None:
    """Warms up, then trains one step per request."""
    channel = Channel()
    job = channel.receive_job(Job)
    config = make_config(sys.argv[1], job)
    configure_cpu(config.mesh)
    mesh = make_mesh(config.mesh)
    x_BD = job.activations()
    start = time.perf_counter()
    with jax.set_mesh(mesh):
        step = TrainStep(config, x_BD, mesh)
        jax.block_until_ready(step())
        first_step_s = time.perf_counter() - start
        for _ in range(_WARM_STEPS):
            jax.block_until_ready(step())
        compiles = CompileCounter()
        channel.send(
            {
                "versions": {"jax": jax.__version__},
                "chosen": {"devices": jax.device_count()},
                "first_step_s": first_step_s,
            }
        )
        while channel.wants_step():
            start = time.perf_counter()
            report = jax.block_until_ready(step())
            seconds = time.perf_counter() - start
            assert np.isfinite(jax.device_get(report.loss)).all()
            channel.send({"update_s": seconds, "tokens": job.batch_size})
        channel.send({"peak_rss_bytes": peak_rss_bytes(), "compiles": compiles.count})


if __name__ == "__main__":
    main()
