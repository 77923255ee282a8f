"""Where a completion ends: at the token that completes a stop text."""

from collections.abc import Sequence

from rlvr_jax.tokenizer.base import Tokenizer


def kept_length(ids: Sequence[int], tokenizer: Tokenizer) -> int | None:
    """Returns how many of the ids a stop text leaves; None where none occurs.

    The text is that of the ids as they were drawn, and the token in which the stop text
    ends is kept whole: nothing is encoded anew. Found by bisection, for a longer run of
    ids has the text of a shorter one.
    """

    def holds(count: int) -> bool:
        text = tokenizer.decode(ids[:count])
        return any(stop in text for stop in tokenizer.stop)

    if not tokenizer.stop or not holds(len(ids)):
        return None
    low, high = 0, len(ids)  # low tokens do not hold one, high tokens do
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
