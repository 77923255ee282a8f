"""Pairs from data on disk of any size, shuffled in a buffer on the devices.

The data are split into blocks of neighboring documents (`blocks`). A buffer holds
blocks from all over the data, drawn without replacement in an epoch. Its pairs are used
in a random order while the next buffer is read. Blocks are dealt to the lanes of a
batch, so a process reads only the blocks for its own devices' lanes. Buffers, and so
batches, depend on data, config, seed and step, but not on devices or processes.

A process's memory does not grow with the data, except for some bytes per document. Its
devices hold their lanes of one buffer, and its host the lanes of the next one or two.
Pairs that do not fit into equal lanes and whole batches are left out; they differ each
epoch.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import grain
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from job_jax import processes
from job_jax.mesh import batch_sharding, with_logical_constraint
from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.data.blocks import index_blocks
from sae_jax.data.pairs import ORDER, POSITIVE, find_positives, format_counts
from sae_jax.data.tokens import (
    Documents,
    StoredTokens,
    TokenArrays,
    iter_documents,
)
from sae_jax.data.views import TokenSpan
from sae_jax.types import Pairs

_MAX_LANES = 256  # which also limits the number of data x fsdp devices
_BLOCK_PAIRS = 1024  # minimum of a block; fewer if a buffer would have few blocks
_BLOCKS_PER_LANE = 8
_PREFETCH = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)


class _Plan(NamedTuple):
    """The blocks of a buffer, and its size."""

    number: int
    blocks: Int[np.ndarray, "L R"]
    num_batches: int
    num_rows: int  # of the largest lane


class _Buffer(NamedTuple):
    """The tokens of a buffer, and the two tokens of each pair as rows of its lane.

    On the host, lanes of other processes are not filled.
    """

    rows: Float[np.ndarray, "L N D"]
    anchor: Int[np.ndarray, "L M"]
    partner: Int[np.ndarray, "L M"]


class BufferedPairs:
    """The `PairSource` for a config with `pairs.buffer_tokens`.

    `mesh` must be the current mesh when batches are read. Raises ConfigError if data
    and buffer do not fit.
    """

    def __init__(
        self, data: StoredTokens, config: PairsConfig, *, seed: int, mesh: Mesh
    ) -> None:
        self._data, self._config, self._seed = data, config, seed
        self.width, self.data_hash = data.width, data.data_hash
        self._sharding = batch_sharding(mesh)
        self._num_lanes = math.gcd(config.batch_size, _MAX_LANES)
        self._check_mesh(mesh)
        self._lane_batch = config.batch_size // self._num_lanes
        lane_tokens = config.buffer_tokens // self._num_lanes
        if lane_tokens < _BLOCKS_PER_LANE * self._lane_batch:
            raise ConfigError(
                f"pairs.buffer_tokens={config.buffer_tokens} is below "
                f"{_BLOCKS_PER_LANE} batches of pairs.batch_size={config.batch_size}; "
                f"make it {_BLOCKS_PER_LANE * config.batch_size} or more"
            )
        block_pairs = max(
            self._lane_batch, min(_BLOCK_PAIRS, lane_tokens // _BLOCKS_PER_LANE)
        )
        self._index = index_blocks(data, config, seed=seed, block_pairs=block_pairs)
        self.roles, self.skipped = self._index.roles, self._index.skipped
        self._check_sizes(block_pairs)
        self._blocks_per_lane = min(
            lane_tokens // block_pairs,
            len(self._index.blocks.start) // self._num_lanes,
        )
        self._order = functools.lru_cache(maxsize=2)(self._permutation)

    @property
    def num_pairs(self) -> int:
        """Returns the number of pairs in all blocks."""
        return int(self._index.blocks.pairs.sum())

    def iter_batches(self, first: int, total: int) -> Iterator[Pairs]:
        """Yields the batches of steps first, ..., total - 1, on the devices."""
        if first == total:
            return
        plans = self._plan(total)
        begins = np.cumsum([0, *(plan.num_batches for plan in plans)]).tolist()
        begun = int(np.searchsorted(begins, first, side="right")) - 1
        source = grain.MapDataset.source(_Buffers(self._read, plans, begun))
        on_host = iter(source.to_iter_dataset(_PREFETCH))
        for begin, plan in zip(begins[begun:-1], plans[begun:], strict=True):
            buffer = processes.device_put(next(on_host), self._sharding)
            for step in range(max(begin, first), min(begin + plan.num_batches, total)):
                yield _take(buffer, np.int32(step - begin), size=self._lane_batch)
            del buffer  # free it before the next one is allocated

    def calibration_documents(self) -> Iterator[Documents]:
        """Returns documents of half of the held-out problems, at most 65,536 tokens."""
        return self._read_documents(self._index.held_out.calibration)

    def eval_documents(self) -> Iterator[Documents]:
        """Returns documents of the other half, also at most 65,536 tokens."""
        return self._read_documents(self._index.held_out.evaluation)

    def _read_documents(self, spans: Sequence[tuple[int, int]]) -> Iterator[Documents]:
        parts = [TokenSpan(self._data, *span) for span in spans]
        mask_N = np.concatenate([self._index.tokens.apply(part)[0] for part in parts])
        token_N = np.concatenate([np.arange(*span) for span in spans])
        rows = [part.column("activations").astype(np.float32) for part in parts]
        arrays = TokenArrays(
            activations=np.concatenate(rows),
            columns={"sequence": np.repeat(np.arange(len(rows)), [*map(len, rows)])},
            role_names=self._data.role_names,
            data_hash=self.data_hash,
        )
        for block in iter_documents(arrays, mask_N, np.arange(len(rows))):
            inside_ST = block.token_index >= 0
            token_ST = np.where(inside_ST, token_N[block.token_index], -1)
            yield dataclasses.replace(block, token_index=token_ST)

    def _plan(self, total: int) -> list[_Plan]:
        """Returns the plans of the buffers for `total` steps."""
        plans: list[_Plan] = []
        steps = 0
        while steps < total:
            plans.append(self._plan_buffer(len(plans)))
            steps += plans[-1].num_batches
        return plans

    def _plan_buffer(self, number: int) -> _Plan:
        """Returns which blocks a buffer holds, with about as many pairs in each lane.

        Blocks are sorted by falling number of pairs and dealt to the lanes back and
        forth.
        """
        blocks = self._index.blocks
        count, size = len(blocks.start), self._num_lanes * self._blocks_per_lane
        place = np.arange(number * size, (number + 1) * size)
        block = np.empty(size, int)
        for epoch in range(place[0] // count, place[-1] // count + 1):
            here = place // count == epoch
            block[here] = self._order(epoch)[place[here] % count]
        block = block[np.argsort(-blocks.pairs[block], kind="stable")]
        block_RL = block.reshape(-1, self._num_lanes)
        block_RL[1::2] = block_RL[1::2, ::-1]
        pairs_L = blocks.pairs[block_RL].sum(axis=0)
        return _Plan(
            number=number,
            blocks=block_RL.T,
            num_batches=int(pairs_L.min()) // self._lane_batch,
            num_rows=int(blocks.rows[block_RL].sum(axis=0).max()),
        )

    def _permutation(self, epoch: int) -> Int[np.ndarray, " K"]:
        count = len(self._index.blocks.start)
        return np.random.default_rng([self._seed, ORDER, epoch]).permutation(count)

    def _read(self, plan: _Plan, num_rows: int, num_batches: int) -> _Buffer:
        """Returns a buffer whose lanes have room for these numbers of rows and batches.

        Only the lanes of this process's devices are read. The other lanes cost no
        memory, because the system allocates only memory that is written to.
        """
        lanes, num_pairs = self._num_lanes, num_batches * self._lane_batch
        buffer = _Buffer(
            np.empty((lanes, num_rows, self.width), self._data.dtype),
            *np.zeros((2, lanes, num_pairs), np.int32),
        )
        for lane in self._own_lanes():
            anchor, partner = self._read_lane(plan, lane, buffer.rows[lane])
            chosen = np.random.default_rng([self._seed, ORDER, plan.number, lane])
            order = chosen.permutation(len(anchor))[:num_pairs]
            buffer.anchor[lane, : len(order)] = anchor[order]
            buffer.partner[lane, : len(order)] = partner[order]
        return buffer

    def _own_lanes(self) -> list[int]:
        """Returns the lanes that this process's devices hold."""
        lanes = range(self._num_lanes)
        places = self._sharding.addressable_devices_indices_map((len(lanes),))
        return sorted({lane for at in places.values() if at for lane in lanes[at[0]]})

    def _read_lane(
        self, plan: _Plan, lane: int, rows_ND: Float[np.ndarray, "N D"]
    ) -> tuple[Int[np.ndarray, " M"], Int[np.ndarray, " M"]]:
        """Writes a lane's tokens to `rows_ND`; returns both tokens of its pairs."""
        draws = np.random.default_rng([self._seed, POSITIVE, plan.number, lane])
        blocks, held = self._index.blocks, 0
        anchors, partners = [], []
        for block in plan.blocks[lane].tolist():
            start = int(blocks.start[block])
            span = TokenSpan(self._data, start, int(blocks.stop[block]))
            mask_N = self._index.tokens.apply(span)[0]
            mask_N &= self._index.documents.trained_tokens(span, start)
            found = find_positives(span, mask_N, positive=self._config.positive)
            pairs = len(found.anchors)
            partner = found.draw_positives(np.arange(pairs), draws.random(pairs))
            row_N = held + np.cumsum(mask_N) - 1
            anchors.append(row_N[found.anchors])
            partners.append(row_N[partner])
            rows_ND[held : held + mask_N.sum()] = span.column("activations")[mask_N]
            held += int(mask_N.sum())
        return np.concatenate(anchors), np.concatenate(partners)

    def _check_mesh(self, mesh: Mesh) -> None:
        parts = mesh.shape["data"] * mesh.shape["fsdp"]
        if self._num_lanes % parts:
            raise ConfigError(
                f"pairs.batch_size={self._config.batch_size} is read in "
                f"{self._num_lanes} lanes, which the mesh's {parts} data x fsdp "
                "devices do not divide; make it a multiple of a larger power of two, "
                f"up to {_MAX_LANES}, or set pairs.buffer_tokens=0"
            )

    def _check_sizes(self, block_pairs: int) -> None:
        for use, spans in self._index.held_out._asdict().items():
            if not spans:
                raise ConfigError(
                    f"pairs.eval_fraction={self._config.eval_fraction} leaves no token "
                    f"that passes the filters for {use}; raise it"
                )
        count = len(self._index.blocks.start)
        if count < self._num_lanes:
            raise ConfigError(
                f"pairs.buffer_tokens={self._config.buffer_tokens}: the "
                f"{self.num_pairs} pairs are {count} blocks of {block_pairs} or more, "
                f"fewer than the {self._num_lanes} lanes of a batch (left out: "
                f"{format_counts(self.skipped)}); so few fit in memory: make it 0"
            )


