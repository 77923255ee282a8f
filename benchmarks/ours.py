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
from job_jax.compiles import CompileCounter
from job_jax.config import MeshConfig
from job_jax.mesh import (
    batch_sharding,
    configure_cpu,
    make_mesh,
    replicated,
)
from rlvr_jax.config import Config, OptimizerConfig, SamplingConfig, TrainConfig
from rlvr_jax.learn import group_advantages
from rlvr_jax.learn.batches import rollout_batch
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.optimize import optimize
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer, shardings
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.sampler import pad_prompts, sample
from rlvr_jax.throughput import Clock
from rlvr_jax.tokenizer import SymbolTokenizer
from rlvr_jax.types import Rollouts


class Ours:
    """A policy and its optimizer on the current mesh, and the step that they take."""

    def __init__(self, job: Job, mesh: jax.sharding.Mesh):
        self._job = job
        self._config = _config(job)
        self._tokenizer = SymbolTokenizer(job.vocabulary)
        self._place = functools.partial(jax.device_put, device=batch_sharding(mesh))
        self._graphdef, self._params = _policy(job, mesh)
        self._sampling = jax.device_put(
            Sampling.of(self._config.train.sampling), replicated(mesh)
        )
        self._updater = Updater(
            self._graphdef,
            policy_objective(self._config.train.loss),
            optimizer=self._config.train.optimizer,
            total_steps=1,
            logit_chunk=self._config.train.logit_chunk,
        )
        self._state: Any = None
        self._step_key = jax.jit(
            functools.partial(jax.random.fold_in, jax.random.key(0))
        )
        self._advantages = jax.jit(group_advantages)

    def begin(self) -> None:
        """Makes the optimizer's state."""
        self._state = self._updater.init(self._params)

    def step(self) -> dict[str, float]:
        """Returns the seconds of one step's parts, and its completion tokens."""
        clock = Clock()
        rollouts = self._rollouts()
        clock.lap("rollout")
        texts = [self._tokenizer.decode(ids) for ids in rollouts.tokens.tolist()]
        rewards_B = np.array([reward(text) for text in texts], np.float32)
        advantages_PG = jax.device_get(
            self._advantages(rewards_B.reshape(self._job.prompts, -1))
        )
        clock.lap("judge")
        self._state = optimize(
            self._config,
            self._updater,
            self._state,
            batch=rollout_batch(rollouts, advantages_PG),
            weight_version=rollouts.weight_version,
            reference=None,
            sampling=self._sampling,
            place=self._place,
        ).state
        jax.block_until_ready(self._state)
        clock.lap("update")
        return {**clock.seconds, "tokens": int(rollouts.lengths.sum())}

    def _rollouts(self) -> Rollouts:
        job = self._job
        prompts = pad_prompts(
            [self._tokenizer.encode(text) for text in job.prompt_texts()],
            uids=range(job.prompts),
            bucket=self._config.prompt_bucket,
        )
        rollouts = sample(
            self._graphdef,
            self._state.params,
            self._place(prompts),
            self._sampling,
            key=self._step_key(self._state.step),
            weight_version=self._state.step,
            samples_per_prompt=job.samples,
            max_new_tokens=job.new_tokens,
        )
        return jax.device_get(rollouts)


def _config(job: Job) -> Config:
    return Config(
        model=model_config(job),
        prompt_bucket=job.prompt_tokens,
        train=TrainConfig(
            prompts_per_step=job.prompts,
            samples_per_prompt=job.samples,
            sampling=SamplingConfig(max_new_tokens=job.new_tokens),
            optimizer=OptimizerConfig(learning_rate=1e-6),
        ),
    )


def _policy(job: Job, mesh: jax.sharding.Mesh) -> tuple[Any, Any]:
    """Returns the structure and the freshly drawn parameters, laid out."""

    def new() -> Transformer:
        rngs = nnx.Rngs(jax.random.key(0))
        config = model_config(job)
        return Transformer(config, job.vocab_size, rngs, eos_ids=(job.eos_id,))

    policy = nnx.eval_shape(new)
    layout = shardings(policy, mesh)
    params = jax.jit(lambda: nnx.state(new()), out_shardings=layout)()
    return nnx.graphdef(policy), jax.block_until_ready(params)


def main() -> None:
    """Warms up, then takes a step whenever asked."""
    channel = Channel()
    job = channel.job(Job)
    # One virtual device per core, as far as the prompts divide over them.
    cores = len(os.sched_getaffinity(0))
    config = MeshConfig(cpu_devices=math.gcd(cores, job.prompts))
    configure_cpu(config)
    mesh = make_mesh(config)
    with jax.set_mesh(mesh):
        ours = Ours(job, mesh)
        start = time.perf_counter()
        ours.begin()
        ours.step()
        first_step_s = time.perf_counter() - start
        ours.step()
        compiles = CompileCounter()
        versions = {name: importlib.metadata.version(name) for name in ("jax", "flax")}
        channel.tell(
            {
                "versions": versions,
                "chosen": {"devices": mesh.size},
                "first_step_s": first_step_s,
            }
        )
        while channel.asked():
            channel.tell(ours.step())
    channel.tell({"peak_rss_bytes": peak_rss_bytes(), "compiles": compiles.count})


if __name__ == "__main__":
    main()
