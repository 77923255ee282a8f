"""TPU slices by name: how many chips, and how much memory each has for programs."""

import dataclasses
import math
import re

import jax

from job_jax.command import UsageError
from job_jax.config import MeshConfig

# Of each generation: GiB of a chip's HBM that programs get, what TPU_ACCELERATOR_TYPE
# calls a slice of it, and the cores by which that counts.
_GENERATIONS = {
    "v4": (32, "v4", 2),
    "v5e": (15.75, "v5litepod", 1),
    "v5p": (95, "v5p", 2),
    "v6e": (32, "v6e", 1),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Topology:
    """A slice such as "v5e:4x4". Made by `parse_topology`."""

    name: str
    num_chips: int
    hbm_gib: float  # per chip
    accelerator_type: str  # as the cloud and libtpu call it


def parse_topology(name: str) -> Topology:
    """Returns the slice of that name. Raises UsageError where there is none."""
    generation, _, shape = name.partition(":")
    if generation not in _GENERATIONS or not re.fullmatch(r"\d+(x\d+){1,2}", shape):
        raise UsageError(
            f"--topology={name!r} is no slice; give a generation of "
            f"{list(_GENERATIONS)} and its shape, such as v5e:4x4"
        )
    hbm, kind, cores = _GENERATIONS[generation]
    num_chips = math.prod(map(int, shape.split("x")))
    return Topology(
        name=name,
        num_chips=num_chips,
        hbm_gib=hbm,
        accelerator_type=f"{kind}-{cores * num_chips}",
    )


def stand_in_mesh(mesh: MeshConfig, topology: str) -> MeshConfig:
    """Returns the mesh config whose CPU devices stand in for a slice's chips.

    Makes CPU the platform; call it before JAX starts.
    """
    jax.config.update("jax_platforms", "cpu")
    num_chips = parse_topology(topology).num_chips
    return dataclasses.replace(mesh, cpu_devices=num_chips)
