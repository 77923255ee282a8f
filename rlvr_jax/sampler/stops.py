"""Completions cut behind a stop text, on the host."""

import dataclasses

import numpy as np

from rlvr_jax.tokenizer import Tokenizer, kept_length
from rlvr_jax.types import Rollouts


def stopped(rollouts: Rollouts, tokenizer: Tokenizer) -> Rollouts:
    """Returns rollouts (in NumPy), each ended by the token that completes a stop text.

    That is sampling from the policy that stops there: whether it does is a function of
    the tokens so far, so what is kept was drawn from the very distribution that scores
    it, and not one id changes. What was drawn beyond is thrown away; the loop, which
    knows no text, could not be stopped by it.
    """
    if not tokenizer.stop:
        return rollouts
    lengths_B, finished_B = rollouts.lengths.copy(), rollouts.finished.copy()
    for row, length in enumerate(rollouts.lengths.tolist()):
        kept = kept_length(rollouts.tokens[row, :length].tolist(), tokenizer)
        if kept is not None:
            lengths_B[row], finished_B[row] = kept, True
    own_BT = np.arange(rollouts.tokens.shape[1])[None] < lengths_B[:, None]
    return dataclasses.replace(
        rollouts,
        tokens=np.where(own_BT, rollouts.tokens, 0),
        logprobs=np.where(own_BT, rollouts.logprobs, np.float32(0)),
        lengths=lengths_B,
        finished=finished_B,
    )
