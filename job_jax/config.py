"""Config sections that every job has, and the value types they share."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Annotated, Any, ClassVar

from job_jax.schema import (
    ConfigSection,
    Constraint,
    NonNegativeFloat,
    PositiveInt,
    read_other_names,
)

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
    fsdp: PositiveInt = 1  # devices that split weights and optimizer state
    tensor: PositiveInt = 1  # devices that split the matrices of a layer
    cpu_devices: PositiveIntOrAll = (
        -1
    )  # per process, on CPU; -1: one per core, at most 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig(ConfigSection):
    """Checkpoints, from which an interrupted run resumes with unchanged results."""

    earlier_values: ClassVar[Mapping[str, Any]] = {"every_minutes": 0.0}

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        every=(
            "save_steps save_freq save_interval save_every checkpoint_every ckpt_every"
        ),
        max_to_keep="save_total_limit max_ckpt_num keep max_keep",
    )

    every: PositiveInt = 50  # steps between checkpoints
    every_minutes: NonNegativeFloat = 10.0  # save at least this often too; 0: off
    max_to_keep: PositiveInt = 2  # checkpoints kept of each stage, newest first

    def choose_kept(self, steps: Collection[int]) -> set[int]:
        """Returns the steps whose checkpoints stay, at most `max_to_keep`.

        The newest stays, then the newest multiples of `every`, then others. So a
        checkpoint that was saved because of the time takes no planned one's place.

        >>> sorted(CheckpointConfig(every=50).choose_kept([50, 100, 117]))
        [100, 117]
        >>> sorted(CheckpointConfig(every=50).choose_kept([100, 117, 131]))
        [100, 131]
        """
        newest = max(steps, default=0)
        ranked = sorted(steps, key=lambda s: (s != newest, s % self.every != 0, -s))
        return set(ranked[: self.max_to_keep])
