"""A training step's programs on shapes alone, without weights, data or real devices.

Every argument is a shape with its layout on a mesh.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding
from jaxtyping import PyTree

from job_jax.mesh import batch_sharding, replicated_sharding
from rlvr_jax.config import Config
from rlvr_jax.learn.micro_batches import abstract_micro_batch
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.probe_inputs import ProbeInputs, ProbeSpec
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer, abstract_params, check_divisible
from rlvr_jax.models.distribution import TRUNCATION_SCOPE, SamplingParams
from rlvr_jax.models.huggingface import hf_vocab_size
from rlvr_jax.plan.memory import resident_bytes
from rlvr_jax.probe.capture import read_residuals
from rlvr_jax.run.trainable import abstract_policy_parts
from rlvr_jax.sampler import SamplerLayout, sample
from rlvr_jax.tokenizer import WordLevelTokenizer
from rlvr_jax.types import Batch, Prompts, ReasoningFeatures

# All names; a recipe runs some of these, and a custom probe may add others.
PROGRAMS = (
    "sampler",
    "scorer",
    "scorer_entropies",
    "scorer_features",
    "gradient",
    "gradient_logged",
    "update",
    "reshard",
    "probe_activations",
    "probe_fit",
    "probe_texts",
)


class StepPrograms:
    """The programs of a training step, on shapes alone."""

    def __init__(self, config: Config, mesh: Mesh, devices: Sequence[jax.Device]):
        self._config, self._mesh = config, mesh
        train = config.train
        self._completion_length = train.sampling.max_new_tokens
        prompt = config.model.max_seq_len - self._completion_length
        self._prompt_length = (
            max(1, prompt // config.prompt_pad_multiple) * config.prompt_pad_multiple
        )
        policy = nnx.eval_shape(
            lambda: Transformer(
                config.model, vocab_size(config), nnx.Rngs(0), eos_ids=(0,)
            )
        )
        check_divisible(config.model, mesh, "mesh.tensor")
        self._sampler_layout = SamplerLayout.from_config(
            config, policy, mesh, list(devices)
        )
        self._policy_parts = abstract_policy_parts(
            nnx.graphdef(policy), abstract_params(policy, mesh), mesh, train.lora
        )
        self._graphdef = self._policy_parts.graphdef
        self._params = nnx.merge_state(
            self._policy_parts.trained, *self._policy_parts.frozen
        )
        self._updater = Updater(
            self._graphdef,
            policy_objective(train.loss),
            optimizer=train.optimizer,
            total_steps=max(1, train.optimizer_steps),
            logits_chunk_size=train.logits_chunk_size,
            probe=ProbeSpec(
                layer=config.probe.layer,
                rfgo=train.rfgo,
                shuffle_weights=config.probe.shuffles_weights,
            ),
            frozen=self._policy_parts.frozen,
        )

    @property
    def mesh(self) -> Mesh:
        """Returns the mesh that the update is compiled for."""
        return self._mesh

    @property
    def sampler_mesh(self) -> Mesh:
        """Returns the mesh that the sampler is compiled for."""
        return self._sampler_layout.mesh

    @property
    def unbounded_trips(self) -> int:
        """Returns the runs of a loop without a known bound: one for each token."""
        return self._completion_length

    @property
    def skipped_scopes(self) -> tuple[str, ...]:
        """Returns the named scopes of branches that the recipe's steps never take."""
        sampling = self._config.train.sampling
        truncates = sampling.top_k > 0 or sampling.top_p < 1
        return () if truncates else (TRUNCATION_SCOPE,)

    def completion_tokens(self, program: str) -> int:
        """Returns how many completion tokens one run of a program processes.

        All completions have maximal length. 0: the program belongs to stage `probe`, or
        reads other texts.
        """
        train = self._config.train
        if program.startswith(("scorer", "gradient")):
            return math.prod(self._abstract_batch().tokens.shape)
        rows = {
            "reshard": train.batch_size * train.group_size,
            "sampler": train.batch_size * train.group_size,
            "update": train.batch_size // train.num_minibatches * train.rows_per_group,
        }
        return rows.get(program, 0) * self._completion_length

    @property
    def sampler_weights_bytes(self) -> int:
        """Returns the bytes a chip for the sampler's copy of the weights."""
        return self._sampler_layout.bytes_held

    def resident_bytes(self) -> dict[str, int]:
        """Returns the bytes a chip that stay between programs, by part."""
        return resident_bytes(self._config, self._policy_parts, self._mesh)

    def lowerings(self) -> dict[str, Callable[[], Any]]:
        """Returns name -> function that lowers it, for each program of the recipe."""
        train = self._config.train
        sampling = self._replicate(
            jax.eval_shape(lambda: SamplingParams.from_config(train.sampling))
        )
        step = self._updater.lower(
            self._policy_parts.trained,
            self._abstract_batch(),
            sampling,
            self._abstract_probe_inputs(),
        )
        programs = {"sampler": lambda: self._lower_sampler(sampling)}
        programs |= {name: step[name] for name in step if self._is_run(name)}
        if reshard := self._sampler_layout.reshard:
            programs["reshard"] = lambda: reshard.lower(self._params)
        if self._config.probe.enabled:
            programs |= self._lower_probe_programs()
        return programs

    def _is_run(self, name: str) -> bool:
        """Returns whether the recipe's steps run a program of the update."""
        train = self._config.train
        chosen = train.loss.top_entropy_quantile < 1.0
        scored = {
            "scorer": train.loss.kl_coef > 0
            or (train.scores_own_policy and not chosen),
            "scorer_entropies": train.scores_own_policy and chosen,
            "scorer_features": train.rfgo.needs_reference_policy,
        }
        return scored.get(name, True)

    def _lower_probe_programs(self) -> dict[str, Callable[[], Any]]:
        """Returns the programs of stage `probe` and of a logged step, as above."""
        config = self._config
        P = min(config.eval.batch_size, config.train.batch_size)
        shape = jax.ShapeDtypeStruct
        rollouts = self._shard_batch(
            (
                self._abstract_prompts(P),
                shape(
                    (P * config.train.group_size, self._completion_length), jnp.int32
                ),
            )
        )
        return {
            "probe_activations": lambda: read_residuals.lower(
                self._graphdef, self._params, *rollouts, layer=config.probe.layer
            ),
            **config.probe.lower_programs(
                config,
                self._mesh,
                graphdef=self._graphdef,
                params=self._params,
                prompt_length=self._prompt_length,
            ),
        }

    def _abstract_probe_inputs(self) -> ProbeInputs | None:
        """Returns the shapes of a probe's inputs to an update; None without a probe."""
        abstract = self._config.probe.abstract_reader(self._config.model.hidden_size)
        if abstract is None:
            return None
        reader, num_features = abstract
        shape = jax.ShapeDtypeStruct
        inputs = ProbeInputs(
            reader=reader,
            reasoning_features=ReasoningFeatures(
                weights=shape((num_features,), jnp.float32),
                scale=shape((num_features,), jnp.float32),
                proxy_strength=shape((), jnp.float32),
                key=jax.eval_shape(lambda: jax.random.key(0)),
            ),
        )
        probe = self._config.probe
        return dataclasses.replace(
            self._replicate(inputs),
            observer=probe.abstract_observer(self._config.model.hidden_size, self._mesh)
            if probe.log_every
            else None,
        )

    def _abstract_prompts(self, rows: int) -> Prompts:
        shape = jax.ShapeDtypeStruct
        return Prompts(
            tokens=shape((rows, self._prompt_length), jnp.int32),
            lengths=shape((rows,), jnp.int32),
            uid=shape((rows,), jnp.uint32),
        )

    def _lower_sampler(self, sampling: SamplingParams) -> Any:
        train = self._config.train
        shape = jax.ShapeDtypeStruct
        prompts = self._abstract_prompts(train.batch_size)
        own = self._sampler_layout.mesh
        weights = self._sampler_layout.abstract_params(self._params)
        with jax.set_mesh(own):
            return sample.lower(
                self._graphdef,
                weights,
                _with_sharding(prompts, batch_sharding(own)),
                _with_sharding(sampling, replicated_sharding(own)),
                key=_with_sharding(
                    jax.eval_shape(lambda: jax.random.key(0)), replicated_sharding(own)
                ),
                weight_version=_with_sharding(
                    shape((), jnp.int32), replicated_sharding(own)
                ),
                num_samples=train.group_size,
                max_new_tokens=self._completion_length,
                num_slots=self._config.sampler.slots,
            )

    def _abstract_batch(self) -> Batch:
        """Returns a micro-batch of the longest prompts and completions, not packed."""
        config, num_features = self._config, 0
        if config.train.rfgo.needs_reference_policy:
            abstract = config.probe.abstract_reader(config.model.hidden_size)
            num_features = abstract[1] if abstract else 0
        return self._shard_batch(
            abstract_micro_batch(
                config,
                prompt_width=self._prompt_length,
                num_ref_features=num_features,
            )
        )

    def _replicate(self, tree: PyTree) -> PyTree:
        return _with_sharding(tree, replicated_sharding(self._mesh))

    def _shard_batch(self, tree: PyTree) -> Any:
        return _with_sharding(tree, batch_sharding(self._mesh))


def vocab_size(config: Config) -> int:
    """Returns the vocabulary size of the config, without reading any data."""
    if config.pretrained.path:
        return hf_vocab_size(config.pretrained)
    if words := config.task.vocabulary():
        return WordLevelTokenizer(words).vocab_size
    return config.tokenizer.vocab_size


def _with_sharding(tree: PyTree, sharding: NamedSharding) -> PyTree:
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
    )
