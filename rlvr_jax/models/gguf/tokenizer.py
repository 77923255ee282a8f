"""The vocabulary of a GGUF file -> tokenizer.json and tokenizer_config.json.

Two kinds are read. `gpt2` is byte-level: the file has the merges, and the name of the
rule that cuts a text into words. `llama` is sentencepiece: the file has a score for
each token, and the merges follow from them.
"""

from collections.abc import Mapping
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.models.gguf.pre_tokenizers import find_pre_tokenizer
from rlvr_jax.models.gguf.vocabulary import TokenType, Vocabulary

_SPACE_MARK = "\u2581"  # sentencepiece writes a space as this character
# Settings of sentencepiece that change the ids when they are on, and are not supported.
_MUST_BE_OFF = ("remove_extra_whitespaces", "precompiled_charsmap")
_SPECIAL = (TokenType.UNKNOWN, TokenType.CONTROL)


def tokenizer_json(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns tokenizer.json. Raises ConfigError on an unsupported tokenizer."""
    kind = vocabulary.metadata["model"]
    if kind == "gpt2":
        return _byte_level(vocabulary)
    if kind == "llama":
        return _sentencepiece(vocabulary)
    raise ConfigError(
        f"{vocabulary.path}: tokenizer.ggml.model={kind!r} is not supported; gpt2 "
        "(byte-level) and llama (sentencepiece) are"
    )


def tokenizer_config(
    vocabulary: Vocabulary, templates: Mapping[str, str], *, max_length: int
) -> dict[str, Any]:
    """Returns tokenizer_config.json, with the chat templates by their name."""
    end, *_ = vocabulary.ends
    roles = {
        "bos_token": vocabulary.text(vocabulary.bos),
        "eos_token": vocabulary.text(end),
        "pad_token": vocabulary.text(vocabulary.pad),
        "unk_token": vocabulary.text(vocabulary.unknown),
    }
    settings = {name: text for name, text in roles.items() if text is not None} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        "add_bos_token": _adds_bos(vocabulary),
    }
    if list(templates) == ["default"]:
        settings["chat_template"] = templates["default"]
    elif templates:
        settings["chat_template"] = [
            {"name": name, "template": text} for name, text in templates.items()
        ]
    return settings


def _byte_level(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns tokenizer.json of a byte-level tokenizer."""
    name = vocabulary.metadata.get("pre")
    rules = find_pre_tokenizer(name, where=str(vocabulary.path))
    ids = vocabulary.ids()
    merges = [merge.split(" ") for merge in vocabulary.metadata.get("merges", [])]
    for merge in merges:
        if len(merge) != 2 or not {*merge, "".join(merge)} <= ids.keys():
            raise ConfigError(
                f"{vocabulary.path} is damaged: the merge {' '.join(merge)!r} is not "
                "made of its tokens"
            )
    return _assemble(
        vocabulary,
        normalizer=rules.normalizer,
        pre_tokenizer=rules.to_json(),
        decoder=_BYTE_LEVEL_DECODER,
        added=vocabulary.of_type(TokenType.USER_DEFINED),
        model={"ignore_merges": rules.ignore_merges, "vocab": ids, "merges": merges},
    )


_BYTE_LEVEL_DECODER = {
    "type": "ByteLevel",
    "add_prefix_space": True,
    "trim_offsets": True,
    "use_regex": True,
}


def _sentencepiece(vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns tokenizer.json of a sentencepiece tokenizer (its byte-pair kind)."""
    for key in _MUST_BE_OFF:
        if vocabulary.metadata.get(key):
            raise ConfigError(
                f"{vocabulary.path}: tokenizer.ggml.{key} is on, which is not supported"
            )
    has_prefix = vocabulary.metadata.get("add_space_prefix", True)
    # llama.cpp spells user-defined tokens with spaces, all others with marks.
    ids = {_with_marks(token): number for token, number in vocabulary.ids().items()}
    prefix = [{"type": "Prepend", "prepend": _SPACE_MARK}] if has_prefix else []
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return _assemble(
        vocabulary,
        normalizer={
            "type": "Sequence",
            "normalizers": [*prefix, _replace(" ", _SPACE_MARK)],
        },
        pre_tokenizer=None,
        decoder={
            "type": "Sequence",
            "decoders": [
                _replace(_SPACE_MARK, " "),
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *(strip if has_prefix else []),
            ],
        },
        added={
            token: number
            for token, number in vocabulary.of_type(TokenType.USER_DEFINED).items()
            if " " not in token
        },
        model={
            "unk_token": vocabulary.text(vocabulary.unknown)
            or next(iter(vocabulary.of_type(TokenType.UNKNOWN)), None),
            "fuse_unk": True,
            "byte_fallback": bool(vocabulary.of_type(TokenType.BYTE)),
            "vocab": ids,
            "merges": _sentencepiece_merges(vocabulary, ids),
        },
    )


def _sentencepiece_merges(
    vocabulary: Vocabulary, ids: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Returns the pairs of tokens that make a token, best score first.

    User-defined tokens come before all others, because sentencepiece never splits them.
    The ones with a space take part in merges, since their spaces are marks by then.
    """
    scores = vocabulary.metadata.get("scores")
    if scores is None or len(scores) != len(vocabulary.tokens):
        raise ConfigError(f"{vocabulary.path} lacks a score for each of its tokens")
    defined = vocabulary.of_type(TokenType.USER_DEFINED)
    normal = vocabulary.of_type(TokenType.NORMAL)
    ordered = [_with_marks(token) for token in defined if " " in token]
    ordered += sorted(normal, key=lambda token: (-scores[ids[token]], ids[token]))
    merges = []
    for token in ordered:
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        known = [(a, b) for a, b in pairs if a in ids and b in ids]
        merges += sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def _with_marks(token: str) -> str:
    return token.replace(" ", _SPACE_MARK)


def _replace(old: str, new: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def _assemble(
    vocabulary: Vocabulary,
    *,
    added: Mapping[str, int],
    model: dict[str, Any],
    **parts: object,
) -> dict[str, Any]:
    """Returns tokenizer.json of these parts; `added` tokens are not special."""
    special = vocabulary.of_type(*_SPECIAL)
    tokens = [(number, text, True) for text, number in special.items()]
    tokens += [(number, text, False) for text, number in added.items()]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(number, text, is_special=is_special)
            for number, text, is_special in sorted(tokens)
        ],
        **parts,
        "post_processor": _post_processor(vocabulary),
        "model": {"type": "BPE", "dropout": None, "unk_token": None} | model,
    }


def added_token(number: int, text: str, *, is_special: bool) -> dict[str, Any]:
    """Returns a token for `added_tokens` in tokenizer.json, found as written."""
    return {
        "id": number,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": is_special,
    }


def _adds_bos(vocabulary: Vocabulary) -> bool:
    """Returns whether texts begin with the beginning-of-sequence token."""
    default = vocabulary.metadata["model"] == "llama"
    if vocabulary.metadata["model"] == "gpt2":
        name = vocabulary.metadata.get("pre")
        default = find_pre_tokenizer(name, where=str(vocabulary.path)).add_bos
    adds = vocabulary.metadata.get("add_bos_token", default)
    return bool(adds) and vocabulary.bos is not None


def _post_processor(vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Returns the step that puts bos before a text, and eos after it."""
    before = [vocabulary.bos] if _adds_bos(vocabulary) else []
    behind = [vocabulary.ends[0]] if vocabulary.metadata.get("add_eos_token") else []
    if not before and not behind:
        return None

    def around(sequence: str, type_id: int) -> list[dict[str, Any]]:
        def special(numbers: list[Any]) -> list[dict[str, Any]]:
            return [
                {"SpecialToken": {"id": vocabulary.tokens[n], "type_id": type_id}}
                for n in numbers
            ]

        inner = [{"Sequence": {"id": sequence, "type_id": type_id}}]
        return [*special(before), *inner, *special(behind)]

    tokens = {n: vocabulary.tokens[n] for n in (*before, *behind) if n is not None}
    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": [*around("A", 0), *around("B", 1)],
        "special_tokens": {
            text: {"id": text, "ids": [number], "tokens": [text]}
            for number, text in tokens.items()
        },
    }
