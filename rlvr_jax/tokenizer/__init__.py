"""Text to token ids and back."""

from rlvr_jax.tokenizer.base import (
    PAD_ID,
    Spans,
    Tokenizer,
    UnknownWordError,
    pad_mask,
    pad_rows,
)
from rlvr_jax.tokenizer.factory import open_tokenizer, tokenizer_directory
from rlvr_jax.tokenizer.huggingface import (
    HuggingFaceTokenizer,
    chat_template,
    has_chat_template,
    sampling_defaults,
)
from rlvr_jax.tokenizer.literal_text import (
    LiteralTextError,
    whole_text,
    write_literal,
)
from rlvr_jax.tokenizer.sentencepiece import SentencePieceTokenizer
from rlvr_jax.tokenizer.stops import stop_length, truncate_at_stop
from rlvr_jax.tokenizer.word_level import WordLevelTokenizer

__all__ = [
    "PAD_ID",
    "HuggingFaceTokenizer",
    "LiteralTextError",
    "SentencePieceTokenizer",
    "Spans",
    "Tokenizer",
    "UnknownWordError",
    "WordLevelTokenizer",
    "chat_template",
    "has_chat_template",
    "open_tokenizer",
    "pad_mask",
    "pad_rows",
    "sampling_defaults",
    "stop_length",
    "tokenizer_directory",
    "truncate_at_stop",
    "whole_text",
    "write_literal",
]
