"""Config sections that every job has, and the value types they share."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, ClassVar

from job_jax.schema import ConfigSection, Constraint, PositiveInt, read_other_names

PositiveIntOrAll = Annotated[
    int, Constraint("be positive, or -1", lambda n: n > 0 or n == -1)
]
DecayRate = Annotated[float, Constraint("lie within [0, 1)", lambda x: 0 <= x < 1)]
NON_EMPTY = Constraint("name at least one", bool)
PositiveFraction = Annotated[float, Constraint("lie in (0, 1]", lambda x: 0 < x <= 1)]
Seed = Annotated[int, Constraint("lie within 0..2**32-1", lambda n: 0 <= n < 2**32)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(ConfigSection):
    """Devices per mesh axis."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        data="dp data_parallel data_parallel_size",
        tensor="tp tensor_parallel_size tensor_model_parallel_size",
    )

    data: PositiveIntOrAll = -1  # -1: all devices that the other axes do not use
    fsdp: PositiveInt = 1
    tensor: PositiveInt = 1
    cpu_devices: PositiveIntOrAll = (
        -1
    )  # per process, on CPU; -1: one per core, at most 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig(ConfigSection):
    """Checkpoints, from which an interrupted run resumes with unchanged results."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        every=(
            "save_steps save_freq save_interval save_every checkpoint_every ckpt_every"
        ),
        max_to_keep="save_total_limit max_ckpt_num keep max_keep",
    )

    every: PositiveInt = 50  # steps between checkpoints
    max_to_keep: PositiveInt = 2  # newest N of each stage
