"""Which row each slot decodes: rows that end leave, and others take their slots.

R slots decode the B = P G rows of a batch. A shard of the mesh has its own B/n rows and
R/n slots, so no keys or values ever move between devices. While rows wait, slots whose
rows have ended take the next ones. After that, the remaining rows move together into
half as many slots, and later into half of these. Prompts are read once: if every row
has a slot, slots share their prompts' keys; otherwise each holds a copy for its row.

All slots write the same column of their caches: the common clock, modulo T. A row that
entered its slot at clock s has its token k in column (s + k) mod T; the columns before
s, its predecessor's, are masked. `stages` defines how many slots and columns there are.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from job_jax.mesh import num_batch_shards, with_logical_constraint
from job_jax.schema import check
from rlvr_jax.models.activations import Prefix
from rlvr_jax.sampler.shards import per_shard, take_rows
from rlvr_jax.sampler.stages import DecodeStage, decode_stages
from rlvr_jax.types import length_mask

# The part of the slots that must be free before any is refilled: a refill copies the
# prompts' keys of all slots, which costs about as much as two steps' attention to them.
_REFILL_PART = 8


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """The start of decoding the B rows of a batch.

    `prefix` and `hidden` (at the last token) belong to the P prompts, `keys` to the
    rows. `offset` counts the completion tokens that a row's prompt already contains.
    """

    prefix: Prefix
    hidden: Float[Array, " P D"]
    keys: Key[Array, " B"]
    offset: Int[Array, " B"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Slots:
    """R slots, and the row that each of them decodes.

    `row` is its number within the shard, or B/n without a row. The row came at clock
    `start` and has `index` tokens after its prompt; the prompt already contains
    `offset` tokens of its completion. `hidden` is the state that predicts the next
    token. `tokens` and `logprobs` have the columns of `cache`. A row is `finished` if
    it ended by itself.
    """

    row: Int[Array, " R"]
    start: Int[Array, " R"]
    index: Int[Array, " R"]
    offset: Int[Array, " R"]
    finished: Bool[Array, " R"]
    keys: Key[Array, " R"]
    hidden: Float[Array, " R D"]
    tokens: Int[Array, " R W"]
    logprobs: Float[Array, " R W"]
    cache: PyTree

    def ended(self, max_new_tokens: int) -> Bool[Array, " R"]:
        """Returns which slots have no more tokens to draw."""
        return self.finished | (self.index >= max_new_tokens)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Completions:
    """The rows that have ended, in the batch's order; the others are 0.

    `next_row` is the first row of each shard that has not had a slot.
    """

    tokens: Int[Array, " B T"]
    logprobs: Float[Array, " B T"]
    lengths: Int[Array, " B"]
    finished: Bool[Array, " B"]
    next_row: Int[Array, " n"]


Step = Callable[[Slots, Prefix, jax.Array], Slots]


def decode_rows(
    rows: Rows,
    *,
    step: Step,
    init_cache: Callable[[int, int], Any],
    num_slots: int,
    max_new_tokens: int,
) -> tuple[Completions, Int[Array, ""]]:
    """Returns the completions of all rows, and how many slot-steps they took.

    `step(slots, prefix, clock)` draws one more token in every slot whose row has not
    ended; `init_cache(rows, columns)` makes the slots' caches. With `num_slots` 0, or
    more than there are rows, every row has a slot. Raises ConfigError if the mesh does
    not divide the slots.
    """
    B, num_shards = rows.keys.shape[0], num_batch_shards(rows.hidden.shape[0])
    num_slots = min(num_slots or B, B)
    check(
        num_slots % num_shards == 0,
        f"num_slots={num_slots} is not divisible by the {num_shards} shards of the "
        f"batch; make it a multiple of {num_shards}",
    )
    decoder = _Decoder(
        step=step,
        init_cache=init_cache,
        num_slots=num_slots,
        num_shards=num_shards,
        max_new_tokens=max_new_tokens,
    )
    return decoder.run(rows)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _State:
    """The state of decoding; `prefix` has one copy per slot, or per prompt if R = B."""

    clock: Int[Array, ""]
    slot_steps: Int[Array, ""]
    slots: Slots
    prefix: Prefix
    done: Completions


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Decoder:
    """`decode_rows`, step by step; its arguments, and the mesh's shards of the rows."""

    step: Step
    init_cache: Callable[[int, int], Any]
    num_slots: int
    num_shards: int
    max_new_tokens: int

    def run(self, rows: Rows) -> tuple[Completions, Int[Array, ""]]:
        """Returns the completions, and how many slot-steps they took."""
        n = self.num_shards
        stages = decode_stages(self.num_slots // n, self.max_new_tokens)
        counts = sorted({stage.slots for stage in stages} | {0})
        state = self._start(rows, columns=stages[0].columns)
        for stage in stages:
            if stage.slots * n < state.slots.row.shape[0]:
                state = self._compact(state, rows, stage.slots * n)
            filled = 0 if stage == stages[0] else state.slots.tokens.shape[1]
            state = self._decode_stage(
                _widen(state, stage.columns),
                rows,
                stage,
                filled=filled,
                fewer=counts[counts.index(stage.slots) - 1],
            )
        return self._store(state).done, state.slot_steps

    def _decode_stage(
        self, state: _State, rows: Rows, stage: DecodeStage, *, filled: int, fewer: int
    ) -> _State:
        """Decodes until no row waits and `fewer` slots of a device are enough.

        It also stops when the clock reaches the columns, if a later stage has more.
        At least `filled` columns are filled already.
        """
        n, B, T = self.num_shards, rows.keys.shape[0], self.max_new_tokens
        is_first = stage.slots * n == self.num_slots
        rounds = -(-B // self.num_slots) if is_first else 1
        # If every row has full length, later stages do nothing.
        last_clock = rounds * T if stage.columns == T else stage.columns
        trips = last_clock - filled if is_first else 0
        enough = max(1, stage.slots // _REFILL_PART)

        def in_columns(state: _State) -> jax.Array:
            grows = stage.columns < T
            return state.clock < stage.columns if grows else jnp.bool_(True)

        def free_n(state: _State) -> jax.Array:
            ended_R = state.slots.ended(T)
            return ended_R.reshape(n, -1).sum(axis=1)

        def waits_n(state: _State) -> jax.Array:
            return state.done.next_row < B // n

        def goes_on(state: _State) -> jax.Array:
            busy_n = stage.slots - free_n(state) > fewer
            return in_columns(state) & (busy_n | waits_n(state)).any()

        def refills(state: _State) -> jax.Array:
            return (waits_n(state) & (free_n(state) >= enough)).any()

        def refill_and_decode(state: _State) -> _State:
            state = self._refill(self._store(state), rows)
            return _loop(
                lambda state: goes_on(state) & ~refills(state),
                self._next_token,
                state,
                trips=trips // rounds,
            )

        if rounds == 1:
            return _loop(goes_on, self._next_token, state, trips=trips)
        return _loop(goes_on, refill_and_decode, state, trips=rounds)

    def _next_token(self, state: _State) -> _State:
        slots = self.step(state.slots, state.prefix, state.clock)
        return dataclasses.replace(
            state,
            slots=slots,
            clock=state.clock + 1,
            slot_steps=state.slot_steps + slots.row.shape[0],
        )

    def _start(self, rows: Rows, *, columns: int) -> _State:
        """Returns all slots with the first rows of their shards."""
        R, B, T = self.num_slots, rows.keys.shape[0], self.max_new_tokens
        n = self.num_shards

        def zeros(shape: tuple[int, ...], dtype: Any = jnp.int32) -> jax.Array:
            axes = ("batch", None)[: len(shape)]
            return with_logical_constraint(jnp.zeros(shape, dtype), *axes)

        slots = Slots(
            row=zeros((R,)) + B // n,
            start=zeros((R,)),
            index=zeros((R,)) + T,
            offset=zeros((R,)),
            finished=zeros((R,), bool),
            keys=rows.keys[:R],
            hidden=zeros((R, rows.hidden.shape[1]), rows.hidden.dtype),
            tokens=zeros((R, columns)),
            logprobs=zeros((R, columns), jnp.float32),
            cache=self.init_cache(R, columns),
        )
        done = Completions(
            tokens=zeros((B, T)),
            logprobs=zeros((B, T), jnp.float32),
            lengths=zeros((B,)),
            finished=zeros((B,), bool),
            next_row=zeros((n,)),
        )
        state = _State(
            clock=jnp.int32(0),
            slot_steps=jnp.int32(0),
            slots=slots,
            prefix=rows.prefix,
            done=done,
        )
        state = self._refill(state, rows)
        return state if R < B else dataclasses.replace(state, prefix=rows.prefix)

    def _store(self, state: _State) -> _State:
        """Writes the rows that have ended to their places, and frees their slots."""
        T = self.max_new_tokens

        def store(done: Completions, slots: Slots) -> tuple[Completions, Slots]:
            none = len(done.lengths)
            row_R = jnp.where(slots.ended(T), slots.row, none)
            token_T = jnp.arange(T, dtype=jnp.int32)
            column_RT = (slots.start[:, None] + token_T[None]) % slots.tokens.shape[1]
            own_RT = length_mask(slots.index, T)

            def written(ring_RW: jax.Array, past_BT: jax.Array) -> jax.Array:
                row_RT = jnp.take_along_axis(ring_RW, column_RT, axis=1)
                new_RT = jnp.where(own_RT, row_RT, 0)
                return past_BT.at[row_R].set(new_RT, mode="drop")

            done = dataclasses.replace(
                done,
                tokens=written(slots.tokens, done.tokens),
                logprobs=written(slots.logprobs, done.logprobs),
                lengths=done.lengths.at[row_R].set(slots.index, mode="drop"),
                finished=done.finished.at[row_R].set(slots.finished, mode="drop"),
            )
            idle_R = jnp.where(slots.ended(T), none, slots.row)
            return done, dataclasses.replace(slots, row=idle_R)

        done, slots = per_shard(self.num_shards, store, state.done, state.slots)
        return dataclasses.replace(state, done=done, slots=slots)

    def _refill(self, state: _State, rows: Rows) -> _State:
        """Gives free slots, whose rows are stored, the next rows of their shard."""
        T = self.max_new_tokens
        clock_n = jnp.broadcast_to(state.clock, state.done.next_row.shape)

        def refill(
            slots: Slots, next_row_1: jax.Array, rows: Rows, clock_1: jax.Array
        ) -> tuple[Slots, Prefix, jax.Array]:
            B = rows.keys.shape[0]
            free_R = slots.ended(T)
            row_R = next_row_1 + jnp.cumsum(free_R, dtype=jnp.int32) - 1
            taken_R = free_R & (row_R < B)
            row_R = jnp.where(taken_R, row_R, slots.row)
            new = _Arrivals.of(rows, row_R)

            def chosen(new: jax.Array, old: jax.Array) -> jax.Array:
                shape = (-1,) + (1,) * (old.ndim - 1)
                return jnp.where(taken_R.reshape(shape), new, old)

            slots = dataclasses.replace(
                slots,
                row=row_R,
                start=chosen(clock_1, slots.start),
                index=jnp.where(taken_R, 0, slots.index),
                offset=chosen(new.offset, slots.offset),
                finished=slots.finished & ~taken_R,
                keys=chosen(new.keys, slots.keys),
                hidden=chosen(new.hidden, slots.hidden),
            )
            taken = taken_R.sum(dtype=jnp.int32)
            return slots, new.prefix, next_row_1 + taken

        slots, prefix, next_row_n = per_shard(
            self.num_shards, refill, state.slots, state.done.next_row, rows, clock_n
        )
        done = dataclasses.replace(state.done, next_row=next_row_n)
        return dataclasses.replace(state, slots=slots, prefix=prefix, done=done)

    def _compact(self, state: _State, rows: Rows, num_slots: int) -> _State:
        """Returns the remaining rows in fewer slots; the others are stored."""
        T, n = self.max_new_tokens, self.num_shards
        state = self._store(state)

        def compact(slots: Slots, rows: Rows) -> tuple[Slots, Prefix]:
            order_R = jnp.argsort(slots.ended(T), stable=True)[: num_slots // n]
            slots = take_rows(slots, order_R)
            return slots, _Arrivals.of(rows, slots.row).prefix

        slots, prefix = per_shard(self.num_shards, compact, state.slots, rows)
        return dataclasses.replace(state, slots=slots, prefix=prefix)


class _Arrivals(NamedTuple):
    """The data that slots get with the rows that they take."""

    keys: jax.Array
    offset: jax.Array
    hidden: jax.Array
    prefix: Prefix

    @classmethod
    def of(cls, rows: Rows, row_R: jax.Array) -> "_Arrivals":
        group_size = rows.keys.shape[0] // rows.hidden.shape[0]
        prompt_R = row_R // group_size
        return cls(
            keys=take_rows(rows.keys, row_R),
            offset=take_rows(rows.offset, row_R),
            hidden=take_rows(rows.hidden, prompt_R),
            prefix=take_rows(rows.prefix, prompt_R),
        )


def _loop(
    goes_on: Callable[[_State], jax.Array],
    body: Callable[[_State], _State],
    state: _State,
    *,
    trips: int,
) -> _State:
    """Returns a while loop's result; `trips` is counted by `plan.program_costs`."""
    with jax.named_scope(f"trips_{trips}"):
        return jax.lax.while_loop(goes_on, body, state)


def _widen(state: _State, columns: int) -> _State:
    """Returns the slots with `columns` columns; new columns are after the old ones."""
    slots = state.slots
    more = columns - slots.tokens.shape[1]
    if not more:
        return state

    def pad(x: jax.Array, axis: int) -> jax.Array:
        widths = [(0, 0)] * x.ndim
        widths[axis] = (0, more)
        return jnp.pad(x, widths)

    slots = dataclasses.replace(
        slots,
        tokens=pad(slots.tokens, 1),
        logprobs=pad(slots.logprobs, 1),
        cache=jax.tree.map(lambda x: pad(x, -2), slots.cache),
    )
    return dataclasses.replace(state, slots=slots)
