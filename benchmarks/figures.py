"""From the steps that sides took to figures: medians, ratios, and their spread."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.job import PARTS, seconds_per_1k_tokens

_CONFIDENCE = 0.95
# Standard errors that the mean length of a side's rows may be off its law.
_MAX_DEVIATION = 5.0

Step = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthLaw:
    """What is known beforehand of completions that end at random, or at `limit`."""

    mean: float
    variance: float
    limit: int

    def summarize_lengths(self, steps: Sequence[Step]) -> dict[str, float]:
        """Returns mean and quartiles of all completions' tokens, and share at limit.

        Raises ValueError where the mean is not the law's: it is not the same work.
        """
        lengths = [length for step in steps for length in step["lengths"]]
        mean, error = statistics.fmean(lengths), (self.variance / len(lengths)) ** 0.5
        if abs(mean - self.mean) > _MAX_DEVIATION * error:
            raise ValueError(
                f"completions of {mean:.1f} tokens in the mean, where "
                f"{self.mean:.1f} +- {error:.1f} are expected, are not the same work"
            )
        low, middle, high = statistics.quantiles(lengths, n=4, method="inclusive")
        return {
            "mean": mean,
            "quartile_1": low,
            "median": middle,
            "quartile_3": high,
            "at_limit": sum(n == self.limit for n in lengths) / len(lengths),
        }


def check_equal_tokens(steps: Sequence[Step]) -> None:
    """Raises ValueError where steps differ in tokens: they are not the same work."""
    tokens = {step["tokens"] for step in steps}
    if len(tokens) != 1:
        raise ValueError(f"steps of {sorted(tokens)} tokens are not the same work")


def summarize_steps(steps: Sequence[Step]) -> dict[str, Any]:
    """Returns the medians of a side's steps; a part that it lacks is left out.

    Rates are completion tokens per second. `range` is least and most seconds.
    """
    seconds = _seconds(steps)
    medians = {part: statistics.median(values) for part, values in seconds.items()}
    per_1k = statistics.median(seconds_per_1k_tokens(step) for step in steps)
    return {
        "tokens": statistics.median(step["tokens"] for step in steps),
        "repeats": len(steps),
        **medians,
        **{
            f"{part}_tokens_per_s": statistics.median(
                step["tokens"] / step[f"{part}_s"] for step in steps
            )
            for part in ("rollout", "update")
            if f"{part}_s" in medians
        },
        "seconds_per_1k_tokens": per_1k,
        "range": {part: [min(values), max(values)] for part, values in seconds.items()},
    }


def ratios_to_ours(
    theirs: Sequence[Step], ours: Sequence[Step]
) -> dict[str, list[float]]:
    """Returns by part how many times our seconds a token they took, in each round.

    The two steps of one round are neighbors in time, so a slow spell cancels.
    """
    tokens = [
        our["tokens"] / their["tokens"] for our, their in zip(ours, theirs, strict=True)
    ]
    our_seconds = _seconds(ours)
    return {
        part: [
            their / our * scale
            for their, our, scale in zip(values, our_seconds[part], tokens, strict=True)
        ]
        for part, values in _seconds(theirs).items()
    }


def median_interval(values: Sequence[float]) -> list[float]:
    """Returns two of the values that hold the true median between them, 95 % certain.

    The chance that the median of what values are drawn from lies below the k-th least
    of n is that of fewer than k heads in n tosses (a distribution-free interval). Under
    six values, least and most hold it less surely.
    """
    ordered, n = sorted(values), len(values)
    k = tail = 1
    while True:
        # `tail` / 2^n: chance that at most k - 1 values lie below the median.
        wider = tail + math.comb(n, k)
        if 1 - 2 * wider / 2**n < _CONFIDENCE or 2 * (k + 1) > n:
            return [ordered[k - 1], ordered[n - k]]
        k, tail = k + 1, wider


def _seconds(steps: Sequence[Step]) -> dict[str, list[float]]:
    """Returns every part's seconds by round; the whole step's if there are several."""
    parts = [part for part in PARTS if part in steps[0]]
    seconds = {part: [step[part] for step in steps] for part in parts}
    if len(parts) > 1:
        seconds["step_s"] = [sum(step[part] for part in parts) for step in steps]
    return seconds
