"""TPU slices by name: how many chips, their memory and their peaks."""

import dataclasses
import math
import re

import jax

from job_jax.command import UsageError
from job_jax.config import MeshConfig
from rlvr_jax.plan.program_costs import ProgramCosts


@dataclasses.dataclass(frozen=True)
class Chip:
    """A generation of chips: what programs get of its memory, and its published peaks.

    The peaks are those of docs.cloud.google.com/tpu/docs. A chip's links to its
    neighbors are taken together, as what it can send: the half of their "bidirectional"
    bandwidth.
    """

    hbm_gib: float  # as the compiler has it, where libtpu was asked
    bfloat16_flops: float  # a second
    hbm_bytes_per_s: float
    link_bytes_per_s: float

    def predict_seconds(self, costs: ProgramCosts) -> dict[str, float]:
        """Returns the least seconds of a program by resource, and of all of them.

        A prediction, not a measurement: products in bfloat16 at the peak, memory and
        links at theirs. `overlapped` is the slowest of the three, `in_turn` their sum;
        a chip is between the two where it reaches its peaks, and above where not.
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


# Beside the chip: what TPU_ACCELERATOR_TYPE calls a slice of it, and the cores by which
# that counts.
_GENERATIONS = {
    "v4": (Chip(32, 275e12, 1228e9, 300e9), "v4", 2),
    "v5e": (Chip(15.75, 197e12, 819e9, 200e9), "v5litepod", 1),
    "v5p": (Chip(95, 459e12, 2765e9, 600e9), "v5p", 2),
    "v6e": (Chip(31.24, 918e12, 1638e9, 400e9), "v6e", 1),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """A slice such as "v5e:4x4". Made by `parse_topology`."""

    name: str
    num_chips: int
    chip: Chip
    accelerator_type: str  # as the cloud and libtpu call it


def parse_topology(name: str) -> Topology:
    """Returns the slice of that name. Raises UsageError where there is none."""
    generation, _, shape = name.partition(":")
    if generation not in _GENERATIONS or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise UsageError(
            f"--topology={name!r} is no slice; give a generation of "
            f"{list(_GENERATIONS)} and its shape, such as v5e:4x4"
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
    """Returns the mesh config whose CPU devices stand in for a slice's chips.

    Makes CPU the platform; call it before JAX starts.
    """
    jax.config.update("jax_platforms", "cpu")
    num_chips = parse_topology(topology).num_chips
    return dataclasses.replace(mesh, cpu_devices=num_chips)
