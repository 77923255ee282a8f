"""The state that a training step changes, on the devices and on the host."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from rlvr_jax.data import Difficulty, Pool, difficulty
from rlvr_jax.learn.update import TrainState
from rlvr_jax.metrics.doctor import DoctorState
from rlvr_jax.probe.rfgo_state import RFGOState
from rlvr_jax.rollouts.draw import DrawnBatch
from rlvr_jax.run.throughput import Timing


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainerState:
    """The complete state between steps of stage `train`, as checkpoints store it.

    `device` lies on the mesh and is consumed by the update that replaces it. `rfgo` is
    None in a run without a probe. `pending` are the batches already drawn for the next
    steps, at most `train.staleness`.
    """

    device: TrainState
    difficulty: Difficulty
    doctor: DoctorState
    timing: Timing
    rfgo: RFGOState | None
    pending: tuple[DrawnBatch, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the host's part as plain JSON."""
        return {
            "difficulty": self.difficulty.to_json(),
            "doctor": self.doctor.to_json(),
            "timing": self.timing.to_json(),
            "rfgo": self.rfgo.to_json() if self.rfgo else None,
            "pending": [drawn.to_json() for drawn in self.pending],
        }

    @classmethod
    def from_json(
        cls, device: TrainState, data: Mapping[str, Any], *, pool: Pool
    ) -> Self:
        """Returns the state from its device part and the output of `to_json`."""
        rfgo = data["rfgo"]
        return cls(
            device=device,
            difficulty=difficulty.from_json(data["difficulty"]),
            doctor=DoctorState.from_json(data["doctor"]),
            timing=Timing(**data["timing"]),
            rfgo=RFGOState.from_json(rfgo) if rfgo else None,
            pending=tuple(DrawnBatch.from_json(pool, one) for one in data["pending"]),
        )
