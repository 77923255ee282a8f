"""Describes a run without starting it: whether it fits, its memory, disk and time."""

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
from flax import nnx
from jax.sharding import Mesh

from job_jax.config_io import to_json
from job_jax.disk import free_bytes
from job_jax.flags import UsageError
from job_jax.mesh import describe_devices
from job_jax.schema import ConfigError, iter_sections
from rlvr_jax.config import Config
from rlvr_jax.data import Pool
from rlvr_jax.models import Transformer, replicated_params
from rlvr_jax.models.huggingface import hf_vocab_size
from rlvr_jax.plan.duration import stage_durations
from rlvr_jax.plan.memory import disk_bytes
from rlvr_jax.plan.peak_memory import memory_phases
from rlvr_jax.plan.run_shapes import RunShapes
from rlvr_jax.plan.speed import Speed
from rlvr_jax.plan.tables import format_phases, format_size, format_sizes, format_stages
from rlvr_jax.plan.topology import Topology, parse_topology
from rlvr_jax.plan.verdict import Room, describe_verdict, describe_work
from rlvr_jax.plan.widths import Widths
from rlvr_jax.rollouts.try_rewards import try_setup_rewards
from rlvr_jax.run.checks import check_new_run
from rlvr_jax.run.lineage import Lineage
from rlvr_jax.run.setup import RunSetup, open_setup
from rlvr_jax.run.start_warnings import describe_start
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.sampler import SamplerLayout, update_mesh

_NUM_SHOWN = 2  # prompts


def describe(
    config: Config,
    topology: str | None = None,
    *,
    lineage: Lineage | None = None,
    workdir: Path | None = None,
    verbose: bool = False,
) -> str:
    """Returns the plan of a run as text. Raises ConfigError if it could not run.

    Its first line says whether the run fits into memory and how long it takes. A run
    that does not fit is not an error, because both are estimates. With `topology`
    ("v5e:4x4", "h100:8") the plan is for those chips. They need not exist: as many
    CPU devices represent them. If the checkpoint to start from is missing, the plan
    uses only shapes, does not check tokenizer and problems, and says so. `lineage` is
    the checkpoint of another run that the run starts from; `workdir` is where it will
    write. With `verbose`, the text ends with the resolved config.
    """
    is_new = not workdir or not Workdir(workdir, config, writes=False).has_config
    chips = parse_topology(topology) if topology else None
    devices = _plan_devices(chips)
    mesh = _plan_mesh(config, devices, chips)
    start = config.pretrained.path
    if start and not Path(start).is_dir():
        num_rows = hf_vocab_size(config.pretrained)
        policy = nnx.eval_shape(
            lambda: Transformer(config.model, num_rows, nnx.Rngs(0))
        )
        plan = RunShapes(
            config=config,
            policy=policy,
            mesh=mesh,
            layout=SamplerLayout.from_config(config, policy, mesh, devices),
            vocab_size=num_rows,
            widths=Widths.from_config(config),
            on_cpu=_on_cpu(devices, chips),
        )
        notes = [f"{start} does not exist: tokenizer and data are not checked"]
        lines = _format(
            plan, chips=chips, notes=notes, lineage=lineage, workdir=workdir
        )
    else:
        lines = _describe_setup(
            config,
            devices,
            chips=chips,
            lineage=lineage,
            workdir=workdir,
            is_new=is_new,
        )
    return "\n".join([*lines, *([_format_config(config)] if verbose else [])])


def _describe_setup(
    config: Config,
    devices: Sequence[jax.Device],
    *,
    chips: Topology | None,
    lineage: Lineage | None,
    workdir: Path | None,
    is_new: bool,
) -> list[str]:
    """Returns the plan of a run whose problems and tokenizer can be read."""
    with tempfile.TemporaryDirectory() as scratch:
        setup = open_setup(config, Path(scratch) / "tokenizer.model", devices=devices)
        if is_new:
            check_new_run(setup.config, setup.sources, setup.first_by_verifier())
        config.probe.check_before_run(config, setup.tokenizer.encode)
        notes = [
            *try_setup_rewards(setup),
            *_show_own_classes(config),
            *describe_start(setup, lineage),
            *_show_prompts(setup),
        ]
        plan = RunShapes(
            config=setup.config,
            policy=nnx.merge(setup.graphdef, setup.abstract_params()),
            mesh=setup.mesh,
            layout=setup.sampler_layout,
            vocab_size=setup.vocab_size,
            widths=Widths.from_setup(setup),
            on_cpu=_on_cpu(devices, chips),
        )
        return _format(
            plan,
            chips=chips,
            notes=notes,
            lineage=lineage,
            workdir=workdir,
            num_train_problems=Pool(setup.sources["train"], setup.config).size,
        )


