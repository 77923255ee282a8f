"""The tokens of a GGUF file, and the ones with a role."""

import collections
import dataclasses
import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.models.gguf.reader import GGUFFile

_PREFIX = "tokenizer.ggml."
# Tokens that end a completion: the end of a text, a turn, a message with a tool call.
_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(enum.IntEnum):
    """What a token is, as `tokenizer.ggml.token_type` numbers it."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The tokenizer of a GGUF file. `metadata` has its settings, by their short key.

    The file may leave out `bos`, `pad` and `unknown`; each is then None. `ends` are the
    tokens that end a completion, eos first.
    """

    path: Path
    metadata: Mapping[str, Any]
    tokens: list[str]
    types: Sequence[int]
    bos: int | None
    pad: int | None
    unknown: int | None
    ends: tuple[int, ...]

    def of_type(self, *types: TokenType) -> dict[str, int]:
        """Returns the ids of the tokens of these types, by their text."""
        return {
            token: number
            for number, (token, kind) in enumerate(
                zip(self.tokens, self.types, strict=True)
            )
            if kind in types
        }

    def ids(self) -> dict[str, int]:
        """Returns the id of every token, without the embedding's padding.

        llama.cpp names rows of the embedding that have no token [PAD0], [PAD1] ...
        """
        return {
            token: number
            for number, (token, kind) in enumerate(
                zip(self.tokens, self.types, strict=True)
            )
            if kind != TokenType.UNUSED or token != f"[PAD{number}]"
        }

    def text(self, number: int | None) -> str | None:
        """Returns a token's text, or None for None."""
        return None if number is None else self.tokens[number]


def read_vocabulary(file: GGUFFile) -> Vocabulary:
    """Returns the tokenizer of a GGUF file. Raises ConfigError if it lacks one."""
    metadata = {
        key.removeprefix(_PREFIX): value
        for key, value in file.metadata.items()
        if key.startswith(_PREFIX)
    }
    for key in ("model", "tokens", "token_type", "eos_token_id"):
        if key not in metadata:
            raise ConfigError(f"{file.path} lacks the setting {_PREFIX}{key}")
    tokens, types = metadata["tokens"], metadata["token_type"]
    if len(tokens) != len(types):
        raise ConfigError(
            f"{file.path} is damaged: it has {len(tokens)} tokens, but "
            f"{len(types)} token types"
        )
    most_common = collections.Counter(tokens).most_common(1)
    if most_common and most_common[0][1] > 1:
        raise ConfigError(f"{file.path}: token {most_common[0][0]!r} occurs twice")

    def take_id(key: str) -> int | None:
        number = metadata.get(key)
        if number is not None and not 0 <= number < len(tokens):
            raise ConfigError(
                f"{file.path}: {_PREFIX}{key}={number} is not one of its {len(tokens)} "
                "tokens"
            )
        return number

    ends = [number for key in _ENDS if (number := take_id(key)) is not None]
    return Vocabulary(
        path=file.path,
        metadata=metadata,
        tokens=tokens,
        types=types,
        bos=take_id("bos_token_id"),
        pad=take_id("padding_token_id"),
        unknown=take_id("unknown_token_id"),
        ends=tuple(dict.fromkeys(ends)),
    )
