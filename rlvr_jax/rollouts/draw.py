"""Rollouts that are sampled steps before the run trains on them (`train.staleness`).

With staleness k, the rollouts of step t are sampled when step t - k begins, with the
weights before step t - k. The schedule is fixed: a step's weights, problems and keys do
not depend on whether the sampler or the trainer is faster. Rollouts that are sampled
but not yet trained on are part of the checkpoint, so a resumed run trains on the same
numbers.
"""

import base64
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np
from flax import nnx

from job_jax.mesh import await_on_cpu
from job_jax.processes import device_get
from rlvr_jax.data import Difficulty, Pool, ProblemBatch
from rlvr_jax.data.curricula import BatchIndices
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import start_sampling
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.throughput import InFlight
from rlvr_jax.types import Prompts, Rollouts

_PROMPTS = "prompts."  # prefix of the prompts' arrays in a checkpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawnBatch:
    """A batch of problems and their rollouts, which devices may still be computing.

    Written by `draw_batch`, read by `rollouts.collect`, stored in checkpoints. The
    rollouts are on the sampler's devices, or in NumPy if they were restored.
    """

    problems: ProblemBatch
    rollouts: Rollouts
    in_flight: InFlight | None = None  # None if they were restored

    def wait(self) -> None:
        """Waits until the rollouts are computed."""
        jax.block_until_ready(self.rollouts)

    def to_json(self) -> dict[str, Any]:
        """Returns the batch as plain JSON; waits for the rollouts.

        All processes call it together.
        """
        rollouts = device_get(self.rollouts)
        arrays = {name: x for name, x in vars(rollouts).items() if name != "prompts"}
        for name, x in vars(rollouts.prompts).items():
            arrays[_PROMPTS + name] = x
        arrays = {name: x for name, x in arrays.items() if x is not None}
        file = io.BytesIO()
        np.savez_compressed(file, **arrays)
        return {
            "source_index": self.problems.source_index.tolist(),
            "num_fallback": self.problems.num_fallback,
            "rollouts": base64.b64encode(file.getvalue()).decode(),
        }

    @classmethod
    def from_json(cls, pool: Pool, data: Mapping[str, Any]) -> Self:
        """Returns the batch that `to_json` wrote, with its problems from the pool."""
        with np.load(io.BytesIO(base64.b64decode(data["rollouts"]))) as arrays:
            prompts = {
                name.removeprefix(_PROMPTS): arrays[name]
                for name in arrays
                if name.startswith(_PROMPTS)
            }
            others = {
                name: arrays[name] for name in arrays if not name.startswith(_PROMPTS)
            }
        indices = BatchIndices(
            problems=np.array(data["source_index"], int),
            num_fallback=data["num_fallback"],
        )
        return cls(
            problems=pool.read(indices),
            rollouts=Rollouts(prompts=Prompts(**prompts), **others),
        )


def draw_batch(
    setup: RunSetup,
    weights: nnx.State,
    pool: Pool,
    difficulty: Difficulty,
    *,
    step: int,
    pending: Sequence[DrawnBatch],
    weight_version: int,
    batch_key: Callable[[np.uint32], jax.Array],
) -> DrawnBatch:
    """Returns a step's batch, sampled with `weights`.

    `weights` are in the sampler's layout. `difficulty` is the state at the step of the
    weights. `pending` are the batches of the steps in between: their problems are
    known, but not yet their outcomes.
    """
    train = setup.config.train
    now = dataclasses.replace(
        difficulty, num_batches=difficulty.num_batches + len(pending)
    )
    asked = [index for drawn in pending for index in drawn.problems.problem_index]
    problems = pool.next_batch(now, step, train.batch_size, asked=asked)
    rollouts = await_on_cpu(
        start_sampling(
            setup,
            SampleRequest(
                problems=problems.problems,
                weights=weights,
                sampling=train.sampling,
                num_samples=train.group_size,
                key=batch_key(np.uint32(now.num_batches)),
                weight_version=np.int32(weight_version),
            ),
        )
    )
    return DrawnBatch(
        problems=problems, rollouts=rollouts, in_flight=InFlight(rollouts)
    )