def _on_cpu(devices: Sequence[jax.Device], chips: Topology | None) -> bool:
    """Returns whether the run's devices are CPU devices, not stand-ins for chips."""
    return chips is None and devices[0].platform == "cpu"


def _format_config(config: Config) -> str:
    return json.dumps(to_json(config), indent=2)


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
            "--topology=v5e:4x4 or h100:8 (what the run will have)"
        ) from error


def _plan_devices(chips: Topology | None) -> Sequence[jax.Device]:
    devices = jax.devices()
    if chips is None:
        return devices
    if len(devices) < chips.num_chips:
        raise UsageError(
            f"--topology={chips.name} has {chips.num_chips} {chips.unit}s, but JAX has "
            f"already started with {len(devices)} devices; plan in a new process"
        )
    return devices[: chips.num_chips]


def _format(
    run: RunShapes,
    *,
    chips: Topology | None,
    notes: Sequence[str],
    lineage: Lineage | None,
    workdir: Path | None,
    num_train_problems: int = 0,
) -> list[str]:
    """Returns the plan's lines: the verdict, then `notes`, then the numbers."""
    config, mesh, layout = run.config, run.mesh, run.layout
    phases, room = memory_phases(run), Room.find(config, chips)
    stages = stage_durations(
        run, _speed(run, chips), num_train_problems=num_train_problems
    )
    verdict, *fixes = describe_verdict(phases, room)
    staleness = config.train.staleness
    devices = str(chips) if chips else describe_devices()
    disk = disk_bytes(config, run.params, run.parts, lineage=lineage)
    return [
        f"{verdict}; {describe_work(config, stages)}",
        *fixes,
        *notes,
        *([f"starts from {lineage}"] if lineage else []),
        f"parameters  {run.num_params:,}",
        f"vocabulary  {run.vocab_size:,}",
        f"devices     {devices}",
        f"mesh        {_axes(mesh)}",
        *([f"sampler     {_axes(layout.mesh)}"] if layout.has_own_devices else []),
        *([f"staleness   {_schedule(staleness)}"] if staleness else []),
        *format_phases(phases, has_own_devices=layout.has_own_devices),
        *room.describe_sharing(),
        "disk in the workdir, at most:",
        *format_sizes(disk),
        *([format_size("free there now", free_bytes(workdir))] if workdir else []),
        *format_stages(stages),
        *(
            f"whole on each device: {axis}"
            for axis in replicated_params(run.policy, mesh)
        ),
    ]


def _speed(run: RunShapes, chips: Topology | None) -> Speed:
    if chips is not None:
        return Speed.of_chips(chips.chip, chips.num_chips)
    return Speed.measure(run.config.model.compute_dtype, jax.local_devices())


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


def _show_own_classes(config: Config) -> list[str]:
    """Returns a line for each section of a user's class, with its settings."""
    lines = []
    for path, section in iter_sections(config):
        for name in section.tags().values():
            if ":" in name:
                settings = [
                    f"{field.name}={vars(section)[field.name]}"
                    for field in dataclasses.fields(section)
                ]
                lines.append(f"{path.rstrip('.')}: {', '.join([name, *settings])}")
    return lines


def _axes(mesh: Mesh) -> str:
    return " x ".join(f"{name} {size}" for name, size in mesh.shape.items())


def _schedule(staleness: int) -> str:
    return (
        f"step t learns from rollouts of the weights before step t - {staleness}; the "
        f"first {staleness} steps use the initial weights"
    )
