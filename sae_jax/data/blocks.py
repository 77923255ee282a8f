"""Splits data on disk into blocks of whole documents, without holding a whole column.

All columns except the activations are read a few times, shard by shard: to find
documents and copies, to find the median norm, and to count pairs. Only 9 bytes per
document and 32 per block stay in memory, however many tokens there are.
"""

import functools
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from sae_jax.config import PairsConfig
from sae_jax.data.pairs import MAX_EVAL_TOKENS, find_positives, hold_out_problems
from sae_jax.data.tokens import StoredTokens, TokenFilter, resolve_roles
from sae_jax.data.views import TokenSpan


class DocumentTable(NamedTuple):
    """The start of each document and whether it is trained on, in data order."""

    start: Int[np.ndarray, " S"]  # its first token
    is_trained: Bool[np.ndarray, " S"]  # not a copy of an earlier one, not held out

    def trained_tokens(self, span: TokenSpan, start: int) -> Bool[np.ndarray, " N"]:
        """Returns which tokens of a span of whole documents are trained on."""
        first = int(np.searchsorted(self.start, start))
        return self.is_trained[first + document_numbers(span)]


class Blocks(NamedTuple):
    """Blocks of neighboring documents that are read together."""

    start: Int[np.ndarray, " K"]  # tokens
    stop: Int[np.ndarray, " K"]
    pairs: Int[np.ndarray, " K"]
    rows: Int[np.ndarray, " K"]  # tokens that can be in a pair


class HeldOutSpans(NamedTuple):
    """The documents that no training step reads: (first token, end) of each."""

    calibration: list[tuple[int, int]]
    evaluation: list[tuple[int, int]]


class BlockIndex(NamedTuple):
    """The result of `index_blocks` for data on disk."""

    tokens: TokenFilter
    roles: tuple[str, ...]
    documents: DocumentTable
    blocks: Blocks
    held_out: HeldOutSpans
    skipped: dict[str, int]  # tokens by reason, as `ShuffledPairs` counts them


def index_blocks(
    data: StoredTokens, config: PairsConfig, *, seed: int, block_pairs: int
) -> BlockIndex:
    """Splits the data into blocks of at least `block_pairs` pairs.

    It filters the same tokens, and leaves out and holds out the same documents, as
    `ShuffledPairs`. Raises ConfigError if a role has no tokens.
    """
    start_S, problem_S, digest_S, present_R = _read_documents(data)
    present = [name for role, name in enumerate(data.role_names) if present_R[role]]
    roles = resolve_roles(config, data.role_names, present)
    role_ids = tuple(data.role_names.index(name) for name in roles)
    any_length = TokenFilter(role_ids, np.inf)
    median = streamed_median(
        lambda: (
            span.column("norm")[any_length.apply(span)[0]] for _, span in _spans(data)
        )
    )
    tokens = TokenFilter(role_ids, config.max_norm_ratio * median)
    copy_S = np.ones(len(start_S), bool)
    copy_S[np.unique(digest_S, return_index=True)[1]] = False
    calibration_Q, eval_Q = hold_out_problems(
        problem_S[~copy_S], config.eval_fraction, seed
    )
    in_calibration_S, in_eval_S = (
        np.isin(problem_S, problem_Q) & ~copy_S for problem_Q in (calibration_Q, eval_Q)
    )
    documents = DocumentTable(start_S, ~(copy_S | in_calibration_S | in_eval_S))
    counts = _count(data, config, tokens, documents)
    stop_S = np.append(start_S[1:], data.starts[-1])
    has_usable_S = counts.usable > 0
    held_out = HeldOutSpans(
        _first_spans(start_S, stop_S, in_calibration_S & has_usable_S),
        _first_spans(start_S, stop_S, in_eval_S & has_usable_S),
    )
    trained = int(counts.rows.sum())
    usable = int(counts.usable[~copy_S].sum())
    skipped = counts.skipped | {
        "duplicate": int(counts.usable[copy_S].sum()),
        "eval": usable - trained,
        "no_positive": trained - int(counts.pairs.sum()),
    }
    blocks = _cut(start_S, stop_S, counts, block_pairs)
    return BlockIndex(tokens, roles, documents, blocks, held_out, skipped)


def document_numbers(span: TokenSpan) -> Int[np.ndarray, " N"]:
    """Returns the document of each token of a span, from 0."""
    return np.cumsum(np.diff(span.column("sequence"), prepend=-1) != 0) - 1


