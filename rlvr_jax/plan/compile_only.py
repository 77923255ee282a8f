"""A recipe compiled for a TPU slice that is not there: does it fit, and how tightly.

XLA's own TPU compiler (libtpu, extra `[tpu]`) compiles sampler, scorer and update for
the slice's mesh, on any machine, and reports memory as the chips would have it. No
weights, no data: every argument is a shape with its layout.
"""

import dataclasses
import functools
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh, NamedSharding

from job_jax.command import UsageError
from job_jax.mesh import batch_sharding, replicated_sharding
from rlvr_jax.config import Config
from rlvr_jax.learn.micro_batches import abstract_micro_batch
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.probe_inputs import ProbeInputs, ProbeSpec
from rlvr_jax.learn.update import Updater
from rlvr_jax.models import Transformer, abstract_params, check_divisible
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.models.huggingface import hf_vocab_size
from rlvr_jax.plan.memory import resident_bytes
from rlvr_jax.plan.program_costs import program_costs
from rlvr_jax.plan.topology import Chip, Topology, parse_topology
from rlvr_jax.probe.capture import read_residuals
from rlvr_jax.run.trainable import abstract_policy_parts
from rlvr_jax.sampler import SamplerLayout, sample, update_mesh
from rlvr_jax.tokenizer import WordLevelTokenizer
from rlvr_jax.types import Batch, Prompts, ReasoningFeatures

_GIB = 1 << 30


def compile_report(config: Config, topology: str) -> dict[str, Any]:
    """Returns what the recipe needs of each chip of a slice ("v5e:4x4").

    `fits` is whether every phase's peak stays below the chip's memory; where it does
    not, `shrink` names the tightest phase, its largest part and what makes it smaller.
    Each program's costs are those of one run on one chip (`plan.program_costs`), and
    `predicted_s` what they would take at the chip's peaks. Raises UsageError where the
    slice is unknown, ConfigError where the mesh does not fit it.
    """
    slice_ = parse_topology(topology)
    devices = _topology_devices(slice_)
    mesh = update_mesh(config, devices)
    with jax.set_mesh(mesh):
        step = _Programs(config, mesh, devices, slice_.chip)
        parts, programs = step.compile_all()
    resident = functools.partial(
        _resident_parts, parts=parts, has_own_devices=config.sampler.devices > 0
    )
    phases = {
        name: _peak_memory(resident(name, program), program)
        for name, program in programs.items()
        if "error" not in program
    }
    failed = [name for name, program in programs.items() if "error" in program]
    short = suggest_shrink(phases, failed, limit=slice_.chip.hbm_gib * _GIB)
    return {
        "recipe": config.name,
        "topology": topology,
        "mesh": dict(mesh.shape),
        "sampler_mesh": dict(step.sampler_mesh.shape),
        "hbm_gib": slice_.chip.hbm_gib,
        "fits": short is None,
        "shrink": short,
        "resident_bytes": parts,
        "phases": {
            name: {"peak_bytes": sum(phase.values()), **phase}
            for name, phase in phases.items()
        },
        "programs": programs,
    }


def report_json(config: Config, topology: str) -> str:
    """Returns the report as JSON."""
    return json.dumps(compile_report(config, topology), indent=2)


def _topology_devices(topology: Topology) -> list[Any]:
    """Returns the slice's devices, as libtpu describes them."""
    from jax.experimental import topologies  # noqa: PLC0415 - for this command alone

    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", topology.accelerator_type)
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # No chip is taken, so several may compile at once.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        found = topologies.get_topology_desc(
            platform="tpu", topology_name=topology.name
        )
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"--topology={topology.name} cannot be compiled for here "
            f"({' '.join(str(error).split()):.200}); install the extra [tpu]"
        ) from error
    return list(found.devices)


