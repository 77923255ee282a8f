"""Token ids as they come from outside, checked where their values are at hand."""

from typing import Any

import jax
import numpy as np


def check_ids(ids: Any, vocab_size: int, what: str, *, mask: Any = None) -> None:
    """Raises ValueError, naming `what`, on ids that no token has.

    An index beyond the embedding would read another token's row without a word. Ids
    outside the `mask` may be anything. While tracing, and of arrays that other
    processes hold parts of, only the kind is known.
    """
    if np.dtype(ids.dtype).kind not in "iu":
        raise ValueError(f"{what} holds {ids.dtype}; it must hold token ids")
    for each in (ids, mask):
        if isinstance(each, jax.core.Tracer):
            return
        if isinstance(each, jax.Array) and not each.is_fully_addressable:
            return
    ids, mask = jax.device_get((ids, mask))
    wrong = (ids < 0) | (ids >= vocab_size)
    if mask is not None:
        wrong &= mask
    if wrong.any():
        raise ValueError(
            f"{what} holds the id {ids[wrong][0]}; the vocabulary has 0 to "
            f"{vocab_size - 1}"
        )
