"""How each byte-level tokenizer cuts a text before its merges: `tokenizer.ggml.pre`.

A GGUF file holds only the name. The rules are the ones in the tokenizer.json of the
models that use them.
"""

import dataclasses
from typing import Any

from job_jax.schema import ConfigError

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreTokenizer:
    """How a text is cut before merges, and the settings that come with it.

    Args:
        steps: tokenizer.json's pre-tokenizers before the one for bytes.
        byte_level_words: bytes are also cut into words by GPT-2's rule.
        ignore_merges: a word that is a token is not built from its merges.
        add_bos: whether texts begin with the beginning-of-sequence token, if the file
            does not say.
        normalizer: tokenizer.json's normalizer.
    """

    steps: tuple[dict[str, Any], ...] = ()
    byte_level_words: bool = False
    ignore_merges: bool = False
    add_bos: bool = False
    normalizer: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns `pre_tokenizer` of tokenizer.json."""
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": self.byte_level_words,
        }
        return {"type": "Sequence", "pretokenizers": [*self.steps, byte_level]}


def _split(regex: str) -> dict[str, Any]:
    return {
        "type": "Split",
        "pattern": {"Regex": regex},
        "behavior": "Isolated",
        "invert": False,
    }


_DIGITS = {"type": "Digits", "individual_digits": True}
_GPT2 = PreTokenizer(byte_level_words=True)
_SMOLLM = PreTokenizer(steps=(_DIGITS,), byte_level_words=True)
_LLAMA3 = PreTokenizer(
    steps=(_split(_WORDS % r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True
)
_QWEN2 = PreTokenizer(steps=(_split(_WORDS % r"\p{N}"),), normalizer={"type": "NFC"})

_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "smollm": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": PreTokenizer(steps=(_split(_TEKKEN),), ignore_merges=True, add_bos=True),
}


def find_pre_tokenizer(name: str | None, *, where: str) -> PreTokenizer:
    """Returns the pre-tokenizer of this name. Raises ConfigError on an unknown one."""
    found = _PRE_TOKENIZERS.get(name or "")
    if found is None:
        raise ConfigError(
            f"{where}: tokenizer.ggml.pre={name!r} is not supported; "
            f"{', '.join(_PRE_TOKENIZERS)} are"
        )
    return found
