"""Activations on disk, written from a policy and read by `pairs`.

`shard_index` describes the files and their format. A data set appears complete or not
at all, because it is written as `NAME.partial` next to its final place and then
renamed.
"""

import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.disk import name_file
from sae_jax.data.shard_index import (
    DTYPES,
    INDEX_FILE,
    ShardError,
    ShardIndex,
    check_names,
    combined_hash,
    read_index,
)

# A shard is closed after this many tokens: 256 MiB at width 256 in bfloat16.
_SHARD_TOKENS = 1 << 19
_HASH_CHUNK = 1 << 24  # bytes


class ShardWriter:
    """Writes a data set: use it as a context manager and `add` each sequence.

    The directory appears when the block ends without an exception; otherwise nothing
    remains. It refuses a directory that exists. It holds one shard in memory.

    >>> import tempfile
    >>> x = np.ones((3, 2), np.float32)  # three tokens of width 2
    >>> with tempfile.TemporaryDirectory() as path:
    ...     with ShardWriter(
    ...         f"{path}/data", width=2, layer=0, hook="h", model="m", roles=["user"]
    ...     ) as writer:
    ...         writer.add(x, token_ids=np.arange(3), roles=np.zeros(3, int))
    ...     ActivationShards(f"{path}/data").rows(np.array([2])).tolist()
    [[1.0, 1.0]]
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        width: int,
        layer: int,
        hook: str,
        model: str,
        roles: Sequence[str],
        factors: Sequence[str] = (),
        vocabulary: Sequence[str] = (),
        dtype: str = "bfloat16",
        shard_tokens: int = _SHARD_TOKENS,
    ) -> None:
        self._directory = pathlib.Path(directory)
        self._partial = self._directory.with_name(f"{self._directory.name}.partial")
        self._index = ShardIndex(
            width=width,
            dtype=dtype,
            layer=layer,
            hook=hook,
            model=model,
            roles=tuple(roles),
            factors=tuple(factors),
            vocabulary=tuple(vocabulary),
        )
        check_names(self._index)
        self._shard_tokens = shard_tokens
        self._pending: list[dict[str, np.ndarray]] = []
        self._pending_tokens = 0
        self._problems: dict[str, int] = {}
        self._sequences = 0
        self._longest = 0
        self._shards: list[dict[str, Any]] = []

    def add(
        self,
        activations: Float[np.ndarray, "T D"],
        *,
        token_ids: Int[np.ndarray, " T"],
        roles: Int[np.ndarray, " T"],
        special: Bool[np.ndarray, " T"] | None = None,
        factors: Mapping[str, Int[np.ndarray, " T"]] | None = None,
        problem: str | None = None,
    ) -> None:
        """Appends one sequence. `roles` are indices; `special` is False by default.

        `problem` is the id of the problem that it answers; give it for all sequences or
        for none. Raises ShardError if shapes, roles, factors or problem do not fit the
        data set.
        """
        rows = np.asarray(activations)
        if rows.ndim != 2 or rows.shape[1] != self._index.width:
            raise self._error(
                f"has activations of shape {list(rows.shape)}; the data set has "
                f"width {self._index.width}"
            )
        if (names := set(factors or {})) != set(self._index.factors):
            raise self._error(
                f"has the factors {sorted(names)}; the data set has "
                f"{sorted(self._index.factors)}"
            )
        if self._sequences and (problem is None) == bool(self._problems):
            raise self._error(
                f"has problem={problem!r}; give all sequences the id of a problem, or "
                "none of them"
            )
        if problem is not None:
            self._problems.setdefault(problem, len(self._problems))
        rows = rows.astype(DTYPES[self._index.dtype])
        columns = {
            "sequence": np.full(len(rows), self._sequences),
            "problem": np.full(len(rows), self._problems.get(problem or "", -1)),
            "token_id": np.asarray(token_ids),
            "norm": np.linalg.norm(rows.astype(np.float32), axis=1),
            **{name: np.asarray(values) for name, values in (factors or {}).items()},
            "activations": rows,
            "role": np.asarray(roles),
            "special": np.zeros(len(rows)) if special is None else np.asarray(special),
        }
        self._check_lengths(columns)
        self._append(columns)

    def _check_lengths(self, columns: dict[str, np.ndarray]) -> None:
        tokens = len(columns["activations"])
        for name, column in columns.items():
            if name != "activations" and column.shape != (tokens,):
                raise self._error(
                    f"has {tokens} rows of activations, but {name} of shape "
                    f"{list(column.shape)}"
                )
        roles, names = columns["role"], self._index.roles
        wrong = roles[(roles < 0) | (roles >= len(names))]
        if wrong.size:
            raise self._error(f"has role {wrong[0]}; there are {[*enumerate(names)]}")

    def _error(self, text: str) -> ShardError:
        return ShardError(f"sequence {self._sequences} for {self._directory} {text}")

    def _append(self, columns: dict[str, np.ndarray]) -> None:
        tokens = len(columns["activations"])
        self._pending.append(columns)
        self._pending_tokens += tokens
        self._sequences += 1
        self._longest = max(self._longest, tokens)
        if self._pending_tokens >= self._shard_tokens:
            self._close_shard()

    def _close_shard(self) -> None:
        columns = {
            name: np.concatenate([part[name] for part in self._pending])
            for name in self._index_now().columns()
        }
        number = len(self._shards)
        self._shards.append(
            write_shard(self._partial, self._index_now(), columns, number=number)
        )
        self._pending, self._pending_tokens = [], 0

    def _index_now(self) -> ShardIndex:
        return dataclasses.replace(self._index, problems=tuple(self._problems))

    def __enter__(self) -> Self:
        """Makes the partial directory, removing one that a killed writer left."""
        if self._directory.exists():
            raise ShardError(f"{self._directory} exists; remove it or name another")
        shutil.rmtree(self._partial, ignore_errors=True)
        self._partial.mkdir(parents=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finishes the data set and renames it; after an exception, removes it."""
        if kind is not None:
            shutil.rmtree(self._partial)
            return
        if self._pending_tokens:
            self._close_shard()
        index = dataclasses.replace(
            self._index_now(),
            tokens=sum(shard["tokens"] for shard in self._shards),
            sequences=self._sequences,
            context_size=self._longest,
            data_hash=combined_hash(self._shards),
            shards=tuple(self._shards),
        )
        text = json.dumps(dataclasses.asdict(index), indent=2)
        (self._partial / INDEX_FILE).write_text(text + "\n")
        self._partial.rename(self._directory)


