"""Rollouts that are drawn steps before they are learned from (`train.staleness`).

With staleness k the rollouts of step t are drawn with the weights before step t - k, as
step t - k begins, by a fixed schedule: whatever is faster, the weights, the problems
and the keys of a step are the same. What is drawn and not yet learned from belongs to
the checkpoint, so that a resumed run learns from the same numbers.
"""

import base64
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import numpy as np

from job_jax.mesh import await_on_cpu
from job_jax.processes import device_get
from rlvr_jax.data import Difficulty, Pool, ProblemBatch
from rlvr_jax.data.curricula import BatchIndices
from rlvr_jax.rollouts.request import SampleRequest
from rlvr_jax.rollouts.sample import start_sampling
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.run.throughput import InFlight
from rlvr_jax.types import Prompts, Rollouts

_PROMPTS = "prompts."  # before the names of their arrays in a checkpoint


@dataclasses.dataclass(frozen=True, kw_only=True)
class DrawnBatch:
    """A batch of problems and their rollouts, on which the devices may be at work.

    Written by `draw_batch`, read by `rollouts.collect`, kept by checkpoints. The
    rollouts lie on the sampler's devices, or in NumPy where they were restored.
    """

    problems: ProblemBatch
    rollouts: Rollouts
    in_flight: InFlight | None = None  # None where they were restored

    def wait(self) -> None:
        """Returns when the rollouts are there."""
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
        """Returns the batch that `to_json` wrote, its problems read from the pool."""
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
    weights: Any,
    pool: Pool,
    difficulty: Difficulty,
    *,
    step: int,
    pending: Sequence[DrawnBatch],
    weight_version: int,
    batch_key: Callable[[np.uint32], jax.Array],
) -> DrawnBatch:
    """Returns the batch of a step, drawn with `weights`, the sampler's.

    `difficulty` is what is known as the weights are; `pending` are the batches of the
    steps between, of which the problems are known and the outcomes are not.
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
                # An array of its own: updates donate the state's.
                weight_version=setup.replicate(np.int32(weight_version)),
            ),
        )
    )
    return DrawnBatch(
        problems=problems, rollouts=rollouts, in_flight=InFlight(rollouts)
    )
