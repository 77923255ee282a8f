"""Batches of pairs: a token's activation x and its positive.

The positive is the previous token, or any earlier one, of the same document *and role*.
A batch is a pure function of (data, config, seed, step), so a resumed run reads exactly
the batches that the interrupted one would have read.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

import grain
import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig
from sae_jax.data.tokens import (
    Documents,
    TokenData,
    filter_tokens,
    iter_documents,
    mark_duplicates,
    present_roles,
    resolve_roles,
)
from sae_jax.types import Pairs

# Streams of random numbers under one seed.
ORDER, POSITIVE, _EVAL_SPLIT = range(3)
MAX_EVAL_TOKENS = 1 << 16  # held-out tokens to measure on; more would change little
_PREFETCH = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PositivePairs:
    """All pairs of some data. Made by `find_positives`, used by `ShuffledPairs`.

    Pair m is the token anchors[m] with one of the `num_candidates[m]` tokens that start
    at `candidate_start[m]` in `candidates`.
    """

    anchors: Int[np.ndarray, " M"]
    candidates: Int[np.ndarray, " K"]
    candidate_start: Int[np.ndarray, " M"]
    num_candidates: Int[np.ndarray, " M"]

    def draw_positives(
        self, pair_B: Int[np.ndarray, " B"], draw_B: Float[np.ndarray, " B"]
    ) -> Int[np.ndarray, " B"]:
        """Returns a positive for each of these pairs, by uniform draws from [0, 1)."""
        choice_B = (draw_B * self.num_candidates[pair_B]).astype(np.int64)
        return self.candidates[self.candidate_start[pair_B] + choice_B]


def find_positives(
    data: TokenData,
    mask: Bool[np.ndarray, " N"],
    *,
    positive: Literal["previous", "random"],
) -> PositivePairs:
    """Returns all pairs of tokens in the mask, each within one document and one role.

    With `previous` the positive is the token right before; if the mask excludes that
    token or it has another role, there is no pair. With `random` it is any earlier
    token in the mask.

    >>> from sae_jax.data.synthetic import make_synthetic_data
    >>> data = make_synthetic_data(seed=0, width=8, num_sequences=2, length=3)
    >>> pairs = find_positives(data, np.ones(6, bool), positive="previous")
    >>> pairs.anchors.tolist(), pairs.candidates.tolist()
    ([1, 2, 4, 5], [0, 1, 3, 4])
    """
    sequence_N, role_N = data.column("sequence"), data.column("role")
    if positive == "previous":
        both_n = mask[1:] & mask[:-1]
        same_n = (sequence_N[1:] == sequence_N[:-1]) & (role_N[1:] == role_N[:-1])
        anchors_M = np.flatnonzero(both_n & same_n) + 1
        index_M = np.arange(len(anchors_M))
        return PositivePairs(
            anchors=anchors_M,
            candidates=anchors_M - 1,
            candidate_start=index_M,
            num_candidates=np.ones_like(index_M),
        )
    tokens_K = np.flatnonzero(mask)
    # A stable sort keeps the reading order within each document and role.
    tokens_K = tokens_K[np.lexsort((role_N[tokens_K], sequence_N[tokens_K]))]
    group_K = np.stack([sequence_N[tokens_K], role_N[tokens_K]])
    new_K = np.ones(len(tokens_K), bool)
    new_K[1:] = (group_K[:, 1:] != group_K[:, :-1]).any(axis=0)
    index_K = np.arange(len(tokens_K))
    start_K = np.maximum.accumulate(np.where(new_K, index_K, 0))
    return PositivePairs(
        anchors=tokens_K[~new_K],
        candidates=tokens_K,
        candidate_start=start_K[~new_K],
        num_candidates=(index_K - start_K)[~new_K],
    )


class PairSource(Protocol):
    """The source of batches and held-out documents that training reads."""

    @property
    def width(self) -> int:
        """Returns D."""
        ...

    @property
    def data_hash(self) -> str:
        """Returns the hash that identifies the data."""
        ...

    @property
    def roles(self) -> Sequence[str]:
        """Returns the roles whose tokens are trained on."""
        ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """Returns how many tokens were skipped, by reason, as far as known."""
        ...

    def iter_batches(self, first: int, total: int) -> Iterator[Pairs]:
        """Returns the batches of the steps first, ..., total - 1."""
        ...

    def calibration_documents(self) -> Iterator[Documents]:
        """Returns documents that no step trains on, for the inference threshold."""
        ...

    def eval_documents(self) -> Iterator[Documents]:
        """Returns documents that neither training nor calibration has read."""
        ...


class ShuffledPairs:
    """All pairs of token data, reshuffled every epoch; `pairs[step]` is a batch.

    A share `eval_fraction` of the problems, at least two, is held out from training
    with all their documents: half calibrate, half measure. Exact copies of an earlier
    document are dropped first. If the shards exceed memory, each pair costs a random
    read of about a page.

    >>> from sae_jax.data.synthetic import make_synthetic_data
    >>> data = make_synthetic_data(seed=0, width=8, num_sequences=20, length=6)
    >>> pairs = ShuffledPairs(data, PairsConfig(batch_size=4), seed=0)
    >>> pairs.num_pairs, pairs[0].x.shape  # 18 documents of 5 pairs; two are held out
    (90, (4, 8))
    """

    def __init__(
        self,
        data: TokenData,
        config: PairsConfig,
        *,
        seed: int,
        eval_fraction: float | None = None,
    ) -> None:
        share = config.eval_fraction if eval_fraction is None else eval_fraction
        self._data = data
        self.width, self.data_hash = data.width, data.data_hash
        self._config = config
        self._seed = seed
        self.roles = resolve_roles(config, data.role_names, present_roles(data))
        usable_N, skipped = filter_tokens(data, config)
        duplicate_N = mark_duplicates(data)
        self._usable_N = usable_N & ~duplicate_N
        problem_N = data.column("problem")
        self._calibration_Q, self._eval_Q = hold_out_problems(
            problem_N[~duplicate_N], share, seed
        )
        held_out_N = np.isin(problem_N, [*self._calibration_Q, *self._eval_Q])
        trained_N = self._usable_N & ~held_out_N
        self._partners = find_positives(data, trained_N, positive=config.positive)
        trained = int(trained_N.sum())
        self.skipped = {
            **skipped,
            "duplicate": int((usable_N & duplicate_N).sum()),
            "eval": int(self._usable_N.sum()) - trained,
            "no_positive": trained - self.num_pairs,
        }
        self._check_sizes(share)
        self._order = functools.lru_cache(maxsize=2)(self._permutation)

    @property
    def num_pairs(self) -> int:
        """Returns the number of pairs in an epoch."""
        return len(self._partners.anchors)

    def __getitem__(self, step: int) -> Pairs:
        """Returns the batch of a step."""
        size = self._config.batch_size
        index_B = np.arange(step * size, (step + 1) * size)
        pair_B = np.empty(size, np.int64)
        for epoch in range(
            index_B[0] // self.num_pairs, index_B[-1] // self.num_pairs + 1
        ):
            in_epoch_B = index_B // self.num_pairs == epoch
            pair_B[in_epoch_B] = self._order(epoch)[
                index_B[in_epoch_B] % self.num_pairs
            ]
        draw_B = np.random.default_rng([self._seed, POSITIVE, step]).random(size)
        return self._read(pair_B, draw_B)

    def iter_batches(self, first: int, total: int) -> Iterator[Pairs]:
        """Returns the batches of steps first, ..., total - 1, prefetched by grain."""
        if first == total:
            return iter(())
        batches = grain.MapDataset.source(_StepRange(self, first, total))
        return iter(batches.to_iter_dataset(_PREFETCH))

    def calibration_documents(self) -> Iterator[Documents]:
        """Returns documents of half of the held-out problems, at most 65,536 tokens."""
        return self._documents_of(self._calibration_Q)

    def eval_documents(self) -> Iterator[Documents]:
        """Returns documents of the other half, also at most 65,536 tokens."""
        return self._documents_of(self._eval_Q)

    def _documents_of(self, problem_Q: Int[np.ndarray, " Q"]) -> Iterator[Documents]:
        sequence_N = self._data.column("sequence")
        counted_N = self._usable_N & np.isin(self._data.column("problem"), problem_Q)
        document_S = np.unique(sequence_N[counted_N])
        tokens_S = np.bincount(sequence_N)[document_S].cumsum()
        count = max(1, int(np.searchsorted(tokens_S, MAX_EVAL_TOKENS, side="right")))
        return iter_documents(self._data, self._usable_N, document_S[:count])

    def _read(
        self, pair_B: Int[np.ndarray, " B"], draw_B: Float[np.ndarray, " B"]
    ) -> Pairs:
        """Returns the activations of some pairs, read in one pass for both tokens."""
        anchor_B = self._partners.anchors[pair_B]
        partner_B = self._partners.draw_positives(pair_B, draw_B)
        rows_ED = self._data.rows(np.concatenate([anchor_B, partner_B]))
        return Pairs(
            x=rows_ED[: len(anchor_B)],
            positive=rows_ED[len(anchor_B) :],
            valid=np.ones(len(anchor_B), bool),
        )

    def _permutation(self, epoch: int) -> Int[np.ndarray, " M"]:
        return np.random.default_rng([self._seed, ORDER, epoch]).permutation(
            self.num_pairs
        )

    def _check_sizes(self, share: float) -> None:
        """Raises ConfigError if the data fill no batch, or hold no eval token."""
        if self.num_pairs < self._config.batch_size:
            raise ConfigError(
                f"pairs.batch_size={self._config.batch_size} exceeds the "
                f"{self.num_pairs} "
                f"pairs that pairs.roles={self.roles} and the filters leave "
                f"(left out: {format_counts(self.skipped)}; tokens by role: "
                f"{format_counts(self._tokens_by_role())}); lower it, or give more data"
            )

        problem_N = self._data.column("problem")[self._usable_N]
        halves = {"calibrate": self._calibration_Q, "measure": self._eval_Q}
        for use, problem_Q in halves.items():
            if share and not np.isin(problem_N, problem_Q).any():
                raise ConfigError(
                    f"pairs.eval_fraction={share} leaves {len(problem_Q)} problems to "
                    f"{use} on, and none of their tokens passes the filters; raise it"
                )

    def _tokens_by_role(self) -> dict[str, int]:
        names = self._data.role_names
        tokens = np.bincount(self._data.column("role"), minlength=len(names))
        return dict(zip(names, map(int, tokens), strict=True))


class _StepRange:
    """The batches first, ..., total - 1, as the random-access source for grain."""

    def __init__(self, pairs: ShuffledPairs, first: int, total: int) -> None:
        self._pairs = pairs
        self._first = first
        self._total = total

    def __len__(self) -> int:
        return self._total - self._first

    def __getitem__(self, index: int) -> Pairs:
        return self._pairs[self._first + index]


def format_counts(values: Mapping[str, int]) -> str:
    """Returns counts as text.

    >>> format_counts({"role": 12, "special": 3})
    'role 12, special 3'
    """
    return ", ".join(f"{name} {count}" for name, count in values.items()) or "none"


def hold_out_problems(
    problem: Int[np.ndarray, " N"], share: float, seed: int
) -> tuple[Int[np.ndarray, " Q"], Int[np.ndarray, " R"]]:
    """Returns the problems to calibrate on, and the problems to measure on.

    There is at least one of each, but none with share=0.
    """
    present = np.unique(problem)
    order = np.random.default_rng([seed, _EVAL_SPLIT]).permutation(present)
    count = max(2, int(np.ceil(share * len(present)))) if share else 0
    return order[: count // 2], order[count // 2 : count]
