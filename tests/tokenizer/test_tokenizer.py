"""Text to ids and back, without loss."""

import random
import re
from pathlib import Path

import pytest

from job_jax.files import DamagedFileError
from job_jax.schema import ConfigError
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.files import load_file_source
from rlvr_jax.tokenizer import PAD_ID, SentencePieceTokenizer

GSM8K = Path(__file__).parents[1] / "problems" / "gsm8k.jsonl"
TEXTS = ["She sold 48/2 = 24 clips.\nIn all 72.\n#### 72", "How many clips in all?"] * 3


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> SentencePieceTokenizer:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.model"
    return SentencePieceTokenizer.train(TEXTS, vocab_size=300, path=path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n",
        "  two  and   three spaces ",
        "a\n\n b\r\n\tc\n",
        "#### 72",
        "caf\u00e9 cafe\u0301 \u65e5\u672c\u8a9e \U0001f600 \u2028\u00a0\ufeff\ufffd",
        "\u2581",
        "a \u2581\u2581 \u2581b",
        "\x00\x01\x7f",
        "</s><pad><unk><0x41>",
    ],
)
def test_any_text_comes_back_unchanged(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_text_never_encodes_to_special_ids(tokenizer):
    ids = tokenizer.encode("</s><pad><unk> \u65e5 \x00")
    assert {PAD_ID, tokenizer.eos_id}.isdisjoint(ids)
    assert max(ids) < tokenizer.vocab_size == 300


def test_special_ids_leave_no_text(tokenizer):
    ids = tokenizer.encode("72")
    assert tokenizer.decode([PAD_ID, *ids, tokenizer.eos_id, PAD_ID]) == "72"


def test_half_a_character_reads_as_the_replacement_character(tokenizer):
    assert tokenizer.decode(tokenizer.encode("\u00e9")[:1]) == "\ufffd"


def test_every_digit_is_a_token(tokenizer):
    [seven, two] = tokenizer.encode("72")
    assert tokenizer.encode("2727") == [two, seven, two, seven]


def test_the_same_texts_give_the_same_file(tmp_path, tokenizer):
    for name in ("one", "two"):
        SentencePieceTokenizer.train(TEXTS, vocab_size=300, path=tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    loaded = SentencePieceTokenizer(tmp_path / "one")
    assert loaded.encode(TEXTS[0]) == tokenizer.encode(TEXTS[0])


@pytest.mark.parametrize(("vocab_size", "mend"), [(5000, "lower"), (100, "raise")])
def test_a_vocabulary_that_does_not_fit_is_refused_with_one_that_does(
    tmp_path, vocab_size, mend
):
    path = tmp_path / "tokenizer.model"
    with pytest.raises(
        ConfigError, match=f"vocab_size={vocab_size} .*{mend} it"
    ) as info:
        SentencePieceTokenizer.train(TEXTS, vocab_size=vocab_size, path=path)
    assert not path.exists()
    advised = int(re.findall(r"(?:to|at least) (\d+)", str(info.value))[-1])
    trained = SentencePieceTokenizer.train(TEXTS, vocab_size=advised, path=path)
    assert trained.vocab_size == advised


def test_no_text_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no text to train the tokenizer on"):
        SentencePieceTokenizer.train(["", "\n"], vocab_size=300, path=tmp_path / "t")


def test_gsm8k_fits_512_pieces_and_comes_back_unchanged(tmp_path):
    solutions = [p.solution or "" for p in load_file_source(RecordConfig(), GSM8K)]
    tokenizer = SentencePieceTokenizer.train(
        solutions, vocab_size=512, path=tmp_path / "tokenizer.model"
    )
    ids = [tokenizer.encode(text) for text in solutions]
    assert [tokenizer.decode(row) for row in ids] == solutions
    # Tokens are pieces, not bytes: fewer than two thirds as many as characters.
    assert sum(map(len, ids)) < sum(map(len, solutions)) * 2 / 3


def test_200_flipped_bits_of_a_trained_model_are_200_found(tmp_path):
    path = tmp_path / "tokenizer.model"
    SentencePieceTokenizer.train(TEXTS, vocab_size=300, path=path)
    content = path.read_bytes()
    for bit in random.Random(0).sample(range(8 * len(content)), 200):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        with pytest.raises(DamagedFileError, match=r"tokenizer\.model is damaged"):
            SentencePieceTokenizer(path)
