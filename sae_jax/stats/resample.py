"""Bootstrap intervals over prompts.

Tokens of one prompt resemble each other, so whole prompts are drawn, with replacement
(percentile bootstrap). The input is sums per prompt, as in `features`.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from job_jax.resampling import Interval, resample_counts

_BLOCK = 100  # resamples whose sums are held at a time


def bootstrap_interval(
    statistic: Callable[[Any], Float[np.ndarray, " Z"]],
    by_prompt: PyTree,
    *,
    num_resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Returns a statistic of sums over prompts, with its percentile bootstrap interval.

    `by_prompt` is a pytree of NumPy arrays whose first axis is the prompt; `statistic`
    takes the same pytree summed over it. The result depends on the seed alone.

    >>> sums = {"passed": np.array([3.0, 1.0, 2.0]), "samples": np.full(3, 4.0)}
    >>> rate = bootstrap_interval(lambda s: s["passed"] / s["samples"], sums)
    >>> float(rate.value), bool(rate.low <= rate.value <= rate.high)
    (0.5, True)
    """
    leaves, structure = jax.tree.flatten(by_prompt)
    prompts = len(leaves[0])
    if prompts < 2:
        raise ValueError(f"{prompts} prompts: an interval over prompts needs two")
    weights_RP = resample_counts(prompts, resamples=num_resamples, seed=seed)

    def evaluate(weights_RP: np.ndarray) -> list[Float[np.ndarray, " Z"]]:
        sums = [np.tensordot(weights_RP.astype(np.float64), x, 1) for x in leaves]
        rows = zip(*sums, strict=True)
        return [statistic(jax.tree.unflatten(structure, row)) for row in rows]

    blocks = range(0, num_resamples, _BLOCK)
    values = np.stack([v for r in blocks for v in evaluate(weights_RP[r : r + _BLOCK])])
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail], axis=0)
    return Interval(evaluate(np.ones((1, prompts)))[0], low, high)
