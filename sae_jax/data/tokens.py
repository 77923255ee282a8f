"""Tokens with their activations, on disk or in memory, and as whole documents."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.schema import ConfigError
from sae_jax.config import PairsConfig

# Tokens in a block of documents: f of 1024 tokens and 16k latents takes 64 MiB.
_BLOCK = 1024
_WRITTEN = "response"  # the role of tokens that a policy wrote


class TokenData(Protocol):
    """Tokens with their activations: `shards.ActivationShards` or `TokenArrays`.

    Tokens are numbered from 0; a document's tokens are consecutive, in reading order.
    """

    @property
    def width(self) -> int:
        """Returns D."""
        ...

    @property
    def role_names(self) -> tuple[str, ...]:
        """Returns the names of the roles 0, 1, ..."""
        ...

    @property
    def data_hash(self) -> str:
        """Returns a hash that identifies the data."""
        ...

    def column(self, name: str) -> np.ndarray:
        """Returns a column over all tokens.

        Columns are `sequence`, `problem`, `token_id`, `role`, `special`, `norm`, and
        any factors.
        """
        ...

    def rows(self, tokens: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B D"]:
        """Returns the float32 activations of these tokens."""
        ...


class StoredTokens(TokenData, Protocol):
    """Token data on disk that is read in spans: `ActivationShards`, `JoinedShards`.

    No document crosses one of `starts`.
    """

    @property
    def dtype(self) -> np.dtype:
        """Returns the dtype in which the activations are stored."""
        ...

    @property
    def starts(self) -> Int[np.ndarray, " S+1"]:
        """Returns the first tokens of the shards, and the number of all tokens."""
        ...

    def read_column(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns a column, or `activations`, of the tokens start, ..., stop - 1."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenArrays:
    """Token data in memory. `columns` holds at least `sequence`, `role`, `special`.

    Without `problem`, each document counts as a separate problem; without `token_id`,
    no document is a duplicate.
    """

    activations: Float[np.ndarray, "N D"]
    columns: Mapping[str, np.ndarray]
    role_names: tuple[str, ...]
    data_hash: str

    @property
    def width(self) -> int:
        """Returns D."""
        return self.activations.shape[1]

    def column(self, name: str) -> np.ndarray:
        """Returns a column; `norm` is computed."""
        if name == "norm":
            return np.linalg.norm(self.activations, axis=1)
        if name == "problem" and name not in self.columns:
            return self.columns["sequence"]
        if name == "token_id" and name not in self.columns:
            return np.arange(len(self.activations))
        return self.columns[name]

    def rows(self, tokens: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B D"]:
        """Returns the float32 activations of these tokens."""
        return self.activations[tokens].astype(np.float32)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documents:
    """Whole documents, padded to one length. Made by `iter_documents`.

    Calibration and `quality` read them. Where `mask` is false (padding and filtered
    tokens), x may hold anything, including NaN.
    """

    x: Float[np.ndarray, "S T D"]
    mask: Bool[np.ndarray, "S T"]
    token_index: Int[np.ndarray, "S T"]  # into the data; -1 at padding


def iter_documents(
    data: TokenData,
    mask: Bool[np.ndarray, " N"],
    document_ids: Int[np.ndarray, " M"],
) -> Iterator[Documents]:
    """Yields the documents with these ids, in that order, in blocks of one shape.

    A block has about a thousand tokens, or one longer document. The last block is
    padded, so that programs that read blocks compile only once. `mask` marks the tokens
    of the data that count.

    >>> from sae_jax.data.synthetic import make_synthetic_data
    >>> data = make_synthetic_data(seed=0, width=8, num_sequences=3, length=6)
    >>> (block,) = iter_documents(data, np.ones(18, bool), np.array([2, 0]))
    >>> int(block.mask.sum()), block.token_index[0].tolist()
    (12, [12, 13, 14, 15, 16, 17])
    """
    sequence_N = data.column("sequence")
    first_M = np.searchsorted(sequence_N, document_ids)
    length_M = np.searchsorted(sequence_N, document_ids, side="right") - first_M
    longest = int(length_M.max(initial=1))
    rows = max(1, _BLOCK // longest)
    position_T = np.arange(longest)
    for start in range(0, len(document_ids), rows):
        first_s, length_s = (
            first_M[start : start + rows],
            length_M[start : start + rows],
        )
        missing = rows - len(first_s)
        first_S1 = np.pad(first_s, (0, missing))[:, None]
        inside_ST = position_T < np.pad(length_s, (0, missing))[:, None]
        token_ST = np.where(inside_ST, first_S1 + position_T, 0)
        x_STD = data.rows(token_ST.reshape(-1)).reshape(rows, longest, data.width)
        yield Documents(
            x=x_STD,
            mask=inside_ST & mask[token_ST],
            token_index=np.where(inside_ST, token_ST, -1),
        )


class TokenFilter(NamedTuple):
    """Which tokens count: tokens of some roles, not special, with a norm in bounds."""

    role_ids: tuple[int, ...]
    max_norm: float | np.floating[Any]

    def apply(self, data: TokenData) -> tuple[Bool[np.ndarray, " N"], dict[str, int]]:
        """Returns the mask of usable tokens, and how many are left out for each reason.

        A token is counted under the first reason that applies.
        """
        norm_N = data.column("norm")
        finite_N = np.isfinite(norm_N)
        usable_N = np.ones(len(norm_N), bool)
        skipped = {}
        for reason, out_N in {
            "role": ~np.isin(data.column("role"), self.role_ids),
            "special": data.column("special").astype(bool),
            "non_finite": ~finite_N,
            "high_norm": finite_N & (norm_N > self.max_norm),
        }.items():
            skipped[reason] = int((usable_N & out_N).sum())
            usable_N[out_N] = False
        return usable_N, skipped


def filter_tokens(
    data: TokenData, config: PairsConfig
) -> tuple[Bool[np.ndarray, " N"], dict[str, int]]:
    """Returns the mask of usable tokens, and how many were skipped for each reason.

    A token is skipped if its role is not among the config's, if it is special, if its
    activation is not finite, or if its norm exceeds `max_norm_ratio` times the median
    of the remaining tokens. Raises ConfigError if a role has no tokens, and names the
    roles that have some.

    >>> from sae_jax.data.synthetic import make_synthetic_data
    >>> data = make_synthetic_data(seed=0, width=8, num_sequences=3, length=6)
    >>> mask, skipped = filter_tokens(data, PairsConfig())
    >>> int(mask.sum()), skipped
    (18, {'role': 0, 'special': 0, 'non_finite': 0, 'high_norm': 0})
    """
    roles = resolve_roles(config, data.role_names, present_roles(data))
    role_ids = tuple(data.role_names.index(name) for name in roles)
    usable_N, _ = TokenFilter(role_ids, np.inf).apply(data)
    norm_N = data.column("norm")[usable_N]
    limit = config.max_norm_ratio * np.median(norm_N) if norm_N.size else 0.0
    return TokenFilter(role_ids, limit).apply(data)


def resolve_roles(
    config: PairsConfig, role_names: Sequence[str], present: Sequence[str]
) -> tuple[str, ...]:
    """Returns the roles whose tokens count; `present` are the roles that have tokens.

    By default these are the tokens that the policy wrote ("response"), or all tokens of
    data without that role, such as plain text. Raises ConfigError if a role has no
    tokens.
    """
    written = tuple(name for name in role_names if name == _WRITTEN)
    roles = config.roles or written or tuple(present)
    if missing := [name for name in roles if name not in present]:
        raise ConfigError(
            f"pairs.roles={roles}: no token has the role {missing[0]!r}; the data have "
            f"{list(present)}"
        )
    return roles


def present_roles(data: TokenData) -> tuple[str, ...]:
    """Returns the roles that some token has."""
    role_ids = np.unique(data.column("role"))
    return tuple(data.role_names[role] for role in role_ids)


def mark_duplicates(data: TokenData) -> Bool[np.ndarray, " N"]:
    """Returns which tokens belong to an exact copy of an earlier document.

    A policy that is sure of its answer writes it again and again. Copies add no
    information, and a held-out copy would have been trained on.
    """
    sequence_N = data.column("sequence")
    text_N2 = np.stack([data.column("token_id"), data.column("role")], axis=1)
    starts = np.flatnonzero(np.diff(sequence_N, prepend=-1))
    is_copy_N = np.zeros(len(sequence_N), bool)
    seen: set[bytes] = set()
    for start, end in zip(starts, [*starts[1:], len(sequence_N)], strict=True):
        text = text_N2[start:end].tobytes()
        is_copy_N[start:end] = text in seen
        seen.add(text)
    return is_copy_N
