"""One GRPO step, split into sampling, scoring, update and the probe in the update.

No id ends a completion, so all have the same length and there is no padding.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from benchmarks import counts
from benchmarks.accelerator.parts import StepSize
from benchmarks.accelerator.shapes import SHAPES, make_job, model_size, new_policy
from benchmarks.accelerator.timing import peak_memory, time_call
from benchmarks.probe import probe_inputs, random_probe
from job_jax.mesh import batch_sharding, replicated_sharding
from rlvr_jax.config import (
    Config,
    LoRAConfig,
    OptimizerConfig,
    ProbeSAEConfig,
    SamplingConfig,
    TrainConfig,
)
from rlvr_jax.learn.batches import batch_from_rollouts, with_loss_weights
from rlvr_jax.learn.micro_batches import (
    MicroBatchCut,
    score_micro_batches,
    split_micro_batches,
)
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.probe_inputs import ProbeInputs, ProbeSpec
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import ModelSize, abstract_params, lora
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.probe import SAEProbeConfig
from rlvr_jax.run.trainable import abstract_policy_parts
from rlvr_jax.sampler import pad_prompts, sample
from rlvr_jax.types import Batch, ProbeTargets, Rollouts
from sae_jax.config import SAEConfig

_LATENTS_OF_WIDTH = 16  # latents of the probe's dictionary, as a multiple of D
_RANK = 16


def make_config(shape: str, step: StepSize, *, adapters: bool) -> Config:
    """Returns the recipe: all weights in float32, or adapters on frozen weights.

    Frozen weights have the compute dtype. The probe reads the middle layer.
    """
    changes = {} if adapters else {"param_dtype": "float32"}
    size = model_size(shape, scan_layers=True, **changes)
    return Config(
        name=f"grpo-{shape}",
        model=size.model,
        prompt_pad_multiple=step.prompt_tokens,
        completion_pad_multiple=step.new_tokens,
        probe=SAEProbeConfig(
            layer=size.model.num_layers // 2,
            sae=ProbeSAEConfig(
                architecture=SAEConfig(
                    latents=_LATENTS_OF_WIDTH * size.model.hidden_size
                )
            ),
        ),
        train=TrainConfig(
            batch_size=step.num_prompts,
            group_size=step.group_size,
            grad_accum_steps=step.grad_accum_steps,
            sampling=SamplingConfig(max_new_tokens=step.new_tokens),
            optimizer=OptimizerConfig(learning_rate=1e-6),
            lora=LoRAConfig(rank=_RANK if adapters else 0),
        ),
    )


class GRPOStep:
    """The parts of a step on the current mesh; each call does the same work again."""

    def __init__(self, config: Config, step: StepSize, *, vocab_size: int):
        self._config, self._step = config, step
        self._mesh = jax.sharding.get_mesh()
        self._size = ModelSize(config.model, vocab_size)
        self._graphdef, self._trained, self._frozen = self._draw_weights()
        self._sampling = jax.device_put(
            SamplingParams.from_config(config.train.sampling),
            replicated_sharding(self._mesh),
        )
        self._updater = Updater(
            self._graphdef,
            policy_objective(config.train.loss),
            optimizer=config.train.optimizer,
            total_steps=1,
            logits_chunk_size=config.train.logits_chunk_size,
            probe=ProbeSpec(
                layer=config.probe.layer, rfgo=config.train.rfgo, shuffle_weights=False
            ),
            frozen=self._frozen,
        )
        self._cut = MicroBatchCut.from_config(config)
        self._state: Any = None
        self._batch: Batch  # the last one that was sampled

    def sample(self) -> Rollouts:
        """Returns a batch of completions."""
        draw = np.random.default_rng(0)
        shape = (self._step.num_prompts, self._step.prompt_tokens)
        prompts = pad_prompts(
            draw.integers(0, self._size.vocab_size, shape).tolist(),
            uids=range(shape[0]),
            pad_multiple=shape[1],
        )
        return sample(
            self._graphdef,
            nnx.merge_state(self._trained, *self._frozen),
            jax.device_put(prompts, batch_sharding(self._mesh)),
            self._sampling,
            key=jax.random.key(0),
            weight_version=jnp.int32(0),
            num_samples=self._step.group_size,
            max_new_tokens=self._step.new_tokens,
        )

    def learn_from(self, rollouts: Rollouts) -> None:
        """Sets the completions that `score` and `update` use."""
        shape = (self._step.num_prompts, self._step.group_size)
        B = len(rollouts.lengths)
        draw = np.random.default_rng(0)
        batch = batch_from_rollouts(
            jax.device_get(rollouts),
            draw.standard_normal(shape).astype(np.float32),
            probe_targets=ProbeTargets(
                row=np.arange(B, dtype=np.int32),
                outcomes=draw.integers(0, 2, B).astype(np.int32),
                proxy_eligible=np.zeros(B, bool),
                ref_features=None,
            ),
        )
        self._batch = with_loss_weights(
            batch,
            aggregation=self._config.train.loss.aggregation,
            max_length=self._step.new_tokens,
        )

    def score(self) -> Any:
        """Returns every token's log-probability, like an old or reference policy."""
        return score_micro_batches(
            lambda part: self._updater.score(
                self._trained, self._place(part), self._sampling
            )[0],
            self._batch,
            self._cut,
        )

    def update(self, probe: ProbeInputs | None = None) -> Any:
        """Returns the norm of the gradient after one optimizer step."""
        if self._state is None:
            self._state = self._updater.init(self._trained)
        parts = map(self._place, split_micro_batches(self._batch, self._cut))
        self._state, _, report = self._updater.step(
            self._state, parts, self._sampling, probe=probe
        )
        self._trained = self._state.params
        jax.block_until_ready(self._state)
        return report.grad_norm

    def _place(self, part: Batch) -> Batch:
        return jax.device_put(part, batch_sharding(self._mesh))

    def _draw_weights(self) -> tuple[Any, Any, tuple[Any, ...]]:
        """Returns the policy's structure, and its trained and frozen parameters."""
        adapters = self._config.train.lora

        def policy() -> Any:
            return new_policy(self._size, eos_ids=(self._size.vocab_size,))

        plain = nnx.eval_shape(policy)
        parts = abstract_policy_parts(
            nnx.graphdef(plain),
            abstract_params(plain, self._mesh),
            self._mesh,
            adapters,
        )

        def draw() -> tuple[Any, ...]:
            if not adapters.rank:
                return (nnx.state(policy()),)
            changed = lora.add_adapters(policy(), adapters, jax.random.key(1))
            return tuple(nnx.split(changed, lora.ADAPTERS, ...)[1:])

        layouts = jax.tree.map(lambda x: x.sharding, (parts.trained, *parts.frozen))
        trained, *frozen = jax.jit(draw, out_shardings=layouts)()
        return parts.graphdef, trained, tuple(frozen)


