"""Text to token ids and back."""

from rlvr_jax.tokenizer.base import PAD_ID, Tokenizer, pad_rows
from rlvr_jax.tokenizer.huggingface import HuggingFaceTokenizer, chat_template
from rlvr_jax.tokenizer.opened import open_tokenizer, tokenizer_directory
from rlvr_jax.tokenizer.pieces import SentencePieceTokenizer
from rlvr_jax.tokenizer.stops import kept_length
from rlvr_jax.tokenizer.symbols import SymbolTokenizer

__all__ = [
    "PAD_ID",
    "HuggingFaceTokenizer",
    "SentencePieceTokenizer",
    "SymbolTokenizer",
    "Tokenizer",
    "chat_template",
    "kept_length",
    "open_tokenizer",
    "pad_rows",
    "tokenizer_directory",
]
