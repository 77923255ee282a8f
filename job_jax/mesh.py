"""The device mesh, and the table that maps logical axes to its axes."""

import math
import os
import pathlib
import sys
from collections.abc import Sequence
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

import jax
from jax.experimental import mesh_utils
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from job_jax import processes
from job_jax.config import MeshConfig
from job_jax.schema import ConfigError

Tree = TypeVar("Tree")

_MAX_CPU_DEVICES = 8
_THREADS_PER_CPU_DEVICE = 4  # collectives of one program that can wait at a time
_LLVM_LEVEL = "--xla_backend_optimization_level"

AXES = ("data", "fsdp", "tensor")

# Logical axis -> mesh axes. Parameters name their logical axes where they are created.
LOGICAL_AXIS_RULES: dict[str | None, tuple[str, ...]] = {
    None: (),
    "batch": ("data", "fsdp"),
    "sequence": ("tensor",),
    "layers": (),
    "vocab": ("tensor",),
    "embed": ("fsdp",),
    "mlp": ("tensor",),
    "heads": ("tensor",),
    "kv_heads": ("tensor",),
    "head_dim": (),
    "latents": ("tensor",),
}


def start_jax(config: MeshConfig, *, multi_process: bool = False) -> None:
    """Sets up processes, devices and compilation cache; call before JAX starts.

    Compiled programs are kept in JAX_COMPILATION_CACHE_DIR, by default under the user's
    cache directory. Raises ConfigError if the environment requests several processes
    but the command is not `multi_process`.
    """
    processes.initialize() if multi_process else processes.require_single_process()
    configure_cpu(config)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
        directory = str(pathlib.Path(cache) / "rlvr_jax")
        jax.config.update("jax_compilation_cache_dir", directory)


def configure_cpu(config: MeshConfig) -> None:
    """Gives JAX one virtual CPU device per core (or as many as the config says).

    Call before JAX starts. Data-parallel virtual devices keep every core busy even with
    small matrix products, which one device's thread pool does not. Their number is a
    power of two and at most 8, so a recipe whose batches are multiples of 8 runs on
    every machine. Processes on one machine share its cores.

    XLA runs several collectives of one program at a time. In each, every device has a
    thread that waits for the other devices. If there are fewer threads than devices,
    two collectives can take them all and deadlock (seen with JAX 0.10.2: 8 devices on 2
    cores, one in 30 new programs). With enough cores we add no threads, because extra
    threads cost 6 % of a step.

    Where JAX has no accelerator's plugin, LLVM optimizes less, unless XLA_FLAGS names a
    level or a file. Compiling then takes a third less time, and a step took no longer.
    """
    count = num_cpu_devices(config)
    jax.config.update("jax_num_cpu_devices", count)
    if count > _num_cores():
        os.environ.setdefault("PJRT_NPROC", str(_THREADS_PER_CPU_DEVICE * count))
    flags = os.environ.get("XLA_FLAGS", "").strip()
    is_file = flags and not flags.startswith("-")
    if not (is_file or _LLVM_LEVEL in flags or _has_plugin()):
        os.environ["XLA_FLAGS"] = f"{flags} {_LLVM_LEVEL}=1".strip()


def _has_plugin() -> bool:
    """Returns whether JAX could use an accelerator: a plugin or libtpu is there."""
    return bool(entry_points(group="jax_plugins")) or find_spec("libtpu") is not None


