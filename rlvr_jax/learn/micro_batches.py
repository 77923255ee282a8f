"""A batch -> micro-batches: the part that a device computes at a time.

Groups are sorted by length and split by their number or by their tokens. Each
micro-batch is as narrow as its longest completion allows; if its short completions
share rows (`learn.packing`), it is as wide as any can be. Scoring passes and gradients
are split alike. So neither needs more memory, and a run meets the same few shapes in
both.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from job_jax.mesh import await_on_cpu, num_batch_devices
from job_jax.processes import device_get
from rlvr_jax.config import Config
from rlvr_jax.learn.activation_memory import ActivationLimit
from rlvr_jax.learn.batches import abstract_batch, take_groups, trim_padding
from rlvr_jax.learn.packing import count_rows, pack_completions
from rlvr_jax.models.kernels import takes_packed_rows
from rlvr_jax.types import Batch

_NO_LIMIT = ActivationLimit()


@dataclasses.dataclass(frozen=True, kw_only=True)
class MicroBatchCut:
    """How batches are split.

    With `max_tokens` a micro-batch holds at most that many tokens, prompts and padding
    included, in a multiple of `group_multiple` groups; `num_groups` is ignored.
    Otherwise it holds `num_groups`, which must divide the groups of a batch. Widths are
    multiples of `pad_multiple`. With `packing`, completions of a group share rows of
    the batch's width if this saves at least a quarter of the tokens; a smaller saving
    is not worth compiling a program.
    """

    num_groups: int
    pad_multiple: int
    max_tokens: int = 0
    group_multiple: int = 1
    packing: bool = False
    memory: ActivationLimit = _NO_LIMIT

    @classmethod
    def from_config(cls, config: Config) -> "MicroBatchCut":
        """Returns how stage `train` splits batches, to score them and to learn.

        Reads the current mesh: every batch device gets the same number of groups.
        Completions are packed if `train.packing` is on and the policy's attention can
        read packed rows.
        """
        train = config.train
        return cls(
            num_groups=train.groups_per_micro_batch,
            pad_multiple=config.completion_pad_multiple,
            max_tokens=train.micro_batch_tokens,
            group_multiple=num_batch_devices(),
            packing=train.packing
            and takes_packed_rows(config.model, length=train.sampling.max_new_tokens),
            memory=ActivationLimit.from_config(config),
        )

    def rows_and_width(
        self, lengths: Int[np.ndarray, " P G"], max_width: int
    ) -> tuple[int, int]:
        """Returns rows and columns of each group: G rows, or fewer if packed."""
        G = lengths.shape[1]
        columns = -(-int(lengths.max()) // self.pad_multiple) * self.pad_multiple
        width = min(columns, max_width)
        if self.packing:
            rows = int(count_rows(lengths, max_width).max())
            if 4 * rows * max_width <= 3 * G * width:
                return rows, max_width
        return G, width

    def groups_within_tokens(self, prompt_width: int, rows: int, width: int) -> int:
        """Returns how many groups of `rows` rows `max_tokens` allows."""
        groups = self.max_tokens // (prompt_width + rows * width)
        return max(1, groups // self.group_multiple) * self.group_multiple


def abstract_micro_batch(
    config: Config, *, prompt_width: int, num_ref_features: int = 0
) -> Batch:
    """Returns the shapes of an update's micro-batch with the longest completions.

    No completion shares a row. `num_ref_features` is the number of the reference
    policy's features that RFGO reads.
    """
    train, cut = config.train, MicroBatchCut.from_config(config)
    width = -(-train.sampling.max_new_tokens // cut.pad_multiple) * cut.pad_multiple
    rows = train.rows_per_group
    num_groups = (
        cut.groups_within_tokens(prompt_width, rows, width)
        if cut.max_tokens
        else cut.memory.fit(cut.num_groups, rows, prompt_width, width)
    )
    return abstract_batch(
        num_prompts=num_groups,
        group_size=train.rows_per_group,
        prompt_width=prompt_width,
        width=width,
        with_probe=True,
        num_ref_features=num_ref_features,
        with_external=train.loss.has_external_traces,
    )


def plan_micro_batches(batch: Batch, cut: MicroBatchCut) -> list[np.ndarray]:
    """Returns the groups of each micro-batch, from the shortest to the longest.

    A -1 is a group of length 0 that fills up a micro-batch. Without
    `max_tokens`, a batch that fits in one micro-batch keeps its order.
    """
    P, max_width = len(batch.prompt_lengths), batch.tokens.shape[1]
    lengths_PG = batch.lengths.reshape(P, -1)
    order_P = _sort_groups(lengths_PG, cut, max_width)
    if not cut.max_tokens:
        S, rows = batch.prompt_tokens.shape[1], lengths_PG.shape[1]
        num_groups = cut.memory.fit(cut.num_groups, rows, S, max_width)
        if num_groups == P:
            order_P = np.arange(P)
        return np.split(order_P, P // num_groups)
    plan: list[np.ndarray] = []
    while len(order_P):
        longest_first = order_P[::-1]
        size = _num_groups_within(
            lengths_PG[longest_first],
            cut,
            prompt_width=batch.prompt_tokens.shape[1],
            max_width=max_width,
        )
        filler = np.full(max(0, size - len(order_P)), -1)
        plan.append(np.concatenate([order_P[-size:], filler]))
        order_P = order_P[:-size]
    return plan[::-1]


def _sort_groups(
    lengths_PG: np.ndarray, cut: MicroBatchCut, max_width: int
) -> np.ndarray:
    """Returns the groups sorted by their packed rows, then by their longest."""
    longest_P = lengths_PG.max(axis=1)
    if not cut.packing:
        return np.argsort(longest_P, kind="stable")
    return np.lexsort((longest_P, count_rows(lengths_PG, max_width)))


def _num_groups_within(
    lengths: np.ndarray, cut: MicroBatchCut, *, prompt_width: int, max_width: int
) -> int:
    """Returns how many of the groups [P, G], longest first, fit in `max_tokens`.

    The number depends only on the rows of a group and on the width, so few shapes
    occur. If fewer groups than that are left, they are filled up to a power of two.
    """
    size, needed = len(lengths), cut.rows_and_width(lengths[:1], max_width)
    while True:
        size = min(size, cut.groups_within_tokens(prompt_width, *needed))
        allowed, needed = needed, cut.rows_and_width(lengths[:size], max_width)
        if math.prod(needed) <= math.prod(allowed):
            break
    size = cut.groups_within_tokens(prompt_width, *allowed)
    smaller = cut.group_multiple
    while smaller < len(lengths):
        smaller *= 2
    return min(size, smaller)


def take_micro_batch(batch: Batch, groups_Q: np.ndarray, cut: MicroBatchCut) -> Batch:
    """Returns these groups, trimmed to the width that they need, and packed."""
    part = take_groups(batch, np.maximum(groups_Q, 0))
    part = dataclasses.replace(part, left_out=None)  # no program reads it
    if (groups_Q < 0).any():
        part = _empty_groups(part, groups_Q < 0)
    lengths_QG = part.lengths.reshape(len(groups_Q), -1)
    rows, width = cut.rows_and_width(lengths_QG, batch.tokens.shape[1])
    part = trim_padding(part, width)
    if rows == lengths_QG.shape[1]:
        return part
    return dataclasses.replace(part, packing=pack_completions(lengths_QG, width))


def _empty_groups(batch: Batch, is_filler_P: np.ndarray) -> Batch:
    """Returns the batch with some groups of length 0, which weigh nothing anywhere."""
    is_filler_B = np.repeat(is_filler_P, len(batch.lengths) // len(is_filler_P))
    return dataclasses.replace(
        batch,
        lengths=np.where(is_filler_B, 0, batch.lengths).astype(np.int32),
        loss_weights=np.where(is_filler_B[:, None], np.float32(0), batch.loss_weights),
    )


def split_micro_batches(batch: Batch, cut: MicroBatchCut) -> Iterator[Batch]:
    """Yields the batch's micro-batches; their losses add up to the batch's loss."""
    for groups_Q in plan_micro_batches(batch, cut):
        yield take_micro_batch(batch, groups_Q, cut)


def count_tokens(batch: Batch) -> np.ndarray:
    """Returns a micro-batch's true tokens, and all tokens that a pass computes: [2].

    Prompts count in both; among the true tokens only if their group has a token.
    """
    P, S = batch.prompt_tokens.shape
    has_token_P = (batch.lengths.reshape(P, -1) > 0).any(axis=1)
    rows = batch.tokens if batch.packing is None else batch.packing.source
    true = batch.lengths.sum() + batch.prompt_lengths[has_token_P].sum()
    return np.array([true, P * S + rows.size])


def score_micro_batches(
    score: Callable[[Batch], Any], batch: Batch, cut: MicroBatchCut
) -> Any:
    """Returns the scores of each token, computed one micro-batch at a time.

    `score` returns a tree of arrays [b, t, ...] on the devices for the b completions of
    a micro-batch, 0 beyond their lengths; the result is [B, T, ...] in NumPy, in the
    batch's order.
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
    """Returns the parts' rows [b, t, ...] at their places in the batch."""
    P, (B, T) = len(batch.prompt_lengths), batch.tokens.shape
    more = parts[0].shape[2:]
    whole_PGT = np.zeros((P, B // P, T, *more), parts[0].dtype)
    for part, groups_Q in zip(parts, plan, strict=True):
        width, is_group = part.shape[1], groups_Q >= 0
        rows_QGT = part.reshape(len(groups_Q), -1, width, *more)
        whole_PGT[groups_Q[is_group], :, :width] = rows_QGT[is_group]
    return whole_PGT.reshape(B, T, *more)
