"""Token classes: every id has one class, decided by its text."""

import pytest

from rlvr_jax.tasks.finite_field.source import vocabulary
from rlvr_jax.tokenizer import SentencePieceTokenizer, WordLevelTokenizer
from rlvr_jax.tokenizer.classes import token_classes
from rlvr_jax.types import TOKEN_CLASSES


def _named(tokenizer):
    """Returns the class name of each id."""
    return [TOKEN_CLASSES[index] for index in token_classes(tokenizer)]


def test_the_words_of_the_finite_field_world():
    tokenizer = WordLevelTokenizer(vocabulary(7))
    names = _named(tokenizer)
    assert len(names) == tokenizer.vocab_size
    expected = {
        "number": [f"e{i}" for i in range(7)],
        "operator": ["+", "-", "*", "/", "="],
        "separator": [":", ";", "?", "!"],
        "reasoning": ["forward", "backward", "then"],
        "answer": ["answer"],
        "word": ["a", "k", "z", "evaluate", "invert", "compose", "map"],
        "end": ["<eos>"],
        "other": ["<pad>"],
    }
    assert expected.keys() == set(names)
    for name, words in expected.items():
        found = {word: names[vocabulary(7).index(word)] for word in words}
        assert set(found.values()) == {name}, found


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    texts = ["So wait, then 12 + 3 = 15 apples.\nThe answer is 15.\n#### 15"] * 4
    path = tmp_path_factory.mktemp("pieces") / "tokenizer.model"
    return SentencePieceTokenizer.train(texts, vocab_size=310, path=path)


def test_the_pieces_of_a_text(pieces):
    names = _named(pieces)
    assert len(names) == pieces.vocab_size
    assert names[pieces.eos_id] == "end"
    found = {}
    for token, name in enumerate(names):
        found.setdefault(pieces.decode([token]).strip().lower(), set()).add(name)
    assert found["answer"] == {"answer"}
    assert found["then"] == {"reasoning"}
    assert found["is"] == {"word"}
    for text, expected in (
        ("1", "number"),
        ("+", "operator"),
        ("=", "operator"),
        (",", "separator"),
    ):
        assert found[text] == {expected}, text
    # Padding and unknown tokens have no text, and most single bytes are not text.
    assert "other" in found[""]
    assert found["\ufffd"] == {"other"}