def streamed_median(
    parts: Callable[[], Iterable[Float[np.ndarray, " n"]]],
) -> np.floating:
    """Returns the median of float32 numbers >= 0, in three passes over the data.

    The bit patterns, read as integers, are ordered like the numbers. The first pass
    counts their upper halves, and the others count the lower halves of the numbers in
    the middle. Without numbers it returns 0.

    >>> streamed_median(lambda: [np.float32([3, 1]), np.float32([2.5, 9])])
    np.float32(2.75)
    """
    upper = _histogram(parts(), _upper_bits)
    total = int(upper.sum())
    if not total:
        return np.float32(0)
    middle = []
    for rank in ((total - 1) // 2, total // 2):
        half = int(np.searchsorted(upper.cumsum(), rank, side="right"))
        lower = _histogram(parts(), functools.partial(_lower_bits, upper=half))
        rank_in_half = rank - int(upper[:half].sum())
        low = int(np.searchsorted(lower.cumsum(), rank_in_half, side="right"))
        middle.append(np.uint32(half << 16 | low).view(np.float32))
    return np.mean(middle, dtype=np.float32)


def _upper_bits(bits: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    return bits >> 16


def _lower_bits(bits: Int[np.ndarray, " n"], *, upper: int) -> Int[np.ndarray, " m"]:
    return bits[bits >> 16 == upper] & 0xFFFF


def _histogram(
    parts: Iterable[Float[np.ndarray, " n"]],
    choose: Callable[[Int[np.ndarray, " n"]], Int[np.ndarray, " m"]],
) -> Int[np.ndarray, " 65536"]:
    """Returns how often each 16-bit number occurs in the results of `choose`."""
    counts = np.zeros(1 << 16, np.int64)
    for part in parts:
        bits = np.ascontiguousarray(part, np.float32).view(np.uint32)
        counts += np.bincount(choose(bits), minlength=1 << 16)
    return counts


def _spans(data: StoredTokens) -> Iterator[tuple[int, TokenSpan]]:
    """Yields (number of the first token, span) of each shard that has tokens."""
    for start, stop in itertools.pairwise(data.starts.tolist()):
        if start < stop:
            yield start, TokenSpan(data, start, stop)


def _read_documents(
    data: StoredTokens,
) -> tuple[
    Int[np.ndarray, " S"],
    Int[np.ndarray, " S"],
    Int[np.ndarray, " S"],
    Bool[np.ndarray, " R"],
]:
    """Returns the first token, problem and digest of each document, and present roles.

    Documents with the same digest (64 bits) have the same tokens in the same roles.
    """
    starts, problems, digests = [], [], []
    present_R = np.zeros(len(data.role_names), bool)
    for first, span in _spans(data):
        number_N = document_numbers(span)
        start_S = np.flatnonzero(np.diff(number_N, prepend=-1))
        role_N = span.column("role")
        text_N2 = np.stack([span.column("token_id"), role_N], axis=1)
        present_R[np.unique(role_N)] = True
        starts.append(first + start_S)
        problems.append(span.column("problem")[start_S])
        ends = [*start_S[1:].tolist(), len(role_N)]
        digests += [
            hashlib.blake2b(text_N2[begin:end].tobytes(), digest_size=8).digest()
            for begin, end in zip(start_S.tolist(), ends, strict=True)
        ]
    digest_S = np.frombuffer(b"".join(digests), np.uint64)
    return np.concatenate(starts), np.concatenate(problems), digest_S, present_R


class _Counts(NamedTuple):
    """Counts of each document's tokens and pairs, and of tokens left out by reason."""

    usable: Int[np.ndarray, " S"]
    rows: Int[np.ndarray, " S"]  # usable tokens of documents that are trained on
    pairs: Int[np.ndarray, " S"]
    skipped: dict[str, int]


def _count(
    data: StoredTokens,
    config: PairsConfig,
    tokens: TokenFilter,
    documents: DocumentTable,
) -> _Counts:
    parts: list[tuple[np.ndarray, ...]] = []
    skipped: dict[str, int] = {}
    for start, span in _spans(data):
        number_N = document_numbers(span)
        usable_N, left_out = tokens.apply(span)
        trained_N = usable_N & documents.trained_tokens(span, start)
        found = find_positives(span, trained_N, positive=config.positive)
        parts.append(
            tuple(
                np.bincount(number_N[chosen], minlength=number_N[-1] + 1)
                for chosen in (usable_N, trained_N, found.anchors)
            )
        )
        skipped = {name: skipped.get(name, 0) + n for name, n in left_out.items()}
    usable_S, rows_S, pairs_S = map(np.concatenate, zip(*parts, strict=True))
    return _Counts(usable_S, rows_S, pairs_S, skipped)


def _first_spans(
    start_S: Int[np.ndarray, " S"],
    stop_S: Int[np.ndarray, " S"],
    chosen_S: Bool[np.ndarray, " S"],
) -> list[tuple[int, int]]:
    """Returns the first chosen documents: at most 65,536 tokens, but at least one."""
    start_s, stop_s = start_S[chosen_S], stop_S[chosen_S]
    total_s = (stop_s - start_s).cumsum()
    count = max(1, int(np.searchsorted(total_s, MAX_EVAL_TOKENS, side="right")))
    return list(zip(start_s[:count].tolist(), stop_s[:count].tolist(), strict=True))


def _cut(
    start_S: Int[np.ndarray, " S"],
    stop_S: Int[np.ndarray, " S"],
    counts: _Counts,
    block_pairs: int,
) -> Blocks:
    """Cuts a block after each document that fills it; the last block gets the rest."""
    ends, held = [], 0
    for document, pairs in enumerate(counts.pairs.tolist(), start=1):
        held += pairs
        if held >= block_pairs:
            ends.append(document)
            held = 0
    if ends:
        ends[-1] = len(start_S)
    first_K = np.array([0, *ends[:-1]][: len(ends)], int)
    last_K = np.array(ends, int) - 1
    return Blocks(
        start=start_S[first_K],
        stop=stop_S[last_K],
        pairs=np.add.reduceat(counts.pairs, first_K) if ends else first_K,
        rows=np.add.reduceat(counts.rows, first_K) if ends else first_K,
    )
