"""Describes a run without starting it: config, parameters, mesh, memory, disk."""

import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
from flax import nnx
from jax.sharding import Mesh

from job_jax.command import UsageError
from job_jax.config_io import to_json
from job_jax.disk import free_bytes
from job_jax.mesh import describe_devices
from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.models import Transformer, abstract_params, replicated_params
from rlvr_jax.models.huggingface import hf_vocab_size
from rlvr_jax.plan.memory import disk_bytes, resident_bytes, sampling_bytes
from rlvr_jax.plan.topology import Topology, parse_topology
from rlvr_jax.rollouts.try_rewards import try_setup_rewards
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.setup import RunSetup, open_setup
from rlvr_jax.run.start_warnings import describe_start
from rlvr_jax.run.trainable import abstract_policy_parts
from rlvr_jax.sampler import SamplerLayout, update_mesh

_MIB = 1 << 20
_NUM_SHOWN = 2  # prompts


def describe(
    config: Config,
    topology: str | None = None,
    *,
    lineage: Lineage | None = None,
    workdir: Path | None = None,
) -> str:
    """Returns the plan of a run as text. Raises ConfigError if it could not run.

    With `topology` ("v5e:4x4") the plan is for the chips of that slice. They need not
    exist: as many CPU devices represent them. If the checkpoint to start from is
    missing, the plan uses only shapes, does not check tokenizer and problems, and says
    so. `lineage` is the checkpoint of another run that the run starts from; `workdir`
    is where it will write.
    """
    chips = parse_topology(topology) if topology else None
    devices = _plan_devices(chips)
    mesh = _plan_mesh(config, devices, chips)
    start = config.pretrained.path
    if start and not Path(start).is_dir():
        num_rows = hf_vocab_size(config.pretrained)
        policy = nnx.eval_shape(
            lambda: Transformer(config.model, num_rows, nnx.Rngs(0))
        )
        lines = [f"{start} does not exist: tokenizer and data are not checked"]
        layout = SamplerLayout.from_config(config, policy, mesh, devices)
        return _format(
            config,
            mesh,
            layout,
            policy,
            num_rows,
            chips=chips,
            lines=lines,
            lineage=lineage,
            workdir=workdir,
        )
    with tempfile.TemporaryDirectory() as scratch:
        setup = open_setup(config, Path(scratch) / "tokenizer.model", devices=devices)
        config.probe.check_before_run(config, setup.tokenizer.encode)
        reward_warnings = try_setup_rewards(setup)
        policy = nnx.merge(setup.graphdef, setup.abstract_params())
        return _format(
            config,
            mesh,
            setup.sampler_layout,
            policy,
            setup.vocab_size,
            chips=chips,
            lines=[
                *_show_prompts(setup),
                *reward_warnings,
                *describe_start(setup, lineage),
            ],
            lineage=lineage,
            workdir=workdir,
        )


def _plan_mesh(
    config: Config, devices: Sequence[jax.Device], chips: Topology | None
) -> Mesh:
    try:
        return update_mesh(config, devices)
    except ConfigError as error:
        if chips is not None:
            raise
        raise ConfigError(
            f"{error}; to plan for devices of another machine, add "
            "--topology=v5e:4x4 (the slice that the run will have)"
        ) from error


def _plan_devices(chips: Topology | None) -> Sequence[jax.Device]:
    devices = jax.devices()
    if chips is None:
        return devices
    if len(devices) < chips.num_chips:
        raise UsageError(
            f"--topology={chips.name} has {chips.num_chips} chips, but JAX has already "
            f"started with {len(devices)} devices; plan in a new process"
        )
    return devices[: chips.num_chips]


def _format(
    config: Config,
    mesh: Mesh,
    layout: SamplerLayout,
    policy: Transformer,
    vocab_size: int,
    *,
    chips: Topology | None,
    lines: list[str],
    lineage: Lineage | None,
    workdir: Path | None,
) -> str:
    graphdef, params = nnx.graphdef(policy), abstract_params(policy, mesh)
    parts = abstract_policy_parts(graphdef, params, mesh, config.train.lora)
    count = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))
    memory = resident_bytes(config, parts, mesh)
    sampling = sampling_bytes(config, vocab_size, layout)
    if layout.has_own_devices:
        tables = [
            "memory of each device of the update, by part (without activations of the "
            "backward pass, see --compile_only):",
            *_table(memory),
            "memory of each device of the sampler, by part:",
            *_table(sampling),
        ]
    else:
        tables = [
            "memory of each device, by part (without activations of the backward pass, "
            "see --compile_only):",
            *_table(memory | sampling),
        ]
    staleness = config.train.staleness
    devices = (
        f"{chips.num_chips} chips of {chips.name}, {chips.chip.hbm_gib} GiB each"
        if chips
        else describe_devices()
    )
    return "\n".join(
        [
            json.dumps(to_json(config), indent=2),
            f"parameters  {count:,}",
            f"vocabulary  {vocab_size:,}",
            f"devices     {devices}",
            f"mesh        {_axes(mesh)}",
            *([f"sampler     {_axes(layout.mesh)}"] if layout.has_own_devices else []),
            *([f"staleness   {_schedule(staleness)}"] if staleness else []),
            *tables,
            "disk in the workdir, at most:",
            *_table(disk_bytes(config, params, parts, lineage=lineage)),
            *([_row("free there now", free_bytes(workdir))] if workdir else []),
            *(
                f"whole on each device: {axis}"
                for axis in replicated_params(policy, mesh)
            ),
            *lines,
            *([f"starts from {lineage}"] if lineage else []),
        ]
    )


def _show_prompts(setup: RunSetup) -> list[str]:
    """Returns the first train prompts as the policy reads them, and the end markers.

    Special tokens are written out.
    """
    tokenizer, lines = setup.tokenizer, []
    for number, problem in enumerate(setup.problems("train", _NUM_SHOWN), start=1):
        ids = tokenizer.encode_prompt(problem.prompt)
        lines.append(f"train prompt {number}, {len(ids)} tokens:")
        lines += [f"  | {line}" for line in tokenizer.show(ids).split("\n")]
    ends = [f"{tokenizer.show([i])} (token {i})" for i in tokenizer.eos_ids]
    ends += [f"the text {text!r}" for text in tokenizer.stop_strings]
    return [*lines, f"completions end at {', '.join(ends)}"]


def _axes(mesh: Mesh) -> str:
    return " x ".join(f"{name} {size}" for name, size in mesh.shape.items())


def _schedule(staleness: int) -> str:
    return (
        f"step t learns from rollouts of the weights before step t - {staleness}; the "
        f"first {staleness} steps use the initial weights"
    )


def _table(sizes: dict[str, int]) -> list[str]:
    rows = {**sizes, "total": sum(sizes.values())}
    return [_row(part, size) for part, size in rows.items()]


def _row(part: str, size: int) -> str:
    return f"  {part:<22}{size / _MIB:12.1f} MiB"