class _Buffers:
    """The buffers from number `begun` on, as the random-access source for grain."""

    def __init__(
        self,
        read: Callable[[_Plan, int, int], _Buffer],
        plans: Sequence[_Plan],
        begun: int,
    ) -> None:
        self._read, self._plans = read, plans[begun:]
        # Over all steps, so that a resumed run compiles the same programs.
        self._num_rows = max(plan.num_rows for plan in plans)
        self._num_batches = max(plan.num_batches for plan in plans)

    def __len__(self) -> int:
        return len(self._plans)

    def __getitem__(self, index: int) -> _Buffer:
        return self._read(self._plans[index], self._num_rows, self._num_batches)


@functools.partial(jax.jit, static_argnames="size")
def _take(buffer: _Buffer, batch: Int[Array, ""], *, size: int) -> Pairs:
    """Returns a batch: the next pairs of every lane."""
    lanes, _, width = buffer.rows.shape

    def gather(row_LM: Int[Any, "L M"]) -> Float[Array, "B D"]:
        row_Lb = jax.lax.dynamic_slice_in_dim(row_LM, batch * size, size, axis=1)
        rows_LbD = jnp.take_along_axis(
            buffer.rows, row_Lb[:, :, None], axis=1, mode="promise_in_bounds"
        )
        return with_logical_constraint(rows_LbD.reshape(-1, width), "batch", None)

    return Pairs(
        x=gather(buffer.anchor),
        positive=gather(buffer.partner),
        valid=with_logical_constraint(jnp.ones(lanes * size, bool), "batch"),
    )
