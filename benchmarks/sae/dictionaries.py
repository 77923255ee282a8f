"""Worker in the peers' environment: dictionary_learning's own BatchTopK trainer."""

import importlib.metadata
import os
import time

import torch
from dictionary_learning.trainers.batch_top_k import BatchTopKTrainer

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.sae.job import Job

_STEPS = 100_000  # in the schedule; far more than are measured


def main() -> None:
    """Warms up, then trains one step per request."""
    channel = Channel()
    job = channel.receive_job(Job)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    trainer = BatchTopKTrainer(
        steps=_STEPS,
        activation_dim=job.width,
        dict_size=job.latents,
        k=job.k,
        layer=0,
        lm_name="none",
        lr=3e-4,
        device="cpu",
        seed=0,
    )
    batch = torch.from_numpy(job.activations())
    start = time.perf_counter()
    trainer.update(0, batch)
    first_step_s = time.perf_counter() - start
    channel.send(
        {
            "versions": {
                "torch": torch.__version__,
                "dictionary_learning": importlib.metadata.version(
                    "dictionary-learning"
                ),
            },
            "first_step_s": first_step_s,
        }
    )
    step = 1
    while channel.wants_step():
        start = time.perf_counter()
        trainer.update(step, batch)
        channel.send(
            {"update_s": time.perf_counter() - start, "tokens": job.batch_size}
        )
        step += 1
    channel.send({"peak_rss_bytes": peak_rss_bytes()})


if __name__ == "__main__":
    main()
