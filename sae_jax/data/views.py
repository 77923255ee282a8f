"""Views of token data: several checkpoints joined, a span, or some problems only."""

import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from sae_jax.data.shard_index import ShardError
from sae_jax.data.shards import ActivationShards
from sae_jax.data.tokens import StoredTokens, TokenData


class JoinedShards:
    """The activations of the same texts at K checkpoints: rows of width K D.

    A dictionary of these rows is a crosscoder: one encoder reads all checkpoints, and a
    decoder row holds a direction for each. Raises ShardError if the data sets differ in
    their texts, in their tokens, or in the hook of the activations.
    """

    def __init__(self, directories: Sequence[str | os.PathLike[str]]) -> None:
        self._parts = [ActivationShards(directory) for directory in directories]
        self._first = self._parts[0]
        for directory, part in zip(directories, self._parts, strict=True):
            self._check_same_texts(part, f"{directory} and {directories[0]}")
        indices = [part.index for part in self._parts]
        self.index = dataclasses.replace(
            self._first.index,
            width=sum(index.width for index in indices),
            model="; ".join(index.model for index in indices),
            data_hash=_hash_of([index.data_hash for index in indices]),
        )

    @property
    def width(self) -> int:
        """Returns K D."""
        return self.index.width

    @property
    def role_names(self) -> tuple[str, ...]:
        """Returns the names of the numbers in `column("role")`."""
        return self._first.role_names

    @property
    def data_hash(self) -> str:
        """Returns a hash that identifies the data of all checkpoints, in order."""
        return self.index.data_hash

    @property
    def dtype(self) -> np.dtype:
        """Returns a dtype that can hold all checkpoints' activations."""
        return np.result_type(*(part.dtype for part in self._parts))

    @property
    def starts(self) -> Int[np.ndarray, " S+1"]:
        """Returns the first tokens of the first checkpoint's shards, and the end."""
        return self._first.starts

    def column(self, name: str) -> np.ndarray:
        """Returns a column of all tokens; `norm` is the norm of the joined rows."""
        return self.read_column(name, 0, self._first.starts[-1])

    def read_column(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns a column of the tokens start, ..., stop - 1, like `column`.

        The column `activations` holds the joined rows.
        """
        if name not in ("norm", "activations"):
            return self._first.read_column(name, start, stop)
        parts = [part.read_column(name, start, stop) for part in self._parts]
        if name == "norm":
            return np.sqrt(np.sum(np.stack(parts) ** 2, axis=0))
        return np.concatenate([part.astype(self.dtype) for part in parts], axis=1)

    def rows(self, tokens: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B X"]:
        """Returns the checkpoints' float32 activations one after another, [B, K D]."""
        return np.concatenate([part.rows(tokens) for part in self._parts], axis=1)

    def verify(self) -> None:
        """Reads every byte, as `ActivationShards.verify` does."""
        for part in self._parts:
            part.verify()

    def _check_same_texts(self, part: ActivationShards, names: str) -> None:
        ours, theirs = (
            (each.index.hook, each.width, each.role_names)
            for each in (self._first, part)
        )
        if ours != theirs:
            raise ShardError(
                f"{names} are activations of {theirs} and {ours} (hook, width, roles); "
                "give the same hook of several checkpoints"
            )
        for name in ("sequence", "token_id", "role", "problem"):
            if not self._has_same_column(part, name):
                raise ShardError(
                    f"{names} differ in {name!r}: their texts differ; let both "
                    "checkpoints read the same texts"
                )

    def _has_same_column(self, part: ActivationShards, name: str) -> bool:
        """Returns whether a column is the same, comparing shard by shard."""
        starts = self._first.starts.tolist()
        return starts[-1] == part.starts[-1] and all(
            np.array_equal(
                self._first.read_column(name, *span), part.read_column(name, *span)
            )
            for span in itertools.pairwise(starts)
        )


class _PartOfTokens:
    """Some tokens of other token data, with the same width and roles."""

    def __init__(self, data: TokenData) -> None:
        self.width = data.width
        self.role_names = data.role_names


class TokenSpan(_PartOfTokens):
    """The tokens start, ..., stop - 1 of data on disk, read in one piece."""

    def __init__(self, data: StoredTokens, start: int, stop: int) -> None:
        super().__init__(data)
        self._data, self._start, self._stop = data, start, stop
        self.data_hash = _hash_of([data.data_hash, f"{start}-{stop}"])

    def column(self, name: str) -> np.ndarray:
        """Returns a column of these tokens, or their activations as stored."""
        return self._data.read_column(name, self._start, self._stop)

    def rows(self, tokens: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B D"]:
        """Returns the float32 activations of these tokens, numbered in the span."""
        return self.column("activations")[tokens].astype(np.float32)


class ProblemSubset(_PartOfTokens):
    """The tokens of some problems of other token data."""

    def __init__(self, data: TokenData, problems: Int[np.ndarray, " Q"]) -> None:
        super().__init__(data)
        self._data = data
        self._token_M = np.flatnonzero(np.isin(data.column("problem"), problems))
        self.data_hash = _hash_of([data.data_hash, *map(str, np.sort(problems))])
        self._column = functools.cache(lambda name: data.column(name)[self._token_M])

    def column(self, name: str) -> np.ndarray:
        """Returns a column of the tokens of these problems."""
        return self._column(name)

    def rows(self, tokens: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B D"]:
        """Returns the float32 activations of these tokens, numbered in the subset."""
        return self._data.rows(self._token_M[tokens])


def open_activations(
    path: str | os.PathLike[str], beside: Sequence[str | os.PathLike[str]] = ()
) -> ActivationShards | JoinedShards:
    """Opens a data set; joins the data sets of other checkpoints in `beside` to it."""
    return JoinedShards([path, *beside]) if beside else ActivationShards(path)


def _hash_of(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
