"""A sentencepiece tokenizer, read from a file or trained on texts."""

import io
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece

from job_jax.files import check_digest, write_with_digest
from job_jax.schema import ConfigError
from rlvr_jax.tokenizer.base import PAD_ID, Spans

# sentencepiece writes a space as this character, and would decode it as a space even if
# the text itself contains it. This character is therefore encoded as bytes.
_SPACE_MARK = "\u2581"
_EOS_ID, _UNKNOWN_ID = 1, 2  # of models learned here


class SentencePieceTokenizer:
    """A sentencepiece model.

    A model that was trained here restores any text unchanged from its ids, line ends
    and runs of spaces included, and every digit is a separate token. A model from
    elsewhere may put a space before texts and a beginning-of-sequence token before
    prompts.
    """

    def __init__(self, path: str | os.PathLike[str], *, stop: tuple[str, ...] = ()):
        """Raises ConfigError if the file is not a model or lacks an end-of-sequence.

        Raises DamagedFileError if it was trained here and has changed since.
        """
        check_digest(path)
        self.path = Path(path)
        try:
            self._processor = sentencepiece.SentencePieceProcessor(
                model_proto=Path(path).read_bytes()
            )
        except RuntimeError as error:
            raise ConfigError(f"{path} is not a sentencepiece model") from error
        self.vocab_size: int = self._processor.vocab_size()
        self.eos_id: int = self._processor.eos_id()
        if self.eos_id < 0:
            raise ConfigError(
                f"{path} has no end-of-sequence piece; give another model"
            )
        self.eos_ids = (self.eos_id,)
        self.stop_strings = stop
        self._prompt_prefix = [bos] if (bos := self._processor.bos_id()) >= 0 else []
        bytes_ = [f"<0x{byte:02X}>" for byte in _SPACE_MARK.encode()]
        self._space_mark_ids = [self._processor.piece_to_id(byte) for byte in bytes_]
        first = self._processor.encode("a", out_type=str)[0]
        if (
            first.startswith(_SPACE_MARK)
            or self._processor.unk_id() in self._space_mark_ids
        ):
            self._space_mark_ids = []

    @classmethod
    def train(
        cls, texts: Iterable[str], *, vocab_size: int, path: str | os.PathLike[str]
    ) -> "SentencePieceTokenizer":
        """Returns a byte-pair tokenizer trained on `texts`, which is written to `path`.

        The same texts in the same order give the same file (it trains in one thread:
        half a second for the 7,473 solutions of GSM8K at 512 pieces). Raises
        ConfigError if the texts cannot give `vocab_size` pieces.
        """
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(
                    line for t in texts for line in t.split("\n") if line
                ),
                model_writer=model,
                vocab_size=vocab_size,
                model_type="bpe",
                byte_fallback=True,
                split_digits=True,
                user_defined_symbols=["\n"],
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                add_dummy_prefix=False,
                shuffle_input_sentence=False,
                max_sentence_length=1 << 20,  # bytes; a longer line would be left out
                num_threads=1,
                minloglevel=2,  # errors only
                pad_id=PAD_ID,
                eos_id=_EOS_ID,
                unk_id=_UNKNOWN_ID,
                bos_id=-1,
            )
        except RuntimeError as error:
            raise ConfigError(_training_hint(str(error), vocab_size)) from error
        with write_with_digest(path) as partial:
            partial.write_bytes(model.getvalue())
        return cls(path)

    def pieces(self) -> list[tuple[str, float]]:
        """Returns the text and the score of each id; the best pairs merge first."""
        processor = self._processor
        return [
            (processor.id_to_piece(i), processor.get_score(i))
            for i in range(self.vocab_size)
        ]

    def is_control(self, token: int) -> bool:
        """Returns whether a piece is never part of a text, such as </s>."""
        return self._processor.is_control(token)

    def is_unknown(self, token: int) -> bool:
        """Returns whether a piece is for texts that no piece spells."""
        return self._processor.is_unknown(token)

    def is_byte(self, token: int) -> bool:
        """Returns whether a piece is one byte of a character that has no piece."""
        return self._processor.is_byte(token)

    def encode(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text`; control pieces are never recognized in a text."""
        if not self._space_mark_ids:
            return self._processor.encode(text)
        first, *rest = self._processor.encode(text.split(_SPACE_MARK))
        for ids in rest:
            first += [*self._space_mark_ids, *ids]
        return first

    def encode_prompt(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text` after the beginning-of-sequence piece, if any."""
        return [*self._prompt_prefix, *self.encode(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        return self._processor.decode(
            [int(i) for i in ids if not self._is_special(int(i))]
        )

    def show(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`, special pieces spelled out, such as </s>."""
        texts: list[str] = []
        plain: list[int] = []
        for token in map(int, ids):
            if self._is_special(token):
                texts += [self.decode(plain), self._processor.id_to_piece(token)]
                plain = []
            else:
                plain.append(token)
        return "".join([*texts, self.decode(plain)])

    def _is_special(self, token: int) -> bool:
        return self.is_control(token) or self.is_unknown(token)


def _training_hint(error: str, vocab_size: int) -> str:
    """Returns how to fix an error of sentencepiece's trainer."""
    setting = f"tokenizer.vocab_size={vocab_size}"
    if limit := re.search(r"set it to a value <= (\d+)", error):
        return (
            f"{setting} is more than the training texts have pieces for; "
            f"lower it to {limit[1]} or give more text"
        )
    if limit := re.search(r"\d+ vs (\d+)", error):
        return (
            f"{setting} is too small for the 256 bytes and the characters of the "
            f"training texts; raise it to at least {limit[1]}"
        )
    if "sentences_.empty()" in error:
        return "no text to train the tokenizer on; check task.train_path"
    return f"{setting}: sentencepiece could not train: {error}"
