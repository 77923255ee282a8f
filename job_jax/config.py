"""The sections that every job's config has, and the kinds of value they share."""

import dataclasses
from typing import Annotated

from job_jax.schema import Bound, Count, Section

CountOrAll = Annotated[int, Bound("be positive, or -1", lambda n: n > 0 or n == -1)]
Decay = Annotated[float, Bound("lie within [0, 1)", lambda x: 0 <= x < 1)]
NOT_EMPTY = Bound("name at least one", bool)
PositiveShare = Annotated[float, Bound("lie in (0, 1]", lambda x: 0 < x <= 1)]
Seed = Annotated[int, Bound("lie within 0..2**32-1", lambda n: 0 <= n < 2**32)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeshConfig(Section):
    """Devices per mesh axis."""

    data: CountOrAll = -1  # -1: all devices that the other axes leave
    fsdp: Count = 1
    tensor: Count = 1
    cpu_devices: CountOrAll = -1  # per process, on CPU; -1: one per core, at most 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckpointConfig(Section):
    """What is kept so that a run can be cut anywhere and go on unchanged."""

    every: Count = 50  # steps between checkpoints
    keep: Count = 2  # newest N of each stage
