"""Opens the tokenizer that a config names."""

from collections.abc import Callable, Iterable
from pathlib import Path

from job_jax.processes import barrier, is_primary
from job_jax.schema import ConfigError
from rlvr_jax.config import Config
from rlvr_jax.tokenizer.base import Tokenizer
from rlvr_jax.tokenizer.huggingface import HuggingFaceTokenizer
from rlvr_jax.tokenizer.sentencepiece import SentencePieceTokenizer
from rlvr_jax.tokenizer.word_level import WordLevelTokenizer


def tokenizer_directory(config: Config) -> Path:
    """Returns the directory of the Hugging Face tokenizer: its own, or the weights'."""
    return Path(config.tokenizer.path or config.pretrained.path)


def open_tokenizer(
    config: Config,
    *,
    texts: Callable[[], Iterable[str]],
    trained_path: Path,
    share: Callable[[], None] = barrier,
) -> Tokenizer:
    """Returns the tokenizer that `config.tokenizer` names. Raises ConfigError.

    A tokenizer that the run trains itself is trained on `texts` and written to
    `trained_path`, unless it is already there; `share` returns once every process sees
    the first one's files.
    """
    settings, task = config.tokenizer, config.task
    if settings.kind == "word_level":
        words = (*task.vocabulary(), *config.environment.vocabulary())
        return WordLevelTokenizer(
            tuple(dict.fromkeys(words)), stop=settings.stop_strings
        )
    if settings.kind == "huggingface":
        return HuggingFaceTokenizer(
            tokenizer_directory(config),
            stop=settings.stop_strings,
            has_chat_template=task.applies_chat_template,
            template="" if task.needs_tokenizer_template else task.template_text,
        )
    if settings.trained_in_run and is_primary() and not trained_path.exists():
        SentencePieceTokenizer.train(
            texts(), vocab_size=settings.vocab_size, path=trained_path
        )
    share()
    path = trained_path if settings.trained_in_run else Path(settings.path)
    if not path.is_file():
        raise ConfigError(
            f"tokenizer.path={settings.path!r} is not a file; give a .model"
        )
    return SentencePieceTokenizer(path, stop=settings.stop_strings)
