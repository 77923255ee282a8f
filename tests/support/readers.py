"""A custom model reader: it sums tokens and has no weights."""

import numpy as np

WIDTH, LAYERS, CONTEXT, BOS, ODD = 8, 4, 40, 1, 2
HOOKS = ("resid_post", "resid_pre", "mlp_out", "attn_out")


class WordSums:
    """Each word is a token; activations sum over the token and all before it.

    The word "odd" is a special token; "nan" makes activations that are not finite.
    `asked` counts the rows read.
    """

    def __init__(self, path, *, dtype):
        self.name = path
        self.dtype = dtype
        self.fingerprint = f"sums of {path}"
        self.width, self.num_layers, self.max_tokens = WIDTH, LAYERS, CONTEXT
        self.vocabulary = tuple(f"<{i}>" for i in range(200))
        self.prefix_ids = (BOS,)
        self.special_ids = frozenset({BOS, ODD})
        self.asked = 0

    def encode(self, text):
        known = {"odd": ODD, "nan": 3}
        return [known.get(w, 4 + _number(w) % 190) for w in text.split()]

    def read(self, tokens, lengths, *, hook, layers):
        self.asked += len(tokens)
        return tuple(values(tokens, hook, layer) for layer in layers)


def _number(word):
    return int(word[1:]) if word[1:].isdigit() else sum(word.encode())


def values(tokens, hook, layer):
    """Returns the activations [..., T, D] of rows of ids [..., T]."""
    scale = 1.0 + layer + 10 * HOOKS.index(hook)
    place = np.cumsum(tokens, axis=-1) + 0.618 * tokens
    angle = place[..., None] * np.arange(1, WIDTH + 1)
    found = (scale * (2 + np.sin(angle))).astype(np.float32)
    return np.where(tokens[..., None] == 3, np.float32(np.nan), found)


class Narrow(WordSums):
    """Returns rows with a width different from the stated one."""

    def read(self, tokens, lengths, *, hook, layers):
        return tuple(values(tokens, hook, layer)[..., 1:] for layer in layers)
