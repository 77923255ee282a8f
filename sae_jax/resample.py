"""Intervals: what a figure would have been with other prompts.

Tokens of one prompt resemble each other, so whole prompts are drawn, with replacement
(percentile bootstrap). Works on sums per prompt, as `features` keeps them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float


class Interval(NamedTuple):
    """A figure and the interval that holds it, elementwise."""

    value: Float[np.ndarray, " Z"]
    low: Float[np.ndarray, " Z"]
    high: Float[np.ndarray, " Z"]


def interval(
    statistic: Callable[[Any], Float[np.ndarray, " Z"]],
    by_prompt: Any,
    *,
    replicates: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Returns the statistic of sums over prompts, with its interval.

    `by_prompt` is a pytree of NumPy arrays whose first axis is the prompt; `statistic`
    takes the same pytree summed over it. A function of the seed.
    """
    leaves = jax.tree.leaves(by_prompt)
    prompts = len(leaves[0])
    if prompts < 2:
        raise ValueError(f"{prompts} prompts: an interval over prompts needs two")
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=replicates)

    def of(weights: np.ndarray[Any, Any]) -> Float[np.ndarray, " Z"]:
        return statistic(
            jax.tree.map(lambda sums: np.tensordot(weights, sums, 1), by_prompt)
        )

    values = np.stack([of(weights.astype(np.float64)) for weights in drawn])
    tail = (1 - level) / 2
    low, high = np.quantile(values, [tail, 1 - tail], axis=0)
    return Interval(of(np.ones(prompts)), low, high)