def suggest_shrink(
    phases: Mapping[str, Mapping[str, int]], failed: Sequence[str], *, limit: float
) -> dict[str, str] | None:
    """Returns the phase and part to shrink, and how; None where every phase fits.

    A program that did not even compile wants more than a chip for its temporaries.
    """
    if failed:
        phase, part = failed[0], "temporaries"
    else:
        phase = max(phases, key=lambda name: sum(phases[name].values()))
        if sum(phases[phase].values()) <= limit:
            return None
        part = max(phases[phase], key=lambda part: phases[phase][part])
    if part != "temporaries":
        how = "a larger mesh.fsdp or mesh.tensor"
    elif phase == "sampler":
        how = (
            "fewer sampler.slots than train.batch_size x train.group_size, or a "
            "smaller train.sampling.max_new_tokens"
        )
    else:
        how = (
            "more train.grad_accum_steps or fewer train.micro_batch_tokens, "
            "model.remat=block, or a smaller "
            "model.attention_chunk_size or train.logits_chunk_size"
        )
    return {"phase": phase, "part": part, "by": how}


class _Programs:
    """The programs of a training step, on shapes alone."""

    def __init__(self, config: Config, mesh: Mesh, devices: list[Any], chip: Chip):
        self._config, self._mesh, self._chip = config, mesh, chip
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
        self._sampler_layout = SamplerLayout.from_config(config, policy, mesh, devices)
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
    def sampler_mesh(self) -> Mesh:
        """Returns the mesh that the sampler is compiled for."""
        return self._sampler_layout.mesh

    def compile_all(self) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
        """Returns bytes a chip of what stays, by part, and each program's figures."""
        train = self._config.train
        sampling = self._replicate(
            jax.eval_shape(lambda: SamplingParams.from_config(train.sampling))
        )
        parts = resident_bytes(self._config, self._policy_parts, self._mesh)
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
        figures = {
            name: _program_stats(
                lower, self._chip, unbounded_trips=self._completion_length
            )
            for name, lower in programs.items()
        }
        figures["sampler"]["weights_bytes"] = self._sampler_layout.bytes_held
        return parts, figures

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
        """Returns what stage `probe` and a logged step run beside the update."""
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
        """Returns the shapes that a probe brings to an update; None without a probe."""
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

    def _lower_sampler(self, sampling: Any) -> Any:
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
        return self._shard_batch(
            abstract_micro_batch(self._config, prompt_width=self._prompt_length)
        )

    def _replicate(self, tree: Any) -> Any:
        return _with_sharding(tree, replicated_sharding(self._mesh))

    def _shard_batch(self, tree: Any) -> Any:
        return _with_sharding(tree, batch_sharding(self._mesh))


def vocab_size(config: Config) -> int:
    """Returns the vocabulary that the config asks for, without reading any data."""
    if config.pretrained.path:
        return hf_vocab_size(config.pretrained)
    if words := config.task.vocabulary():
        return WordLevelTokenizer(words).vocab_size
    return config.tokenizer.vocab_size


def _with_sharding(tree: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), tree
    )


def _program_stats(
    lower: Callable[[], Any], chip: Chip, *, unbounded_trips: int
) -> dict[str, Any]:
    """Returns one program's memory, costs and predicted and compilation seconds."""
    start = time.perf_counter()
    try:
        compiled = lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"error": " ".join(str(error).split())[:400]}
    memory = compiled.memory_analysis()
    costs = program_costs(compiled.as_text(), unbounded_trips=unbounded_trips)
    return {
        "arguments_bytes": memory.argument_size_in_bytes,
        "outputs_bytes": memory.output_size_in_bytes,
        "donated_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        **dataclasses.asdict(costs),
        "predicted_s": chip.predict_seconds(costs),
        "compile_s": time.perf_counter() - start,
    }


def _resident_parts(
    name: str,
    program: Mapping[str, Any],
    *,
    parts: Mapping[str, int],
    has_own_devices: bool,
) -> Mapping[str, int]:
    """Returns what stays while a program runs: in stage `probe` nothing of RL's.

    Nor is anything of the update's where the sampler has devices of its own.
    """
    if name == "sampler" and has_own_devices:
        return {}
    if name == "probe_activations":
        return {"parameters": parts["parameters"]}
    if name == "probe_fit":
        return {"arguments": program["arguments_bytes"]}
    return parts


def _peak_memory(
    parts: Mapping[str, int], program: Mapping[str, Any]
) -> dict[str, int]:
    """Returns what a chip holds while a program runs, by part.

    All that stays between programs stays, whether the program reads it or not.
    """
    new = program["outputs_bytes"] - program["donated_bytes"]
    return {
        **parts,
        "sampler_weights": program.get("weights_bytes", 0),
        "results": new,
        "temporaries": program["temporary_bytes"],
        "code": program["code_bytes"],
    }
