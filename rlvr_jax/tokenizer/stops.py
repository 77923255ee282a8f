"""Finds where a stop string ends a completion."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rlvr_jax.tokenizer.base import Tokenizer
from rlvr_jax.types import Rollouts


def stop_length(ids: Sequence[int], tokenizer: Tokenizer) -> int | None:
    """Returns the length up to and including the token that completes a stop string.

    Returns None if the ids complete none.

    Ids are decoded but never encoded again, so the token in which the stop string ends
    stays whole. Bisection finds the length, since the text only grows with the ids.

    Example:
        >>> from rlvr_jax.tokenizer import WordLevelTokenizer
        >>> words = ["<pad>", "<eos>", "a", "stop"]
        >>> tokenizer = WordLevelTokenizer(words, stop=("stop",))
        >>> stop_length([2, 3, 2, 2], tokenizer)
        2
    """

    def has_stop(count: int) -> bool:
        text = tokenizer.decode(ids[:count])
        return any(stop in text for stop in tokenizer.stop_strings)

    if not tokenizer.stop_strings or not has_stop(len(ids)):
        return None
    low, high = 0, len(ids)  # `low` tokens have no stop string, `high` have
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_stop(middle) else (middle, high)
    return high


def truncate_at_stop(rollouts: Rollouts, tokenizer: Tokenizer) -> Rollouts:
    """Returns rollouts (in NumPy) that end at the token that completes a stop string.

    This is on-policy. Whether a completion stops is a function of its tokens so far, so
    the kept tokens were sampled from exactly the distribution that scores them, and no
    id changes. (The sampling loop does not see text, so it sampled beyond the stop.)
    """
    if not tokenizer.stop_strings:
        return rollouts
    lengths_B, finished_B = rollouts.lengths.copy(), rollouts.finished.copy()
    for row, length in enumerate(rollouts.lengths.tolist()):
        stopped = stop_length(rollouts.tokens[row, :length].tolist(), tokenizer)
        if stopped is not None:
            lengths_B[row], finished_B[row] = stopped, True
    mask_BT = np.arange(rollouts.tokens.shape[1])[None] < lengths_B[:, None]
    return dataclasses.replace(
        rollouts,
        tokens=np.where(mask_BT, rollouts.tokens, 0),
        logprobs=np.where(mask_BT, rollouts.logprobs, np.float32(0)),
        lengths=lengths_B,
        finished=finished_B,
    )
