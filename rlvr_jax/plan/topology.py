"""TPU slices and GPUs by name: their number of chips, memory and peak rates."""

import dataclasses
import math
import re

import jax

from job_jax.config import MeshConfig
from job_jax.flags import UsageError
from rlvr_jax.plan.program_costs import ProgramCosts


@dataclasses.dataclass(frozen=True)
class Chip:
    """A generation of chips: the memory that programs can use, and published peaks.

    The peaks come from docs.cloud.google.com/tpu/docs and from NVIDIA's data sheets
    (SXM modules, dense products). `link_bytes_per_s` is what a chip can send over all
    its links: half of their "bidirectional" bandwidth.
    """

    hbm_gib: float  # of a TPU as libtpu's compiler reports it, if we could query it
    bfloat16_flops: float  # a second
    hbm_bytes_per_s: float
    link_bytes_per_s: float

    def predict_seconds(self, costs: ProgramCosts) -> dict[str, float]:
        """Returns the least seconds of a program, by resource and in total.

        This is a prediction, not a measurement: products in bfloat16, memory and links
        all run at their peaks. `overlapped` is the slowest of the three, `in_turn`
        their sum. A chip that reaches its peaks takes a time between the two; another
        takes longer.
        """
        seconds = {
            "compute": costs.flops / self.bfloat16_flops,
            "memory": costs.hbm_bytes / self.hbm_bytes_per_s,
            "links": costs.collective_bytes / self.link_bytes_per_s,
        }
        return {
            **seconds,
            "overlapped": max(seconds.values()),
            "in_turn": sum(seconds.values()),
        }


# The chip, its name in TPU_ACCELERATOR_TYPE, and the cores a chip counts for there.
_GENERATIONS = {
    "v4": (Chip(32, 275e12, 1228e9, 300e9), "v4", 2),
    "v5e": (Chip(15.75, 197e12, 819e9, 200e9), "v5litepod", 1),
    "v5p": (Chip(95, 459e12, 2765e9, 600e9), "v5p", 2),
    "v6e": (Chip(31.24, 918e12, 1638e9, 400e9), "v6e", 1),
}
_GPU_SHARE = 0.75  # of a GPU's memory, which JAX reserves by default
_GPUS = {
    "a100": Chip(79 * _GPU_SHARE, 312e12, 2039e9, 300e9),
    "h100": Chip(79 * _GPU_SHARE, 989e12, 3350e9, 450e9),
    "h200": Chip(139 * _GPU_SHARE, 989e12, 4800e9, 450e9),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """A slice such as "v5e:4x4", or GPUs such as "h100:8". Made by `parse_topology`."""

    name: str
    num_chips: int
    chip: Chip
    accelerator_type: str | None  # its name for the cloud and libtpu; None for GPUs

    @property
    def unit(self) -> str:
        """Returns what one of its devices is called."""
        return "GPU" if self.accelerator_type is None else "chip"

    def __str__(self) -> str:
        """Returns "4 chips of v5e:2x2, 15.75 GiB each"."""
        several = f"s of {self.name}" if self.num_chips > 1 else f" of {self.name}"
        return f"{self.num_chips} {self.unit}{several}, {self.chip.hbm_gib:g} GiB each"


def parse_topology(name: str) -> Topology:
    """Returns the slice or the GPUs of that name. Raises UsageError if unknown."""
    generation, _, shape = name.partition(":")
    if generation in _GPUS and re.fullmatch(r"[1-9]\d*", shape):
        return Topology(
            name=name,
            num_chips=int(shape),
            chip=_GPUS[generation],
            accelerator_type=None,
        )
    if generation not in _GENERATIONS or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise UsageError(
            f"--topology={name!r} is neither a slice nor a number of GPUs; give a "
            f"generation of {list(_GENERATIONS)} and its shape, such as v5e:4x4, or "
            f"with --dry_run a number of {list(_GPUS)}, such as h100:8"
        )
    chip, kind, cores = _GENERATIONS[generation]
    num_chips = math.prod(map(int, shape.split("x")))
    return Topology(
        name=name,
        num_chips=num_chips,
        chip=chip,
        accelerator_type=f"{kind}-{cores * num_chips}",
    )


def stand_in_mesh(mesh: MeshConfig, topology: str) -> MeshConfig:
    """Returns a mesh config with a CPU device for each of a slice's chips.

    It makes CPU the platform; call it before JAX starts.
    """
    jax.config.update("jax_platforms", "cpu")
    num_chips = parse_topology(topology).num_chips
    return dataclasses.replace(mesh, cpu_devices=num_chips)
