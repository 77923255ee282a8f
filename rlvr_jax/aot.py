"""A recipe compiled for a TPU slice that is not there: does it fit, and how tightly.

XLA's own TPU compiler (libtpu, extra `[tpu]`) compiles sampler, scorer and update for
the slice's mesh, on any machine, and reports memory as the chips would have it. No
weights, no data: every argument is a shape with its layout.
"""

import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import NamedSharding

from job_jax.command import UsageError
from job_jax.mesh import batch_sharding, make_mesh, replicated
from rlvr_jax.adapters import abstract_parts
from rlvr_jax.config import Config
from rlvr_jax.latents import Observer
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import Probing, Updater
from rlvr_jax.models import Transformer, check_divides, laid_out_shapes
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.models.huggingface import embedding_rows
from rlvr_jax.sampler import SamplerLayout, sample
from rlvr_jax.tasks.finite_field import vocabulary
from rlvr_jax.tokenizer import SymbolTokenizer
from rlvr_jax.types import Batch, Guidance, Guide, Prompts

_GIB = 1 << 30
# Of each generation: GiB of a chip's HBM that programs get, what TPU_ACCELERATOR_TYPE
# calls a slice of it, and the cores by which that counts.
_CHIPS = {
    "v4": (32, "v4", 2),
    "v5e": (15.75, "v5litepod", 1),
    "v5p": (95, "v5p", 2),
    "v6e": (32, "v6e", 1),
}
_COLLECTIVE = re.compile(
    r"= (.+?) (?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)"
    r"(?:-start)?\("
)
_ARRAY = re.compile(r"(pred|[a-z]+(\d+))\[([\d,]*)\]")


def report(config: Config, topology: str) -> dict[str, Any]:
    """Returns what the recipe needs of each chip of a slice ("v5e:4x4").

    `fits` is whether every phase's peak stays below the chip's memory; where it does
    not, `shrink` names the tightest phase, its largest part and what makes it smaller.
    FLOPs are of one device, collective bytes those of each instruction once: a loop's
    body counts once. Raises UsageError where the slice is unknown, ConfigError where
    the mesh does not fit it.
    """
    generation, hbm = _slice(topology)
    mesh = make_mesh(config.mesh, _devices(topology, generation))
    with jax.set_mesh(mesh):
        parts, programs = _Programs(config, mesh).compiled()
    phases = {
        name: _peak(parts, program)
        for name, program in programs.items()
        if "error" not in program
    }
    failed = [name for name, program in programs.items() if "error" in program]
    short = shrink(phases, failed, limit=hbm * _GIB)
    return {
        "recipe": config.name,
        "topology": topology,
        "mesh": dict(mesh.shape),
        "hbm_gib": hbm,
        "fits": short is None,
        "shrink": short,
        "resident_bytes": parts,
        "phases": {
            name: {"peak_bytes": sum(phase.values()), **phase}
            for name, phase in phases.items()
        },
        "programs": programs,
    }


def text(config: Config, topology: str) -> str:
    """Returns the report as JSON."""
    return json.dumps(report(config, topology), indent=2)


def _slice(topology: str) -> tuple[str, float]:
    """Returns a topology's generation and its chips' HBM in GiB."""
    generation, _, shape = topology.partition(":")
    if generation not in _CHIPS or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise UsageError(
            f"--topology={topology!r} is no slice; give a generation of "
            f"{list(_CHIPS)} and its shape, such as v5e:4x4"
        )
    return generation, _CHIPS[generation][0]


def _devices(topology: str, generation: str) -> list[Any]:
    """Returns the slice's devices, as libtpu describes them."""
    from jax.experimental import topologies  # noqa: PLC0415 - for this command alone

    _, name, cores = _CHIPS[generation]
    chips = math.prod(map(int, topology.partition(":")[2].split("x")))
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("TPU_ACCELERATOR_TYPE", f"{name}-{cores * chips}")
    os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
    # No chip is taken, so several may compile at once.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    try:
        found = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    except (RuntimeError, ValueError, NotImplementedError) as error:
        raise UsageError(
            f"--topology={topology} cannot be compiled for here "
            f"({' '.join(str(error).split()):.200}); install the extra [tpu]"
        ) from error
    return list(found.devices)


