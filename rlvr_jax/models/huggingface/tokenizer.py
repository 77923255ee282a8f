"""A run's own tokenizer -> files that `transformers.AutoTokenizer` opens."""

import json
import shutil
from pathlib import Path
from typing import Any

from rlvr_jax.models.gguf.tokenizer import (
    added_token,
    tokenizer_config,
    tokenizer_json,
)
from rlvr_jax.models.gguf.vocabulary import TokenType, Vocabulary
from rlvr_jax.models.huggingface.save import TOKENIZER_FILES
from rlvr_jax.tokenizer import (
    PAD_ID,
    HuggingFaceTokenizer,
    SentencePieceTokenizer,
    Tokenizer,
    WordLevelTokenizer,
)
from rlvr_jax.tokenizer.huggingface import SETTINGS, TEMPLATE, TOKENIZER

# A converted sentencepiece model must give the same ids for it.
_PROBE = (
    "A  b\n\n\tc 12,345 = x_1\u00b2 \u00e9 \ufb01 \uff21 \u2026 \u201cq\u201d "
    "\u6570 \U0001f642 ."
)


def save_tokenizer(
    tokenizer: Tokenizer, directory: Path, *, chat_template: str = ""
) -> list[str]:
    """Writes the tokenizer's files into a directory, and returns their names.

    A Hugging Face tokenizer is copied, with `chat_template` (Jinja) instead of its own
    unless it is "". A closed vocabulary is converted, and so is a sentencepiece model
    that a run trained; both give the same ids, except that the character U+2581 becomes
    a space. Another sentencepiece model is copied as tokenizer.model.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if isinstance(tokenizer, HuggingFaceTokenizer):
        return _copy(tokenizer.directory, directory, chat_template)
    if isinstance(tokenizer, WordLevelTokenizer):
        contents = _convert_words(tokenizer)
    elif isinstance(tokenizer, SentencePieceTokenizer):
        contents = _convert_pieces(tokenizer)
        if not _agree(contents[TOKENIZER], tokenizer):
            shutil.copyfile(tokenizer.path, directory / "tokenizer.model")
            return ["tokenizer.model"]
    else:
        return []
    if chat_template:
        contents[SETTINGS]["chat_template"] = chat_template
    for name, content in contents.items():
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (directory / name).write_text(text + "\n", encoding="utf-8")
    return list(contents)


def _copy(source: Path, directory: Path, chat_template: str) -> list[str]:
    names = [name for name in TOKENIZER_FILES if (source / name).is_file()]
    for name in names:
        shutil.copyfile(source / name, directory / name)
    if chat_template:
        (directory / TEMPLATE).write_text(chat_template, encoding="utf-8")
        names.append(TEMPLATE)
    return names


def _convert_words(tokenizer: WordLevelTokenizer) -> dict[str, dict[str, Any]]:
    words = tokenizer.words
    special = {PAD_ID: words[PAD_ID], tokenizer.eos_id: words[tokenizer.eos_id]}
    return {
        TOKENIZER: {
            "version": "1.0",
            "added_tokens": [
                added_token(number, text, is_special=True)
                for number, text in sorted(special.items())
            ],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {
                "type": "WordLevel",
                "vocab": {word: number for number, word in enumerate(words)},
                # No word for unknown ones: they are an error, as in our tokenizer.
                "unk_token": "",
            },
        },
        SETTINGS: {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "pad_token": words[PAD_ID],
            "eos_token": words[tokenizer.eos_id],
        },
    }


def _convert_pieces(tokenizer: SentencePieceTokenizer) -> dict[str, dict[str, Any]]:
    pieces = tokenizer.pieces()
    types = [_type_of(tokenizer, i) for i in range(len(pieces))]
    vocabulary = Vocabulary(
        path=tokenizer.path,
        metadata={
            "model": "llama",
            "scores": [score for _, score in pieces],
            "add_space_prefix": False,
            "add_bos_token": False,
        },
        tokens=[piece for piece, _ in pieces],
        types=types,
        bos=None,
        pad=PAD_ID,
        unknown=types.index(TokenType.UNKNOWN),
        ends=(tokenizer.eos_id,),
    )
    settings = tokenizer_config(vocabulary, {}, max_length=10**9)
    del settings["model_max_length"]
    return {TOKENIZER: tokenizer_json(vocabulary), SETTINGS: settings}


def _type_of(tokenizer: SentencePieceTokenizer, token: int) -> TokenType:
    if tokenizer.is_control(token):
        return TokenType.CONTROL
    if tokenizer.is_unknown(token):
        return TokenType.UNKNOWN
    return TokenType.BYTE if tokenizer.is_byte(token) else TokenType.NORMAL


def _agree(content: dict[str, Any], tokenizer: SentencePieceTokenizer) -> bool:
    """Returns whether a converted tokenizer has the ids of the original."""
    import tokenizers  # noqa: PLC0415 - slow to import, only needed here

    converted = tokenizers.Tokenizer.from_str(json.dumps(content))
    return converted.encode(_PROBE).ids == tokenizer.encode(_PROBE)
