"""The format of activations on disk, and index.json. Format 2.

A data set is one directory. It appears complete or not at all: it is written beside
its place, as `NAME.partial`, and renamed.

    index.json        what the data are; UTF-8 JSON, see below
    shard_00000.bin   the tokens; whole sequences, in the order they were added
    shard_00001.bin   ...

A shard file of n tokens is its columns one after another, without gaps, each in
row-major little-endian order, so that every column is memory-mapped where it lies:

    sequence      int32 [n]     number of the token's sequence (document), from 0
    problem       int32 [n]     index into `problems`, or a number below `num_problems`;
                                no column where neither tells of any
    token_id      int32 [n]     what the policy read, or wrote, at this position
    norm          float32 [n]   Euclidean norm of the row; NaN or infinite: unusable
    FACTOR        int32 [n]     a column for each name in `factors`, in that order
    activations   dtype [n, width]
    role          uint8 [n]     index into `roles`
    special       uint8 [n]     1: a token such as BOS, to be left out of training

index.json holds exactly

    format        "sae_jax activations 2"
    width, dtype  of a row; dtype is float32, float16 or bfloat16
    layer, hook   where in the policy, such as 2 and "blocks.2.hook_resid_post"
    model         which policy
    roles         names, such as ["prompt", "response"]
    factors       names of labels, such as ["step", "direction"]; may be empty
    problems      ids of the problems that the sequences answer, or empty: then nothing
                  is known of them, and each sequence is a problem of its own, unless
    num_problems  above 0: problems have numbers from 0 on, and no ids
    vocabulary    the text of each token id, from 0; may be empty
    tokens, sequences, context_size   totals, and the tokens of the longest sequence
    data_hash     SHA-256 of the shards' hexadecimal SHA-256, joined: the data's name
    shards        per file: file, tokens, bytes, sha256

Format 1 is the same without `problems` and `vocabulary`; it is still read, and so are
data without `num_problems`.
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
    *("sequence", "problem", "token_id", "norm", "activations", "role", "special"),
)


class ShardError(ConfigError):
    """Activations that cannot be written or read. One line says where, and the mend."""


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
        """Returns whether tokens say which problem their sequence is of."""
        return bool(self.problems) or self.num_problems > 0

    def columns(self) -> dict[str, tuple[np.dtype[Any], int]]:
        """Returns each column's type and entries per token, in the file's order."""
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
    """Raises ShardError where dtype, roles or factors cannot be those of a data set."""
    if index.dtype not in DTYPES:
        raise ShardError(f"dtype={index.dtype!r}; it must be one of {list(DTYPES)}")
    if not 1 <= len(index.roles) <= 256:
        raise ShardError(f"roles={index.roles}; name between 1 and 256 of them")
    taken = set(index.factors) & set(_RESERVED_COLUMNS)
    if taken or len(set(index.factors)) != len(index.factors):
        raise ShardError(
            f"factors={index.factors}; names must differ from one another and from the "
            f"columns {_RESERVED_COLUMNS}"
        )


def read_index(directory: pathlib.Path) -> ShardIndex:
    """Returns the index of a data set. Raises ShardError where there is none."""
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
    """Returns the data set's hash, of its shards' hashes in their order."""
    joined = "".join(shard["sha256"] for shard in shards)
    return hashlib.sha256(joined.encode()).hexdigest()


def describe_source(
    *, model: str, hook: str, layer: int, context_size: int
) -> dict[str, Any]:
    """Returns what an autoencoder is saved with of the activations it learned.

    `hf_hook_name`, the module whose output they are in Hugging Face's models, is known
    of the stream after a layer alone: what is added to it, families name differently.
    """
    names = {"hf_hook_name": f"model.layers.{layer}"} if "resid_post" in hook else {}
    return {
        "model_name": model,
        "hook_name": hook,
        **names,
        "context_size": context_size,
    }