def num_cpu_devices(config: MeshConfig) -> int:
    """Returns this process's number of CPU devices: as configured, or one per core.

    All processes call it together.
    """
    num_processes = processes.local_process_count()
    if config.cpu_devices != -1:
        return config.cpu_devices
    cores = max(1, _num_cores() // num_processes)
    return min(_MAX_CPU_DEVICES, 1 << (cores.bit_length() - 1))


def _num_cores() -> int:
    """Returns the cores that this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def make_mesh(config: MeshConfig, devices: Sequence[jax.Device] | None = None) -> Mesh:
    """Returns the mesh (data, fsdp, tensor) over all devices or the given ones.

    Raises ConfigError if the axes do not multiply to the number of devices.
    """
    count = jax.device_count() if devices is None else len(devices)
    others = config.fsdp * config.tensor
    data = count // others if config.data == -1 else config.data
    if data * others != count:
        if config.data == -1:
            fix = f"{others} must divide {count}; data=-1 takes the rest"
        else:
            fix = "change an axis, or set mesh.data=-1 to use the devices left over"
        raise ConfigError(
            f"mesh data={config.data} x fsdp={config.fsdp} x tensor={config.tensor} "
            f"does not use the {count} devices exactly; {fix}"
        )
    shape = (data, config.fsdp, config.tensor)
    types = (AxisType.Auto,) * len(AXES)
    # Unlike jax.make_mesh, this also splits axes of a torus that is not a v5e's,
    # such as 16 x 16 into 64 x 4.
    grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return Mesh(grid, AXES, axis_types=types)


def check_axes(mesh: Mesh) -> None:
    """Raises ConfigError if a mesh that a caller made lacks one of AXES."""
    if set(AXES) - set(mesh.axis_names):
        raise ConfigError(
            f"the mesh has the axes {mesh.axis_names}, not {AXES}; make it by "
            "job_jax.mesh.make_mesh(job_jax.config.MeshConfig(fsdp=...))"
        )


def reshape_mesh(mesh: Mesh, tensor: int, field_name: str) -> Mesh:
    """Returns a mesh of the same devices with axes (size / tensor, 1, tensor).

    Devices keep their order, so a program may take arrays of either mesh. Raises
    ConfigError, naming `field_name`, if `tensor` does not divide their number.
    """
    if mesh.size % tensor:
        raise ConfigError(
            f"{field_name}={tensor} does not divide the mesh's {mesh.size} devices; "
            "choose one of its divisors"
        )
    shape = (mesh.size // tensor, 1, tensor)
    return Mesh(mesh.devices.reshape(shape), AXES, axis_types=mesh.axis_types)


def partition_spec(
    shape: Sequence[int], logical_axes: Sequence[str | None], mesh: Mesh | AbstractMesh
) -> Spec:
    """Returns how an array of this shape with these logical axes is split on the mesh.

    An axis is replicated if its devices do not divide its size: two key/value heads on
    four tensor-parallel devices, say. Raises ValueError on an axis that is not in
    LOGICAL_AXIS_RULES, and if two axes would be split over one mesh axis.
    """
    if unknown := set(logical_axes) - LOGICAL_AXIS_RULES.keys():
        raise ValueError(
            f"no rule for the logical axes {unknown}; LOGICAL_AXIS_RULES has "
            f"{[*LOGICAL_AXIS_RULES]}"
        )
    taken = [axis for name in logical_axes for axis in LOGICAL_AXIS_RULES[name]]
    if len(taken) != len(set(taken)):
        raise ValueError(f"logical axes {logical_axes} share a mesh axis: {taken}")

    def mesh_axes(size: int, name: str | None) -> tuple[str, ...] | None:
        parts = _num_shards(name, mesh)
        return LOGICAL_AXIS_RULES[name] if parts > 1 and size % parts == 0 else None

    return Spec(*map(mesh_axes, shape, logical_axes))


def unsharded_axes(
    shape: Sequence[int], logical_axes: Sequence[str | None], mesh: Mesh | AbstractMesh
) -> list[str]:
    """Returns the axes that `partition_spec` replicates because of their size."""
    return [
        f"{name} ({size} over {parts})"
        for size, name in zip(shape, logical_axes, strict=True)
        if size % (parts := _num_shards(name, mesh))
    ]


def _num_shards(name: str | None, mesh: Mesh | AbstractMesh) -> int:
    """Returns the number of devices over which a logical axis is split."""
    return math.prod(mesh.shape[axis] for axis in LOGICAL_AXIS_RULES[name])


def mesh_platform() -> str:
    """Returns the platform of the current mesh's devices, or else JAX's default one."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return device.platform if device else jax.default_backend()


def num_batch_devices() -> int:
    """Returns how many devices of the current mesh split a batch; 1 without a mesh."""
    mesh = jax.sharding.get_abstract_mesh()
    return 1 if mesh.empty else _num_shards("batch", mesh)


def with_logical_constraint(x: jax.Array, *logical_axes: str | None) -> jax.Array:
    """Returns x split by its logical axes on the current mesh, if there is one.

    Without axes, x is replicated.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return x
    axes = logical_axes or (None,) * x.ndim
    return jax.lax.with_sharding_constraint(x, partition_spec(x.shape, axes, mesh))


def num_batch_shards(rows: int) -> int:
    """Returns how many shards an axis of rows has on the current mesh."""
    parts = num_batch_devices()
    return parts if rows % parts == 0 else 1


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of arrays whose first axis is the batch (P or B)."""
    return NamedSharding(mesh, Spec(LOGICAL_AXIS_RULES["batch"]))


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    """Returns the sharding of arrays that every device holds whole."""
    return NamedSharding(mesh, Spec())


def await_on_cpu(tree: Tree) -> Tree:
    """Waits for the arrays if there are several CPU devices; returns them.

    Devices of one process share threads. With many programs in flight, later ones can
    hold the threads that an earlier one needs for its collectives, and all deadlock
    (seen with JAX 0.10.2, with hundreds in flight within seconds). Devices of several
    processes could also meet in collectives of different programs, because on a CPU
    programs need not run in the order of their calls. On other devices it does nothing.
    """
    if jax.default_backend() == "cpu" and jax.device_count() > 1:
        jax.block_until_ready(tree)
    return tree


def output_shapes(program: Any, *args: Any, **static: Any) -> Any:
    """Returns the shapes, dtypes and shardings of a jitted program's results.

    It compiles the program but does not run it or allocate anything. Arguments may be
    ShapeDtypeStructs.
    """
    lowered = program.lower(*args, **static)
    return jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        lowered.out_info,
        lowered.compile().output_shardings,
    )


def check_batch(rows: int, mesh: Mesh, field_name: str) -> None:
    """Raises ConfigError if the data x fsdp devices do not divide `rows`."""
    parts = mesh.shape["data"] * mesh.shape["fsdp"]
    if rows % parts:
        raise ConfigError(
            f"{field_name}={rows} cannot be split over {parts} devices (axes data and "
            f"fsdp of the mesh); use a multiple of {parts}, or fewer devices (on CPU: "
            "mesh.cpu_devices)"
        )


def describe_devices() -> str:
    """Returns JAX's devices as text: "8 x TPU v5 lite", "2 x cpu on 2 cores"."""
    devices = jax.devices()
    kind = devices[0].device_kind
    cores = f" on {os.cpu_count()} cores" if devices[0].platform == "cpu" else ""
    several = (
        f", {processes.process_count()} processes"
        if processes.process_count() > 1
        else ""
    )
    return f"{len(devices)} x {kind}{cores}{several}"
