"""Turns the steps of all sides into figures: medians, ratios, and their spread."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.job import PARTS, seconds_per_1k_tokens

_CONFIDENCE = 0.95
# Standard errors by which a side's mean length may differ from the expected one.
_MAX_DEVIATION = 5.0

Step = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthLaw:
    """The known distribution of lengths if completions end at random or at `limit`."""

    mean: float
    variance: float
    limit: int

    def summarize_lengths(self, steps: Sequence[Step]) -> dict[str, float]:
        """Returns mean and quartiles of all completions' tokens, and share at limit.

        Raises ValueError if the mean is not the expected one: the work is not the same.
        """
        lengths = [length for step in steps for length in step["lengths"]]
        mean, error = statistics.fmean(lengths), (self.variance / len(lengths)) ** 0.5
        if abs(mean - self.mean) > _MAX_DEVIATION * error:
            raise ValueError(
                f"completions with {mean:.1f} tokens on average are not the same work: "
                f"expected {self.mean:.1f} +- {error:.1f}"
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
    """Raises ValueError if steps differ in tokens: they are not the same work."""
    tokens = {step["tokens"] for step in steps}
    if len(tokens) != 1:
        raise ValueError(f"steps with {sorted(tokens)} tokens are not the same work")


def summarize_steps(steps: Sequence[Step]) -> dict[str, Any]:
    """Returns the medians of a side's steps, without parts that it does not have.

    Rates are completion tokens per second. `range` is the fewest and the most seconds.
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
    """Returns their seconds per token divided by ours, for each part and round.

    The two steps of a round are close in time, so a slow period cancels out.
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
    """Returns two of the values that enclose the true median, with 95 % confidence.

    This interval is distribution-free: the true median is below the k-th smallest of n
    values with the probability of fewer than k heads in n tosses. With under six
    values, smallest and largest are returned, with less confidence.
    """
    ordered, n = sorted(values), len(values)
    k = tail = 1
    while True:
        # `tail` / 2^n: probability that at most k - 1 values lie below the median.
        wider = tail + math.comb(n, k)
        if 1 - 2 * wider / 2**n < _CONFIDENCE or 2 * (k + 1) > n:
            return [ordered[k - 1], ordered[n - k]]
        k, tail = k + 1, wider


def _seconds(steps: Sequence[Step]) -> dict[str, list[float]]:
    """Returns each part's seconds by round; also the step's if it has several parts."""
    parts = [part for part in PARTS if part in steps[0]]
    seconds = {part: [step[part] for step in steps] for part in parts}
    if len(parts) > 1:
        seconds["step_s"] = [sum(step[part] for part in parts) for step in steps]
    return seconds
