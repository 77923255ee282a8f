"""The tokenizer that a config asks for."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from job_jax.processes import is_primary, wait_for_all
from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.tokenizer.base import Tokenizer
from rlvr_jax.tokenizer.huggingface import HuggingFaceTokenizer
from rlvr_jax.tokenizer.pieces import SentencePieceTokenizer
from rlvr_jax.tokenizer.symbols import SymbolTokenizer


def tokenizer_directory(config: Config) -> Path:
    """Returns where a Hugging Face tokenizer lies: of its own, or with the weights."""
    return Path(config.tokenizer.path or config.pretrained.path)


def open_tokenizer(
    config: Config,
    *,
    words: Sequence[str],
    texts: Callable[[], Iterable[str]],
    learnt_path: Path,
) -> Tokenizer:
    """Returns the tokenizer. Raises ConfigError.

    `words` are the finite-field world's. One that has to be learnt is read from
    `learnt_path`, or else learnt from `texts` and written there.
    """
    asked, task = config.tokenizer, config.task
    if asked.kind == "symbols":
        return SymbolTokenizer(words, stop=asked.stop)
    if asked.kind == "huggingface":
        templated = task.kind != "finite_field" and task.record.chat_template != ""
        return HuggingFaceTokenizer(
            tokenizer_directory(config), stop=asked.stop, templated=templated
        )
    if asked.learnt and is_primary() and not learnt_path.exists():
        SentencePieceTokenizer.train(
            texts(), vocab_size=asked.vocab_size, path=learnt_path
        )
    wait_for_all()
    path = learnt_path if asked.learnt else Path(asked.path)
    if not path.is_file():
        raise ConfigError(f"tokenizer.path={asked.path!r} is no file; give a .model")
    return SentencePieceTokenizer(path, stop=asked.stop)
