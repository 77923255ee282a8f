"""Pairs of activations (x, partner), of one document and one role, by step.

The partner is the token before, or any earlier one, of the same document *and role*:
both ends are checked, and each document pairs within itself alone.

A batch is a pure function of (data, config, seed, step): whoever knows the step knows
the batch, so a resumed run reads what the interrupted one would have read. Sources:
`ShuffledPairs` over tokens on disk (`shards`) or in memory, and `ForwardPairs` over a
policy that is asked for fresh ones.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, Protocol

import grain
import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.tokens import (
    Documents,
    TokenArrays,
    TokenData,
    documents,
    usable_tokens,
)
from sae_jax.types import Pairs

# Streams of random numbers under one seed.
_ORDER, _PARTNER, _HOLD_OUT, _CALL = range(4)
_MEASURED = 1 << 16  # held-out tokens that are measured; more say little more
_PREFETCH = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Partners:
    """Which pairs there are. Written by `find_partners`, read by `ShuffledPairs`.

    Pair m is the token anchors[m] with one of the `choices[m]` tokens that stand in
    `candidates` from `first[m]` on.
    """

    anchors: Int[np.ndarray, " M"]
    candidates: Int[np.ndarray, " K"]
    first: Int[np.ndarray, " M"]
    choices: Int[np.ndarray, " M"]

    def pick(
        self, pair_B: Int[np.ndarray, " B"], draw_B: Float[np.ndarray, " B"]
    ) -> Int[np.ndarray, " B"]:
        """Returns the partners of some pairs, by uniform draws from [0, 1)."""
        chosen_B = (draw_B * self.choices[pair_B]).astype(np.int64)
        return self.candidates[self.first[pair_B] + chosen_B]


def find_partners(
    data: TokenData,
    usable: Bool[np.ndarray, " N"],
    *,
    partner: Literal["previous", "random"],
) -> Partners:
    """Returns the pairs of usable tokens within one document and one role.

    With `previous` the partner is the token right before; if that one is not usable or
    of another role, there is no pair. With `random` it is any earlier usable token.
    """
    sequence_N, role_N = data.column("sequence"), data.column("role")
    if partner == "previous":
        both_n = usable[1:] & usable[:-1]
        same_n = (sequence_N[1:] == sequence_N[:-1]) & (role_N[1:] == role_N[:-1])
        anchors_M = np.flatnonzero(both_n & same_n) + 1
        places_M = np.arange(len(anchors_M))
        return Partners(
            anchors=anchors_M,
            candidates=anchors_M - 1,
            first=places_M,
            choices=np.ones_like(places_M),
        )
    tokens_K = np.flatnonzero(usable)
    # A stable sort keeps the reading order within each document and role.
    tokens_K = tokens_K[np.lexsort((role_N[tokens_K], sequence_N[tokens_K]))]
    group_K = np.stack([sequence_N[tokens_K], role_N[tokens_K]])
    new_K = np.ones(len(tokens_K), bool)
    new_K[1:] = (group_K[:, 1:] != group_K[:, :-1]).any(axis=0)
    places_K = np.arange(len(tokens_K))
    first_K = np.maximum.accumulate(np.where(new_K, places_K, 0))
    return Partners(
        anchors=tokens_K[~new_K],
        candidates=tokens_K,
        first=first_K[~new_K],
        choices=(places_K - first_K)[~new_K],
    )


class PairSource(Protocol):
    """What training reads."""

    @property
    def width(self) -> int:
        """Returns D."""
        ...

    @property
    def data_hash(self) -> str:
        """Returns the name of the data."""
        ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """Returns how many tokens were left out so far, by reason."""
        ...

    def stream(self, first: int, total: int) -> Iterator[Pairs]:
        """Returns the batches of the steps first, ..., total - 1."""
        ...

    def held_out(self) -> Iterator[Documents]:
        """Returns the documents that no step trains on."""
        ...


class ShuffledPairs:
    """All pairs of some token data, in an order shuffled anew every epoch.

    A share `hold_out` of the documents is kept from training, at least one. Reading a
    batch at random from shards larger than memory costs about a page per pair.
    """

    def __init__(
        self,
        data: TokenData,
        config: PairsConfig,
        *,
        seed: int,
        hold_out: float | None = None,
    ) -> None:
        share = config.hold_out if hold_out is None else hold_out
        self._data = data
        self._config = config
        self._seed = seed
        usable_N, skipped = usable_tokens(data, config)
        sequence_N = data.column("sequence")
        self._usable_N = usable_N
        self._held_M = _held_out_sequences(sequence_N, share, seed)
        trained_N = usable_N & ~np.isin(sequence_N, self._held_M)
        self._partners = find_partners(data, trained_N, partner=config.partner)
        trained = int(trained_N.sum())
        self.skipped = {
            **skipped,
            "held_out": int(usable_N.sum()) - trained,
            "no_partner": trained - self.pairs,
        }
        self._check(share)
        self._order = functools.lru_cache(maxsize=2)(self._permutation)

    @property
    def width(self) -> int:
        """Returns D."""
        return self._data.width

    @property
    def data_hash(self) -> str:
        """Returns the name of the data."""
        return self._data.data_hash

    @property
    def pairs(self) -> int:
        """Returns the pairs of an epoch."""
        return len(self._partners.anchors)

    def __getitem__(self, step: int) -> Pairs:
        """Returns the batch of a step."""
        size = self._config.batch_size
        place_B = np.arange(step * size, (step + 1) * size)
        pair_B = np.empty(size, np.int64)
        for epoch in range(place_B[0] // self.pairs, place_B[-1] // self.pairs + 1):
            now_B = place_B // self.pairs == epoch
            pair_B[now_B] = self._order(epoch)[place_B[now_B] % self.pairs]
        draw_B = np.random.default_rng([self._seed, _PARTNER, step]).random(size)
        return self._read(pair_B, draw_B)

    def stream(self, first: int, total: int) -> Iterator[Pairs]:
        """Returns the batches of the steps first, ..., total - 1, read ahead."""
        if first == total:
            return iter(())
        batches = grain.MapDataset.source(_Steps(self, first, total))
        return iter(batches.to_iter_dataset(_PREFETCH))

    def held_out(self) -> Iterator[Documents]:
        """Returns held-out documents once, of 65,536 tokens in all at most."""
        tokens_S = np.bincount(self._data.column("sequence"))[self._held_M].cumsum()
        count = max(1, int(np.searchsorted(tokens_S, _MEASURED, side="right")))
        return documents(self._data, self._usable_N, self._held_M[:count])

    def _read(
        self, pair_B: Int[np.ndarray, " B"], draw_B: Float[np.ndarray, " B"]
    ) -> Pairs:
        """Returns the activations of some pairs; both ends are read in one pass."""
        anchor_B = self._partners.anchors[pair_B]
        partner_B = self._partners.pick(pair_B, draw_B)
        rows_ED = self._data.rows(np.concatenate([anchor_B, partner_B]))
        return Pairs(
            x=rows_ED[: len(anchor_B)],
            partner=rows_ED[len(anchor_B) :],
            valid=np.ones(len(anchor_B), bool),
        )

    def _permutation(self, epoch: int) -> Int[np.ndarray, " M"]:
        return np.random.default_rng([self._seed, _ORDER, epoch]).permutation(
            self.pairs
        )

    def _check(self, share: float) -> None:
        """Raises ConfigError where a batch, or the held-out part, has too little."""
        if self.pairs < self._config.batch_size:
            raise ConfigError(
                f"pairs.batch_size={self._config.batch_size} exceeds the {self.pairs} "
                f"pairs that pairs.roles={self._config.roles} and the filters leave "
                f"(left out: {counts(self.skipped)}; tokens by role: "
                f"{counts(self._tokens_by_role())}); lower it, or give more data"
            )

        if share and not self.skipped["held_out"]:
            raise ConfigError(
                f"pairs.hold_out={share} leaves {len(self._held_M)} documents to "
                "measure on, and no token of them passes the filters; raise it"
            )

    def _tokens_by_role(self) -> dict[str, int]:
        names = self._data.role_names
        tokens = np.bincount(self._data.column("role"), minlength=len(names))
        return dict(zip(names, map(int, tokens), strict=True))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Captured:
    """What a policy forward saw. Written by the caller's function, read here.

    Rows are documents; `mask` is False at padding and at tokens to be left out. `roles`
    are indices into the names given beside it.
    """

    activations: Float[np.ndarray, "S T D"]
    mask: Bool[np.ndarray, "S T"]
    roles: Int[np.ndarray, "S T"]


class ForwardPairs:
    """Pairs straight from a policy: `forward(call)` is asked, its answer shuffled.

    `forward` must be a pure function of the call's number. The pairs of one call serve
    `batches` steps and are then forgotten, so a call should hold that many batches of
    pairs or more, of many documents; if it holds fewer, its pairs are used again. The
    first `held_out_calls` calls are never trained on.
    """

    data_hash = ""  # the data are wherever the policy takes them from

    def __init__(
        self,
        forward: Callable[[int], Captured],
        config: PairsConfig,
        *,
        width: int,
        role_names: tuple[str, ...],
        seed: int,
        batches: int,
        held_out_calls: int = 1,
    ) -> None:
        self.width = width
        self.skipped: dict[str, int] = {}
        self._forward = forward
        self._config = config
        self._role_names = role_names
        self._seed = seed
        self._batches = batches
        self._held_out_calls = held_out_calls

    def stream(self, first: int, total: int) -> Iterator[Pairs]:
        """Returns the batches of the steps first, ..., total - 1."""
        for step in range(first, total):
            call, part = divmod(step, self._batches)
            if step == first or part == 0:
                source = self._shuffled(call)
            yield source[part]

    def held_out(self) -> Iterator[Documents]:
        """Returns the documents of the held-out calls."""
        for call in range(self._held_out_calls):
            data = self._ask(call)
            usable_N, _ = usable_tokens(data, self._config)
            yield from documents(data, usable_N, np.unique(data.column("sequence")))

    def _shuffled(self, call: int) -> ShuffledPairs:
        seeds = np.random.SeedSequence([self._seed, _CALL, call])
        pairs = ShuffledPairs(
            self._ask(self._held_out_calls + call),
            self._config,
            seed=int(seeds.generate_state(1)[0]),
            hold_out=0.0,
        )
        for reason, count in pairs.skipped.items():
            self.skipped[reason] = self.skipped.get(reason, 0) + count
        return pairs

    def _ask(self, call: int) -> TokenArrays:
        found = self._forward(call)
        rows, tokens, width = found.activations.shape
        if width != self.width:
            raise ConfigError(
                f"forward({call}) returned activations of width {width}, where "
                f"{self.width} was promised"
            )
        return TokenArrays(
            activations=found.activations.reshape(rows * tokens, width),
            columns={
                "sequence": np.repeat(np.arange(rows), tokens),
                "role": found.roles.reshape(-1),
                "special": ~found.mask.reshape(-1),
            },
            role_names=self._role_names,
            data_hash=self.data_hash,
        )


class _Steps:
    """The batches first, ..., total - 1: the random-access source that grain reads."""

    def __init__(self, pairs: ShuffledPairs, first: int, total: int) -> None:
        self._pairs = pairs
        self._first = first
        self._total = total

    def __len__(self) -> int:
        return self._total - self._first

    def __getitem__(self, index: int) -> Pairs:
        return self._pairs[self._first + index]


def counts(values: Mapping[str, int]) -> str:
    """Returns "role 12, special 3", or "none"."""
    return ", ".join(f"{name} {count}" for name, count in values.items()) or "none"


def _held_out_sequences(
    sequence: Int[np.ndarray, " N"], share: float, seed: int
) -> Int[np.ndarray, " S"]:
    """Returns the numbers of the documents to hold out; at least one unless share=0."""
    present = np.unique(sequence)
    order = np.random.default_rng([seed, _HOLD_OUT]).permutation(present)
    return order[: int(np.ceil(share * len(present)))]