def write_shard(
    directory: pathlib.Path,
    index: ShardIndex,
    columns: Mapping[str, np.ndarray],
    *,
    number: int,
) -> dict[str, Any]:
    """Writes the columns of n tokens as a shard; returns its entry in the index."""
    name = f"shard_{number:05d}.bin"
    digest, size = hashlib.sha256(), 0
    path = directory / name
    with name_file(path), path.open("wb") as file:
        for column, (kind, _) in index.columns().items():
            data = np.ascontiguousarray(columns[column], dtype=kind)
            file.write(data.view(np.uint8).data)
            digest.update(data.view(np.uint8).data)
            size += data.nbytes
    entry = {"file": name, "tokens": len(columns["activations"]), "bytes": size}
    return {**entry, "sha256": digest.hexdigest()}


class ActivationShards:
    """A data set opened for reading; the activations stay on disk, memory-mapped.

    Opening checks the index and every file's size, but reads no activations. All other
    columns (18 bytes a token, and 4 per factor) are read into memory at first use.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = pathlib.Path(directory)
        self.index = read_index(self._directory)
        counts = [shard["tokens"] for shard in self.index.shards]
        self.starts = np.cumsum([0, *counts])  # first token of each shard, and the end
        self._maps = [self._memory_map(shard) for shard in self.index.shards]

    @property
    def width(self) -> int:
        """Returns D."""
        return self.index.width

    @property
    def dtype(self) -> np.dtype:
        """Returns the dtype in which the activations are stored."""
        return np.dtype(DTYPES[self.index.dtype])

    @property
    def role_names(self) -> tuple[str, ...]:
        """Returns the names of the numbers in `column("role")`."""
        return self.index.roles

    @property
    def data_hash(self) -> str:
        """Returns the hash that identifies the data: equal bytes, equal hash."""
        return self.index.data_hash

    def column(self, name: str) -> np.ndarray:
        """Returns a column other than the activations, over all tokens: [N].

        If the data name no problems, each sequence counts as a problem.
        """
        if name == "problem" and not self.index.has_problems:
            return self.column("sequence")
        if name == "activations" or name not in self.index.columns():
            others = [c for c in self.index.columns() if c != "activations"]
            raise ShardError(
                f"{self._directory} has no column {name!r}; it has {others}"
            )
        empty = np.empty(0, self.index.columns()[name][0])
        return np.concatenate([empty, *(columns[name] for columns in self._maps)])

    def rows(self, tokens: Int[np.ndarray, " B"]) -> Float[np.ndarray, "B D"]:
        """Returns the activations of these tokens, in float32.

        They are read in the order of their place on disk.
        """
        order_B = np.argsort(tokens)
        sorted_B = tokens[order_B]
        bounds = np.searchsorted(sorted_B, self.starts)
        rows_BD = np.empty((len(tokens), self.width), np.float32)
        for shard, columns in enumerate(self._maps):
            part = slice(bounds[shard], bounds[shard + 1])
            local = sorted_B[part] - self.starts[shard]
            rows_BD[order_B[part]] = columns["activations"][local]
        return rows_BD

    def read_column(self, name: str, start: int, stop: int) -> np.ndarray:
        """Returns a column of the tokens start, ..., stop - 1, or their activations.

        It reads from the file, for callers that go through all data: a memory map would
        keep the pages in the process's memory. Activations have the data's dtype.
        """
        if name == "problem" and not self.index.has_problems:
            name = "sequence"
        number = int(np.searchsorted(self.starts, start, side="right")) - 1
        parts = []
        while start < stop:
            first, end = self.starts[number : number + 2].tolist()
            parts.append(
                self._read(number, name, start - first, min(stop, end) - first)
            )
            number, start = number + 1, end
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _read(self, number: int, name: str, low: int, high: int) -> np.ndarray:
        shard = self.index.shards[number]
        kind, count = self.index.columns()[name]
        begin, _ = self._extents(shard["tokens"])[name]
        row_bytes = kind.itemsize * count
        raw = np.fromfile(
            self._directory / shard["file"],
            np.uint8,
            count=(high - low) * row_bytes,
            offset=begin + low * row_bytes,
        )
        return raw.view(kind).reshape((-1, count) if name == "activations" else -1)

    def verify(self) -> None:
        """Reads every byte. Raises ShardError if one has changed since it was written.

        It also checks the order of the shards, through the data set's hash.
        """
        for shard in self.index.shards:
            path = self._directory / shard["file"]
            with path.open("rb") as file:
                if _sha256_of_file(file) != shard["sha256"]:
                    raise ShardError(
                        f"{path} is damaged: its SHA-256 is not the one in "
                        f"{INDEX_FILE}; write the data set again"
                    )
        if combined_hash(self.index.shards) != self.index.data_hash:
            raise ShardError(
                f"{self._directory / INDEX_FILE}: data_hash does not match the shards; "
                "write the data set again"
            )

    def _memory_map(self, shard: dict[str, Any]) -> dict[str, np.ndarray]:
        """Returns the columns of one file, memory-mapped."""
        path, tokens = self._directory / shard["file"], shard["tokens"]
        expected = tokens * self.index.token_bytes()
        size = path.stat().st_size if path.is_file() else None
        if size is None or not size == expected == shard["bytes"]:
            state = "is missing" if size is None else f"has {size} bytes"
            raise ShardError(
                f"{path} {state}, but {tokens} tokens of width {self.width} in "
                f"{self.index.dtype} take {expected}; copy or write the data set again"
            )
        raw = np.asarray(np.memmap(path, mode="r"))
        columns = {}
        for name, (begin, end) in self._extents(tokens).items():
            kind, count = self.index.columns()[name]
            shape = (tokens, count) if name == "activations" else (tokens,)
            columns[name] = raw[begin:end].view(kind).reshape(shape)
        return columns

    def _extents(self, tokens: int) -> dict[str, tuple[int, int]]:
        """Returns (begin, end) of each column in a shard's file, in bytes."""
        extents, begin = {}, 0
        for name, (kind, count) in self.index.columns().items():
            end = begin + tokens * kind.itemsize * count
            extents[name] = (begin, end)
            begin = end
        return extents


def _sha256_of_file(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_HASH_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
