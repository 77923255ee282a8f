"""The format of activations on disk, and index.json. Format 2.

A data set is one directory. It appears complete or not at all, because it is written
as `NAME.partial` next to its final place and then renamed.

    index.json        describes the data; UTF-8 JSON, see below
    shard_00000.bin   the tokens; whole sequences, in the order they were added
    shard_00001.bin   ...

A shard file of n tokens holds its columns one after another, without gaps, each in
row-major little-endian order. So every column can be memory-mapped in place:

    sequence      int32 [n]     number of the token's sequence (document), from 0
    problem       int32 [n]     index into `problems`, or a number below `num_problems`;
                                the column is missing if the index has no problems
    token_id      int32 [n]     the token that the policy read or wrote here
    norm          float32 [n]   Euclidean norm of the row; NaN or infinite: unusable
    FACTOR        int32 [n]     a column for each name in `factors`, in that order
    activations   dtype [n, width]
    role          uint8 [n]     index into `roles`
    special       uint8 [n]     1: a token such as BOS, which training leaves out

index.json holds exactly

    format        "sae_jax activations 2"
    width, dtype  of a row; dtype is float32, float16 or bfloat16
    layer, hook   place in the policy, such as 2 and "blocks.2.hook_resid_post"
    model         name of the policy
    roles         names, such as ["prompt", "response"]
    factors       names of labels, such as ["step", "direction"]; may be empty
    problems      ids of the problems that the sequences answer; may be empty
    num_problems  if above 0, problems are numbered from 0 and have no ids; if it is 0
                  and `problems` is empty, each sequence counts as a separate problem
    vocabulary    the text of each token id, from 0; may be empty
    tokens, sequences, context_size   totals, and the tokens of the longest sequence
    data_hash     identifies the data: SHA-256 of the shards' joined hex SHA-256
    shards        per file: file, tokens, bytes, sha256

Format 1 is the same without `problems` and `vocabulary`. It can still be read, and so
can data without `num_problems`.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from job_jax.schema import ConfigError

FORMAT = "sae_jax activations 2"
_FORMAT_WITHOUT_PROBLEMS = "sae_jax activations 1"
INDEX_FILE = "index.json"
DTYPES: dict[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}

_RESERVED_COLUMNS = (
    "sequence",
    "problem",
    "token_id",
    "norm",
    "activations",
    "role",
    "special",
)


class ShardError(ConfigError):
    """Activations that cannot be written or read. One line names them and the fix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShardIndex:
    """The content of index.json, from `ShardWriter` to `ActivationShards`."""

    format: str = FORMAT
    width: int
    dtype: str
    layer: int
    hook: str
    model: str
    roles: tuple[str, ...]
    factors: tuple[str, ...]
    problems: tuple[str, ...] = ()
    num_problems: int = 0
    vocabulary: tuple[str, ...] = ()
    tokens: int = 0
    sequences: int = 0
    context_size: int = 0
    data_hash: str = ""
    shards: tuple[dict[str, Any], ...] = ()

    @property
    def has_problems(self) -> bool:
        """Returns whether the data say which problem each sequence answers."""
        return bool(self.problems) or self.num_problems > 0

    def columns(self) -> dict[str, tuple[np.dtype, int]]:
        """Returns each column's dtype and entries per token, in the file's order."""
        int32, uint8 = np.dtype("<i4"), np.dtype("u1")
        return {
            "sequence": (int32, 1),
            **({"problem": (int32, 1)} if self.has_problems else {}),
            "token_id": (int32, 1),
            "norm": (np.dtype("<f4"), 1),
            **dict.fromkeys(self.factors, (int32, 1)),
            "activations": (np.dtype(DTYPES[self.dtype]), self.width),
            "role": (uint8, 1),
            "special": (uint8, 1),
        }

    def token_bytes(self) -> int:
        """Returns the bytes of one token in a shard file."""
        return sum(kind.itemsize * count for kind, count in self.columns().values())


def check_names(index: ShardIndex) -> None:
    """Raises ShardError if a data set cannot have these dtype, roles or factors."""
    if index.dtype not in DTYPES:
        raise ShardError(f"dtype={index.dtype!r}; it must be one of {list(DTYPES)}")
    if not 1 <= len(index.roles) <= 256:
        raise ShardError(f"roles={index.roles}; name between 1 and 256 of them")
    taken = set(index.factors) & set(_RESERVED_COLUMNS)
    if taken or len(set(index.factors)) != len(index.factors):
        raise ShardError(
            f"factors={index.factors}; names must differ from each other and from the "
            f"columns {_RESERVED_COLUMNS}"
        )


def read_index(directory: pathlib.Path) -> ShardIndex:
    """Returns the index of a data set. Raises ShardError if there is none."""
    path = directory / INDEX_FILE
    if not path.is_file():
        raise ShardError(f"no activations in {directory}: it has no {INDEX_FILE}")
    try:
        values = json.loads(path.read_text())
        if values["format"] == _FORMAT_WITHOUT_PROBLEMS:
            values = {**values, "format": FORMAT, "problems": (), "vocabulary": ()}
        if values["format"] != FORMAT:
            raise ShardError(
                f"{path} is of format {values['format']!r}, not {FORMAT!r}"
            )
        names = ("roles", "factors", "problems", "vocabulary", "shards")
        index = ShardIndex(
            **{**values, **{name: tuple(values[name]) for name in names}}
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ShardError(f"{path} is not an index of {FORMAT!r}: {error}") from error
    check_names(index)
    return index


def combined_hash(shards: Sequence[Mapping[str, Any]]) -> str:
    """Returns the data set's hash, made of its shards' hashes in order."""
    joined = "".join(shard["sha256"] for shard in shards)
    return hashlib.sha256(joined.encode()).hexdigest()


def describe_source(
    *, model: str, hook: str, layer: int, context_size: int
) -> dict[str, Any]:
    """Returns the metadata of the training activations to save with an autoencoder.

    `hf_hook_name`, the module in Hugging Face's models that outputs the activations, is
    known only for the stream after a layer. Model families name the other places
    differently.
    """
    names = {"hf_hook_name": f"model.layers.{layer}"} if "resid_post" in hook else {}
    return {
        "model_name": model,
        "hook_name": hook,
        **names,
        "context_size": context_size,
    }