def shrink(
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
            "fewer train.prompts_per_step or train.samples_per_prompt, or a smaller "
            "train.sampling.max_new_tokens"
        )
    else:
        how = (
            "more train.micro_batches, model.remat=block, or a smaller "
            "model.attention_chunk or train.logit_chunk"
        )
    return {"phase": phase, "part": part, "by": how}


class _Programs:
    """The programs of a training step, on shapes alone."""

    def __init__(self, config: Config, mesh: Any):
        self._config, self._mesh = config, mesh
        train = config.train
        self._room = train.sampling.max_new_tokens
        prompt = config.model.max_length - self._room
        self._prompt = max(1, prompt // config.prompt_bucket) * config.prompt_bucket
        policy = nnx.eval_shape(
            lambda: Transformer(
                config.model, vocab_size(config), nnx.Rngs(0), eos_ids=(0,)
            )
        )
        check_divides(config.model, mesh, "mesh.tensor")
        self._layout = SamplerLayout.of(config, policy, mesh)
        self._parts = abstract_parts(
            nnx.graphdef(policy), laid_out_shapes(policy, mesh), mesh, train.lora
        )
        self._graphdef = self._parts.graphdef
        self._params = nnx.merge_state(self._parts.trained, *self._parts.frozen)
        self._updater = Updater(
            self._graphdef,
            policy_objective(train.loss),
            optimizer=train.optimizer,
            total_steps=max(1, train.optimizer_steps),
            logit_chunk=train.logit_chunk,
            probing=Probing(
                layer=config.probe.layer,
                rfgo=train.rfgo,
                shuffled=config.probe.features.arm == "shuffled",
                observer=Observer(),
            ),
            frozen=self._parts.frozen,
        )

    def compiled(self) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
        """Returns bytes a chip of what stays, by part, and each program's figures."""
        train, probe = self._config.train, self._config.probe
        sampling = self._whole(jax.eval_shape(lambda: Sampling.of(train.sampling)))
        guide = None if probe.source == "off" else self._guide()
        trained, frozen = self._parts.trained, self._parts.frozen
        state, (gradients, _) = self._updater.shapes(trained, guide)
        parts = {
            "parameters": _bytes(trained) + _bytes(frozen),
            "optimizer": _bytes(state.opt_state),
            "gradients": _bytes(gradients),
        }
        if train.loss.kl_coef > 0 or train.rfgo.reads_reference:
            parts["reference"] = _bytes(trained)
        if probe.source == "stage":
            latents, shards = probe.dictionary.sae.latents, self._mesh.shape["tensor"]
            parts["dictionary"] = 8 * self._config.model.width * latents // shards
        programs = {
            "sampler": lambda: self._sampler(sampling),
            **self._updater.lowered(trained, self._batch(), sampling, guide),
        }
        if reshard := self._layout.reshard:
            programs["reshard"] = lambda: reshard.lower(self._params)
        figures = {name: _figures(lower) for name, lower in programs.items()}
        figures["sampler"]["weights_bytes"] = self._layout.held
        return parts, figures

    def _guide(self) -> Guide:
        """Returns the columns of the reasoning features."""
        R, D = self._config.probe.features.count, self._config.model.width
        shape = jax.ShapeDtypeStruct
        of_R = shape((R,), jnp.float32)
        return self._whole(
            Guide(
                center=shape((D,), jnp.float32),
                encoder=shape((D, R), jnp.float32),
                bias=of_R,
                threshold=of_R,
                weights=of_R,
                scale=of_R,
                proxy_strength=shape((), jnp.float32),
                key=jax.eval_shape(lambda: jax.random.key(0)),
            )
        )

    def _sampler(self, sampling: Any) -> Any:
        train = self._config.train
        P = train.prompts_per_step
        shape = jax.ShapeDtypeStruct
        prompts = Prompts(
            tokens=shape((P, self._prompt), jnp.int32),
            lengths=shape((P,), jnp.int32),
            uid=shape((P,), jnp.uint32),
        )
        own = self._layout.mesh
        with jax.set_mesh(own):
            return sample.lower(
                self._graphdef,
                self._layout.shapes(self._params),
                _with_layout(prompts, batch_sharding(own)),
                _with_layout(sampling, replicated(own)),
                key=_with_layout(
                    jax.eval_shape(lambda: jax.random.key(0)), replicated(own)
                ),
                weight_version=_with_layout(shape((), jnp.int32), replicated(own)),
                samples_per_prompt=train.samples_per_prompt,
                max_new_tokens=self._room,
            )

    def _batch(self) -> Batch:
        """Returns a micro-batch of the longest prompts and completions."""
        train, bucket = self._config.train, self._config.completion_bucket
        P = train.prompts_per_step // (train.minibatches * train.micro_batches)
        B, T = P * train.samples_per_prompt, -(-self._room // bucket) * bucket
        shape = jax.ShapeDtypeStruct
        wide = shape((B, T), jnp.float32)
        return self._split(
            Batch(
                prompt_tokens=shape((P, self._prompt), jnp.int32),
                prompt_lengths=shape((P,), jnp.int32),
                tokens=shape((B, T), jnp.int32),
                lengths=shape((B,), jnp.int32),
                token_weights=wide,
                advantages=shape((B,), jnp.float32),
                old_logprobs=wide,
                ref_logprobs=wide,
                bands=shape((B,), jnp.int32),
                guidance=Guidance(
                    outcomes=shape((B,), jnp.int32),
                    proxied=shape((B,), bool),
                    ref_levels=wide,
                ),
            )
        )

    def _whole(self, tree: Any) -> Any:
        return _with_layout(tree, replicated(self._mesh))

    def _split(self, tree: Any) -> Any:
        return _with_layout(tree, batch_sharding(self._mesh))


def vocab_size(config: Config) -> int:
    """Returns the vocabulary that the config asks for, without reading any data."""
    if config.pretrained.path:
        return embedding_rows(config.pretrained)
    if config.task.kind == "finite_field":
        return SymbolTokenizer(vocabulary(config.task.modulus)).vocab_size
    return config.tokenizer.vocab_size


def _with_layout(tree: Any, layout: NamedSharding) -> Any:
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), tree
    )


