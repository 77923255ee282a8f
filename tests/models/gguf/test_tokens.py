"""Ids from converted tokenizers, compared with llama.cpp's and sentencepiece's."""

import hashlib
import json
import pathlib
import random

import pytest

from rlvr_jax.models.gguf.reader import read_gguf
from rlvr_jax.models.gguf.tokenizer import tokenizer_config, tokenizer_json
from rlvr_jax.models.gguf.vocabulary import read_vocabulary
from rlvr_jax.tokenizer import HuggingFaceTokenizer
from tests.golden.gguf_models import write_gguf
from tests.golden.gguf_tokens import (
    GOLDEN,
    add_byte_level,
    add_sentencepiece,
    pieces_of,
    train_sentencepiece,
)

_ROOT = pathlib.Path(__file__).parents[3]
_SMOLLM2 = _ROOT / "models/SmolLM2-135M-Instruct"
_GSM8K = _ROOT.parent / "shared/data/gsm8k/test.jsonl"


def _tokenizer(folder: pathlib.Path, tokens: dict, **changes) -> HuggingFaceTokenizer:
    path = write_gguf(folder / "model.gguf", "llama", tokens=tokens, **changes)
    vocabulary = read_vocabulary(read_gguf(path))
    config = tokenizer_config(vocabulary, {}, max_length=64)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json(vocabulary)))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return HuggingFaceTokenizer(folder)


@pytest.mark.parametrize("name", GOLDEN["ids"])
def test_ids_equal_llama_cpps(name, tmp_path):
    """One exception: Qwen composes accents first, and llama.cpp does not."""
    is_sentencepiece = name in GOLDEN["pieces"]
    tokens = add_sentencepiece(name) if is_sentencepiece else add_byte_level(name)
    tokenizer = _tokenizer(tmp_path, tokens)
    expected = dict(zip(GOLDEN["texts"], GOLDEN["ids"][name], strict=True))
    if name == "qwen2":
        expected["cafe\u0301"] = expected["caf\u00e9"]
    assert {text: tokenizer.encode(text) for text in expected} == expected


def test_the_pre_tokenizers_differ_where_they_should():
    """Different ids show that each tokenizer follows its own rule."""
    ids = GOLDEN["ids"]
    names = ("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken")
    assert len({json.dumps(ids[name]) for name in names}) == len(names)


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_ids_equal_sentencepieces(kind, tmp_path):
    """Random texts have runs of spaces, user-defined tokens and unknown letters."""
    lines = ["a bc  abc  cab d", "ab <b> bcd   dd aab"] * 20
    theirs = train_sentencepiece(kind, lines, vocab_size=280)
    ours = _tokenizer(tmp_path, add_sentencepiece(kind, pieces=pieces_of(theirs)))
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choices("aabbcd e\n<>\u00e9", k=draw.randint(1, 30)))
        text = text.replace("<", "<b>").replace(">", "  ")
        text = text.replace("     ", " ")  # runs of up to four spaces are tokens
        assert ours.encode(text) == theirs.encode(text), text
        assert ours.decode(ours.encode(text)) == text


@pytest.mark.skipif(
    not (_SMOLLM2 / "tokenizer.json").is_file(),
    reason="needs models/SmolLM2-135M-Instruct: convert from-gguf makes it",
)
def test_ids_of_smollm2_equal_llama_cpps():
    """Compares the golden texts and the 1,319 test questions of GSM8K."""
    tokenizer = HuggingFaceTokenizer(_SMOLLM2)
    found = [tokenizer.encode(text) for text in GOLDEN["texts"]]
    assert found == GOLDEN["smollm2"]["ids"]
    if not _GSM8K.is_file():
        pytest.skip("needs ../shared/data/gsm8k/test.jsonl")
    records = map(json.loads, _GSM8K.read_text().splitlines())
    ids = [tokenizer.encode(record["question"]) for record in records]
    digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
    assert digest == GOLDEN["smollm2"]["gsm8k"]
