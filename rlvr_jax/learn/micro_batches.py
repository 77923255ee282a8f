"""A batch -> micro-batches: what a device computes at a time, in passes and updates.

Groups are sorted by length and cut into equal parts, each as narrow as its longest
completion allows. Scoring passes and gradients are cut alike, so neither needs more
memory than the other, and a run meets the same few shapes in both.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from job_jax.mesh import await_on_cpu
from job_jax.processes import device_get
from rlvr_jax.config import Config
from rlvr_jax.learn.batches import abstract_batch, take_groups, trim_padding
from rlvr_jax.types import Batch


@dataclasses.dataclass(frozen=True, kw_only=True)
class MicroBatchCut:
    """How batches are cut: groups of a micro-batch, and what widths are multiples of.

    Every batch that is cut has a multiple of `num_groups` groups.
    """

    num_groups: int
    pad_multiple: int

    @classmethod
    def from_config(cls, config: Config) -> "MicroBatchCut":
        """Returns how stage `train` cuts what it scores and what it learns from."""
        return cls(
            num_groups=config.train.groups_per_micro_batch,
            pad_multiple=config.completion_pad_multiple,
        )


def abstract_micro_batch(config: Config, *, prompt_width: int) -> Batch:
    """Returns the shapes of an update's micro-batch, completions at their longest."""
    train, bucket = config.train, config.completion_pad_multiple
    return abstract_batch(
        num_prompts=train.groups_per_micro_batch,
        group_size=train.rows_per_group,
        prompt_width=prompt_width,
        width=-(-train.sampling.max_new_tokens // bucket) * bucket,
        with_probe=True,
        with_external=train.loss.has_external_traces,
    )


def plan_micro_batches(batch: Batch, cut: MicroBatchCut) -> list[np.ndarray]:
    """Returns the groups of each micro-batch, from the shortest to the longest.

    A batch that is one micro-batch keeps its order.
    """
    P = len(batch.prompt_lengths)
    longest_P = batch.lengths.reshape(P, -1).max(axis=1)
    order_P = np.arange(P)
    if cut.num_groups < P:
        order_P = np.argsort(longest_P, kind="stable")
    return np.split(order_P, P // cut.num_groups)


def take_micro_batch(batch: Batch, groups_Q: np.ndarray, cut: MicroBatchCut) -> Batch:
    """Returns these groups, trimmed to a multiple of `pad_multiple` columns."""
    part = take_groups(batch, groups_Q)
    width = -(-int(part.lengths.max()) // cut.pad_multiple) * cut.pad_multiple
    return trim_padding(part, min(width, batch.tokens.shape[1]))


def split_micro_batches(batch: Batch, cut: MicroBatchCut) -> Iterator[Batch]:
    """Yields the batch's micro-batches; their losses add up to that of the batch."""
    for groups_Q in plan_micro_batches(batch, cut):
        yield take_micro_batch(batch, groups_Q, cut)


def score_micro_batches(
    score: Callable[[Batch], Any], batch: Batch, cut: MicroBatchCut
) -> Any:
    """Returns what `score` finds of each token, a micro-batch at a time.

    `score` returns a tree of arrays [b, t] on the devices for the b completions of a
    micro-batch, 0 beyond their lengths; the result is [B, T] in NumPy, in the batch's
    order.
    """
    plan = plan_micro_batches(batch, cut)
    parts = [
        await_on_cpu(score(take_micro_batch(batch, groups_Q, cut))) for groups_Q in plan
    ]
    return jax.tree.map(
        lambda *arrays: _restore_order(arrays, plan, batch), *device_get(parts)
    )


def _restore_order(
    parts: Sequence[np.ndarray], plan: Sequence[np.ndarray], batch: Batch
) -> np.ndarray:
    """Returns the parts' rows [b, t] where they stand in the batch, [B, T]."""
    P, (B, T) = len(batch.prompt_lengths), batch.tokens.shape
    whole_PGT = np.zeros((P, B // P, T), parts[0].dtype)
    for part, groups_Q in zip(parts, plan, strict=True):
        width = part.shape[1]
        whole_PGT[groups_Q, :, :width] = part.reshape(len(groups_Q), -1, width)
    return whole_PGT.reshape(B, T)