def _bytes(tree: Any) -> int:
    """Returns the bytes that one chip holds of laid-out shapes."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * np.dtype(leaf.dtype).itemsize
        for leaf in jax.tree.leaves(tree)
    )


def _figures(lower: Callable[[], Any]) -> dict[str, Any]:
    """Returns one program's memory, FLOPs, collectives and seconds of compilation."""
    start = time.perf_counter()
    try:
        compiled = lower().compile()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        return {"error": " ".join(str(error).split())[:400]}
    memory = compiled.memory_analysis()
    return {
        "arguments_bytes": memory.argument_size_in_bytes,
        "outputs_bytes": memory.output_size_in_bytes,
        "donated_bytes": memory.alias_size_in_bytes,
        "temporary_bytes": memory.temp_size_in_bytes,
        "code_bytes": memory.generated_code_size_in_bytes,
        "flops": compiled.cost_analysis().get("flops"),
        "collective_bytes": collective_bytes(compiled.as_text()),
        "compile_s": time.perf_counter() - start,
    }


def collective_bytes(hlo: str) -> int:
    """Returns the bytes of all results of collectives in a program's text."""
    total = 0
    for results in _COLLECTIVE.findall(hlo):
        for _, bits, shape in _ARRAY.findall(results):
            count = math.prod(int(n) for n in shape.split(",") if n)
            total += count * (int(bits) // 8 if bits else 1)
    return total


def _peak(parts: Mapping[str, int], program: Mapping[str, Any]) -> dict[str, int]:
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
