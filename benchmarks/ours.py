"""Worker: our step, made of the calls that the training loop makes."""

import functools
import importlib.metadata
import math
import os
import time
from typing import Any

import jax
import numpy as np
from flax import nnx

from benchmarks.channel import Channel, peak_rss_bytes
from benchmarks.counts import model_config
from benchmarks.job import Job, reward
from job_jax.config import MeshConfig
from job_jax.mesh import (
    batch_sharding,
    configure_cpu,
    make_mesh,
    replicated_sharding,
)
from job_jax.metrics import CompileCounter
from rlvr_jax.config import Config, OptimizerConfig, SamplingConfig, TrainConfig
from rlvr_jax.learn import group_advantages
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.run_updates import run_updates
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer, param_shardings
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.sampler import pad_prompts, sample
from rlvr_jax.tokenizer import WordLevelTokenizer
from rlvr_jax.types import Rollouts


class OurStep:
    """Our GRPO step: a policy and its optimizer on the current mesh."""

    def __init__(self, job: Job, mesh: jax.sharding.Mesh):
        self._job = job
        self._config = _make_config(job)
        self._tokenizer = WordLevelTokenizer(job.vocabulary)
        self._place = functools.partial(jax.device_put, device=batch_sharding(mesh))
        self._graphdef, self._params = _init_policy(job, mesh)
        self._sampling = jax.device_put(
            SamplingParams.from_config(self._config.train.sampling),
            replicated_sharding(mesh),
        )
        self._updater = Updater(
            self._graphdef,
            policy_objective(self._config.train.loss),
            optimizer=self._config.train.optimizer,
            total_steps=1,
            logits_chunk_size=self._config.train.logits_chunk_size,
        )
        self._state: Any = None
        self._step_key = jax.jit(
            functools.partial(jax.random.fold_in, jax.random.key(0))
        )
        self._advantages = jax.jit(group_advantages)

    def init_optimizer(self) -> None:
        """Makes the optimizer's state."""
        self._state = self._updater.init(self._params)

    def step(self) -> dict[str, float]:
        """Takes a step; returns the seconds of its parts and its completion tokens."""
        clock = StepTimer()
        rollouts = self._rollouts()
        clock.lap("rollout")
        texts = [self._tokenizer.decode(ids) for ids in rollouts.tokens.tolist()]
        rewards_B = np.array([reward(text) for text in texts], np.float32)
        advantages_PG = jax.device_get(
            self._advantages(rewards_B.reshape(self._job.num_prompts, -1))
        )
        clock.lap("verify")
        self._state = run_updates(
            self._config,
            self._updater,
            self._state,
            batch=batch_from_rollouts(rollouts, advantages_PG),
            weight_version=rollouts.weight_version,
            ref_params=None,
            sampling=self._sampling,
            to_device=self._place,
        ).state
        jax.block_until_ready(self._state)
        clock.lap("update")
        seconds = {f"{phase}_s": value for phase, value in clock.seconds.items()}
        return seconds | {"tokens": int(rollouts.lengths.sum())}

    def _rollouts(self) -> Rollouts:
        job = self._job
        prompts = pad_prompts(
            [self._tokenizer.encode(text) for text in job.prompt_texts()],
            uids=range(job.num_prompts),
            pad_multiple=self._config.prompt_pad_multiple,
        )
        rollouts = sample(
            self._graphdef,
            self._state.params,
            self._place(prompts),
            self._sampling,
            key=self._step_key(self._state.step),
            weight_version=self._state.step,
            num_samples=job.group_size,
            max_new_tokens=job.new_tokens,
        )
        return jax.device_get(rollouts)


def _make_config(job: Job) -> Config:
    return Config(
        model=model_config(job),
        prompt_pad_multiple=job.prompt_tokens,
        train=TrainConfig(
            batch_size=job.num_prompts,
            group_size=job.group_size,
            sampling=SamplingConfig(max_new_tokens=job.new_tokens),
            optimizer=OptimizerConfig(learning_rate=1e-6),
        ),
    )


def _init_policy(job: Job, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
    """Returns a randomly initialized policy: its structure and sharded parameters."""

    def new() -> Transformer:
        rngs = nnx.Rngs(jax.random.key(0))
        config = model_config(job)
        return Transformer(config, job.vocab_size, rngs, eos_ids=(job.eos_id,))

    policy = nnx.eval_shape(new)
    layout = param_shardings(policy, mesh)
    params = jax.jit(lambda: nnx.state(new()), out_shardings=layout)()
    return nnx.graphdef(policy), jax.block_until_ready(params)


def main() -> None:
    """Warms up, then takes a step whenever asked."""
    channel = Channel()
    job = channel.receive_job(Job)
    # One virtual device per core, as far as the prompts divide over them.
    cores = len(os.sched_getaffinity(0))
    config = MeshConfig(cpu_devices=math.gcd(cores, job.num_prompts))
    configure_cpu(config)
    mesh = make_mesh(config)
    with jax.set_mesh(mesh):
        ours = OurStep(job, mesh)
        start = time.perf_counter()
        ours.init_optimizer()
        ours.step()
        first_step_s = time.perf_counter() - start
        ours.step()
        compiles = CompileCounter()
        versions = {name: importlib.metadata.version(name) for name in ("jax", "flax")}
        channel.send(
            {
                "versions": versions,
                "chosen": {"devices": mesh.size},
                "first_step_s": first_step_s,
            }
        )
        while channel.wants_step():
            channel.send(ours.step())
    channel.send({"peak_rss_bytes": peak_rss_bytes(), "compiles": compiles.count})


if __name__ == "__main__":
    main()
