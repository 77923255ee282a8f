"""A class for every id of a vocabulary, from its text: number, operator, word ...

    number     digits; the symbols e0, e1 ... of the finite-field task
    operator   + - * / = < > and the like
    separator  other punctuation, spaces and line ends
    word       letters; the labels of steps in the finite-field task
    reasoning  words at which a trace turns: so, but, wait ...; forward and backward
    answer     words that announce the answer
    end        end-of-sequence
    other      padding, unknown tokens and single bytes that are not text

A piece of a word is classified by its own letters, so some pieces are mistaken for
words of these lists. The classes are ours.
"""

import re

import numpy as np
from jaxtyping import Int

from rlvr_jax.tokenizer import Tokenizer
from rlvr_jax.types import TOKEN_CLASSES, TokenClass

_NUMBER = re.compile(r"[0-9]+|e[0-9]+")
_OPERATOR = re.compile(
    r"[-+*/^<>=%\u00b1\u00b7\u00d7\u00f7\u2212\u221a\u2260\u2264\u2265]+"
)
_REASONING = frozenset(
    (
        "forward",
        "backward",
        "actually",
        "again",
        "alternatively",
        "but",
        "check",
        "hmm",
        "however",
        "instead",
        "maybe",
        "now",
        "perhaps",
        "recall",
        "verify",
        "wait",
        "assume",
        "because",
        "consider",
        "if",
        "let",
        "since",
        "suppose",
        "finally",
        "first",
        "hence",
        "next",
        "second",
        "so",
        "then",
        "therefore",
        "thus",
    )
)
_ANSWER = frozenset(("answer", "answers", "boxed", "result", "####", "##"))


def token_classes(tokenizer: Tokenizer) -> Int[np.ndarray, " V"]:
    """Returns the class of every id, as an index into `types.TOKEN_CLASSES`.

    Example:
        >>> from rlvr_jax.tokenizer import WordLevelTokenizer
        >>> tokenizer = WordLevelTokenizer(["<pad>", "<eos>", "e0", "+"])
        >>> [TOKEN_CLASSES[i] for i in token_classes(tokenizer)]
        ['other', 'end', 'number', 'operator']
    """
    names = [_classify_token(tokenizer, i) for i in range(tokenizer.vocab_size)]
    return np.array([TOKEN_CLASSES.index(name) for name in names], np.int8)


def _classify_token(tokenizer: Tokenizer, token: int) -> TokenClass:
    if token in tokenizer.eos_ids:
        return "end"
    text = tokenizer.decode([token])
    word = text.strip().lower().strip("\\")
    if not text or "\ufffd" in text:
        return "other"
    if word in _ANSWER:
        return "answer"
    if word in _REASONING:
        return "reasoning"
    if _NUMBER.fullmatch(word):
        return "number"
    if _OPERATOR.fullmatch(word):
        return "operator"
    return "word" if any(letter.isalpha() for letter in word) else "separator"
