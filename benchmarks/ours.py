"""Worker: our step, with the same calls as in the training loop."""

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
from benchmarks.job import FINAL_NORM_SCALE, Job, reward
from job_jax.config import MeshConfig
from job_jax.mesh import configure_cpu, make_mesh
from job_jax.metrics import CompileCounter
from rlvr_jax.config import (
    Config,
    LoRAConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainConfig,
)
from rlvr_jax.learn import group_advantages
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.run_updates import run_updates
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer, param_shardings
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import sample_completions
from rlvr_jax.run.cpu_devices import choose_mesh
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.run.trainable import split_trainable
from rlvr_jax.sampler import SamplerLayout
from rlvr_jax.tokenizer import WordLevelTokenizer
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.grader import Grader


class OurStep:
    """Our GRPO step: a policy and its optimizer on the current mesh."""

    def __init__(self, job: Job, mesh: jax.sharding.Mesh):
        self._job = job
        setup, params = _open_setup(job, mesh)
        self._trainable = split_trainable(setup, lambda: params)
        self._setup, self._config = self._trainable.setup, setup.config
        self._problems = [
            Problem(id=str(p), prompt=text, gold="", verifier="", source="benchmark")
            for p, text in enumerate(job.prompt_texts())
        ]
        self._sampling = self._setup.replicate(
            SamplingParams.from_config(self._config.train.sampling)
        )
        self._updater = Updater(
            self._setup.graphdef,
            policy_objective(self._config.train.loss),
            optimizer=self._config.train.optimizer,
            total_steps=1,
            logits_chunk_size=self._config.train.logits_chunk_size,
            frozen=self._trainable.frozen,
        )
        self._state: Any = None
        self._step_key = jax.jit(
            functools.partial(jax.random.fold_in, jax.random.key(0))
        )
        self._advantages = jax.jit(group_advantages)

    def init_optimizer(self) -> None:
        """Initializes the optimizer's state."""
        self._state = self._updater.init(self._trainable.init())

    def step(self) -> dict[str, Any]:
        """Takes a step; returns the seconds of its parts, and completion lengths."""
        setup, state, clock = self._setup, self._state, StepTimer()
        request = SampleRequest(
            problems=self._problems,
            weights=setup.sampler_layout.place_params(
                self._trainable.merge_frozen(state.params)
            ),
            sampling=self._config.train.sampling,
            num_samples=self._job.group_size,
            key=self._step_key(state.step),
            weight_version=state.step,
        )
        rollouts = sample_completions(setup, request)
        clock.lap("rollout")
        lengths = rollouts.lengths.tolist()
        texts = [
            setup.tokenizer.decode(rollouts.tokens[b, :length].tolist())
            for b, length in enumerate(lengths)
        ]
        rewards_B = np.array([reward(text) for text in texts], np.float32)
        advantages_PG = jax.device_get(
            self._advantages(rewards_B.reshape(self._job.num_prompts, -1))
        )
        clock.lap("verify")
        self._state = run_updates(
            self._config,
            self._updater,
            state,
            batch=batch_from_rollouts(rollouts, advantages_PG),
            weight_version=rollouts.weight_version,
            ref_params=None,
            sampling=self._sampling,
            to_device=setup.shard_batch,
        ).state
        jax.block_until_ready(self._state)
        clock.lap("update")
        seconds = {f"{phase}_s": value for phase, value in clock.seconds.items()}
        return seconds | {"tokens": sum(lengths), "lengths": lengths}


def _make_config(job: Job, *, num_devices: int) -> Config:
    """Returns the job as our configuration."""
    return Config(
        model=model_config(job),
        prompt_pad_multiple=job.prompt_tokens,
        completion_pad_multiple=job.new_tokens,
        train=TrainConfig(
            batch_size=job.num_prompts,
            group_size=job.group_size,
            # As docs/method/algorithm.md advises for completions of uneven length.
            packing=bool(job.num_end_ids),
            grad_accum_steps=(
                math.gcd(4, job.num_prompts // num_devices) if job.num_end_ids else 1
            ),
            sampling=SamplingConfig(max_new_tokens=job.new_tokens),
            optimizer=OptimizerConfig(learning_rate=1e-6),
            lora=_lora_config(job),
        ),
    )


def _lora_config(job: Job) -> LoRAConfig:
    if not job.lora_rank:
        return LoRAConfig()
    return LoRAConfig(rank=job.lora_rank, alpha=2.0 * job.lora_rank)


def _choose_mesh(job: Job) -> MeshConfig:
    """Returns the mesh that a run would choose, if prompts divide among devices."""
    mesh = choose_mesh(_make_config(job, num_devices=1))
    if mesh.cpu_devices != -1:
        return mesh
    cores = len(os.sched_getaffinity(0))
    return MeshConfig(cpu_devices=math.gcd(cores, job.num_prompts))


def _open_setup(job: Job, mesh: jax.sharding.Mesh) -> tuple[RunSetup, Any]:
    """Returns the setup of a run, without its problems, and random parameters."""
    config = _make_config(job, num_devices=mesh.size)

    def new() -> Transformer:
        rngs = nnx.Rngs(jax.random.key(0))
        policy = Transformer(config.model, job.vocab_size, rngs, eos_ids=job.eos_ids)
        policy.final_norm.scale[...] *= FINAL_NORM_SCALE
        return policy

    policy = nnx.eval_shape(new)
    layout = param_shardings(policy, mesh)
    params = jax.jit(lambda: nnx.state(new()), out_shardings=layout)()
    setup = RunSetup(
        config=config,
        mesh=mesh,
        tokenizer=WordLevelTokenizer(job.vocabulary),
        graphdef=nnx.graphdef(policy),
        sampler_layout=SamplerLayout.from_config(config, policy, mesh),
        verifier=Grader(config.verifier),
        sources={},
        too_long={},
        invalid_golds={},
    )
    return setup, jax.block_until_ready(params)


def _warm_up(ours: OurStep, compiles: CompileCounter) -> None:
    """Takes steps until two in a row compile nothing, because lengths differ."""
    quiet = 0
    while quiet < 2:
        before = compiles.count
        ours.step()
        quiet = quiet + 1 if compiles.count == before else 0


def main() -> None:
    """Warms up, then takes steps on request."""
    channel = Channel()
    job = channel.receive_job(Job)
    config = _choose_mesh(job)
    configure_cpu(config)
    mesh = make_mesh(config)
    with jax.set_mesh(mesh):
        ours = OurStep(job, mesh)
        start = time.perf_counter()
        ours.init_optimizer()
        ours.step()
        first_step_s = time.perf_counter() - start
        compiles = CompileCounter()
        _warm_up(ours, compiles)
        num_compiled = compiles.count
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
    channel.send(
        {"peak_rss_bytes": peak_rss_bytes(), "compiles": compiles.count - num_compiled}
    )


if __name__ == "__main__":
    main()
