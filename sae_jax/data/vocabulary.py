"""The text of each token id, from a file or the activations, or else the id itself."""

import json
from collections.abc import Sequence
from pathlib import Path

from sae_jax.data.shard_index import ShardError
from sae_jax.data.shards import ActivationShards
from sae_jax.data.views import JoinedShards

_SIGNS = {" ": "\u2423", "\n": "\u21b5", "\t": "\u2192", "\r": "\u240d"}
WHITESPACE_NOTE = (
    "Tokens that are only white space are shown as symbols: \u2423 a space, \u21b5 a "
    "line break, \u2192 a tab."
)


def read_vocabulary(
    path: str | None, shards: ActivationShards | JoinedShards
) -> list[str]:
    """Returns the text of each token id of the activations.

    The file is a JSON object token -> id, or a `tokenizer.json` that contains one.
    Raises ShardError if it is neither.
    """
    if not path and shards.index.vocabulary:
        return list(shards.index.vocabulary)
    if not path:
        return [str(i) for i in range(int(shards.column("token_id").max()) + 1)]
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        tokens = content.get("model", {}).get("vocab", content) if content else {}
        texts = [""] * (max(tokens.values()) + 1)
        for text, i in tokens.items():
            texts[i] = text
    except (AttributeError, OSError, TypeError, ValueError, RecursionError) as error:
        raise ShardError(
            f"{path}: not a JSON object from tokens to their ids ({error})"
        ) from error
    return texts


def token_separator(vocabulary: Sequence[str]) -> str:
    """Returns the separator between tokens: empty if tokens contain their spaces.

    >>> token_separator(["the", "end"]), token_separator(["the", " end"])
    (' ', '')
    """
    return "" if any(text[:1].isspace() for text in vocabulary) else " "


def show_whitespace(text: str) -> str:
    r"""Returns a visible token: symbols if it is only white space.

    >>> show_whitespace(" \n"), show_whitespace(" the")
    ('\u2423\u21b5', ' the')
    """
    if not text.isspace():
        return text
    return "".join(_SIGNS.get(char, f"<U+{ord(char):04X}>") for char in text)
