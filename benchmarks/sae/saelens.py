"""Worker in the peers' environment: SAELens' own trainer and BatchTopK autoencoder."""

import os
import time

import sae_lens
import torch
from sae_lens import BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig
from sae_lens.config import LoggingConfig, SAETrainerConfig
from sae_lens.training.sae_trainer import SAETrainer

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.sae.job import Job

_STEPS = 100_000  # in the schedule; far more than are measured


def main() -> None:
    """Warms up, then trains one step per request."""
    channel = Channel()
    job = channel.receive_job(Job)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    sae = BatchTopKTrainingSAE(
        BatchTopKTrainingSAEConfig(
            d_in=job.width, d_sae=job.latents, k=job.k, dtype="float32", device="cpu"
        )
    )
    config = SAETrainerConfig(
        n_checkpoints=0,
        checkpoint_path=None,
        save_final_checkpoint=False,
        total_training_samples=_STEPS * job.batch_size,
        device="cpu",
        autocast=False,
        lr=3e-4,
        lr_end=3e-5,
        lr_scheduler_name="constant",
        lr_warm_up_steps=0,
        adam_beta1=0.9,
        adam_beta2=0.999,
        lr_decay_steps=0,
        n_restart_cycles=1,
        train_batch_size_samples=job.batch_size,
        dead_feature_window=1000,
        feature_sampling_window=2000,
        logger=LoggingConfig(log_to_wandb=False),
    )
    batch = torch.from_numpy(job.activations())
    trainer = SAETrainer(cfg=config, sae=sae, data_provider=iter(()))
    start = time.perf_counter()
    trainer.step(batch)
    first_step_s = time.perf_counter() - start
    versions = {one.__name__: one.__version__ for one in (torch, sae_lens)}
    channel.send({"versions": versions, "first_step_s": first_step_s})
    while channel.wants_step():
        start = time.perf_counter()
        trainer.step(batch)
        channel.send(
            {"update_s": time.perf_counter() - start, "tokens": job.batch_size}
        )
    channel.send({"peak_rss_bytes": peak_rss_bytes()})


if __name__ == "__main__":
    main()