def measure_step(
    shape: str, *, adapters: bool, repeats: int, step: StepSize
) -> dict[str, Any]:
    """Returns the seconds and FLOPs of each part of a step.

    `benchmarks.counts` counts the FLOPs: only necessary work, without recomputation.
    `update_with_features` also reads the probe's features, and `update_with_observer`
    also counts all of its latents, as a logged step does.
    """
    config = make_config(shape, step, adapters=adapters)
    size = ModelSize(config.model, SHAPES[shape].vocab_size)
    work = GRPOStep(config, step, vocab_size=size.vocab_size)
    parts: dict[str, Any] = {}
    rollouts, parts["sampling"] = time_call(work.sample, repeats=repeats)
    work.learn_from(rollouts)
    del rollouts
    inputs, observed = probe_inputs(random_probe(config))
    calls: dict[str, Callable[[], Any]] = {
        "scoring": work.score,
        "update": work.update,
        "update_with_features": lambda: work.update(inputs),
        "update_with_observer": lambda: work.update(observed),
    }
    for name, call in calls.items():
        norm, parts[name] = time_call(call, repeats=repeats)
        assert np.isfinite(np.asarray(norm)).all(), f"{name}: not finite"
    job = make_job(
        size,
        num_prompts=step.num_prompts,
        group_size=step.group_size,
        prompt_tokens=step.prompt_tokens,
        new_tokens=step.new_tokens,
    )
    forward = counts.forward_flops(job)
    count_update = counts.adapter_update_flops if adapters else counts.update_flops
    return {
        "trained": "adapters" if adapters else "all weights",
        "tokens": round(counts.expected_tokens(job)),
        "micro_batches": step.grad_accum_steps,
        "parts": parts,
        "flops": {
            "sampling": forward,
            "scoring": forward,
            "update": count_update(job),
        },
        "peak_memory": peak_memory(),
    }
