"""Symptoms that only logs of other trainers need: our own runs show them otherwise.

Each check yields (code, finding, advice) if its condition holds; the trainer fills in
the advice.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from rlvr_jax.metrics.step_metrics import Findings, step_mean
from rlvr_jax.metrics.symptoms import FEW_STEPS

Quantities = Mapping[str, float]

# Mean disagreement of sampler and trainer above which a run needs attention. Half of
# our train.max_logprob_mismatch; the gap of probabilities that verl's FAQ calls a
# problem of precision; the KL of a normal log-ratio whose mean size is the first.
_MAX_GAPS = {
    "logprob_mismatch": (0.25, "log-probabilities by {:.3f} nats per token"),
    "prob_mismatch": (0.01, "probabilities by {:.3f} per token"),
    "sampler_kl": (0.05, "log-probabilities: their KL divergence is {:.3f} nats"),
}
_ROUNDING = 1e-6  # equal rewards may differ by this much
_EARLY_STEPS = 2 * FEW_STEPS
# A reward has collapsed if less than half of it is left, and it fell by more than it
# scatters between steps. Simulated rewards whose means scatter independently fell as
# far in none of 300 runs of 400 steps.
_COLLAPSE = 0.5
_MIN_DEVIATIONS = 2.0
_MIN_FALL = 0.1  # of rewards between 0 and 1


@dataclasses.dataclass
class RewardHistory:
    """The rewards so far: the latest window, the best window and the lowest reward."""

    window: int
    latest: list[float] = dataclasses.field(default_factory=list)
    best: float = -math.inf
    deviation: float = 0.0  # between the steps of the best window
    lowest: float = 0.0

    def append(self, reward: float) -> None:
        """Adds a step's mean reward."""
        self.latest = [*self.latest, reward][-self.window :]
        self.lowest = min(self.lowest, reward)
        mean = statistics.fmean(self.latest)
        if len(self.latest) == self.window and mean > self.best:
            self.best, self.deviation = mean, statistics.pstdev(self.latest)

    def find_collapse(self, *, is_share: bool) -> Findings:
        """Finds rewards that have lost half of their best level.

        With `is_share` rewards are between 0 and 1, and a small fall does not count.
        Rewards may be negative, so their height is measured from the lowest.
        """
        if self.best == -math.inf:
            return
        now = statistics.fmean(self.latest)
        fall = self.best - now
        if fall <= max(_MIN_DEVIATIONS * self.deviation, _MIN_FALL * is_share):
            return
        if now - self.lowest >= _COLLAPSE * (self.best - self.lowest):
            return
        yield (
            "reward_collapse",
            f"The mean reward of the last {self.window} steps is {now:.3g}; of the "
            f"best {self.window} it was {self.best:.3g}.",
            "",
        )


def find_symptoms(
    recent: Sequence[Quantities], *, num_steps: int, window: int
) -> Iterator[tuple[str, str, str]]:
    """Yields (code, finding, "") for every check that holds after this step."""
    if num_steps >= FEW_STEPS:
        yield from _sampler_mismatch(recent[-FEW_STEPS:])
    if _EARLY_STEPS <= num_steps < window:
        yield from _silent_from_the_start(recent)


def find_nonfinite(row: Quantities) -> Findings:
    """Yields (code, finding, "") if a step's numbers are not finite."""
    named = {"loss": "loss", "grad_norm": "gradient norm", "reward": "mean reward"}
    names = [n for n in named if math.isnan(row.get(n, 0.0))]
    if names:
        yield (
            "nonfinite",
            f"The {' and the '.join(named[n] for n in names)} "
            f"{'are' if len(names) > 1 else 'is'} not finite.",
            "",
        )


def _sampler_mismatch(latest: Sequence[Quantities]) -> Findings:
    for name, (limit, text) in _MAX_GAPS.items():
        gap = step_mean(latest, name)
        if gap is not None and gap > limit:
            yield (
                "logprob_mismatch",
                f"Over the last {len(latest)} steps sampler and trainer disagree on "
                f"{text.format(gap)}; above {limit:g} the gradient is off.",
                "",
            )
            return


def _silent_from_the_start(rows: Sequence[Quantities]) -> Findings:
    """Finds runs without any signal before a whole window has passed."""
    shares = [share for row in rows if (share := signal_share(row)) is not None]
    if len(shares) >= _EARLY_STEPS and not any(shares):
        yield (
            "no_signal",
            f"No learning signal: in none of the first {len(rows)} steps did a group "
            "have unequal rewards.",
            "",
        )


def signal_share(row: Quantities) -> float | None:
    """Returns the share of groups whose completions earn unequal rewards, if known.

    Where the log shows only whether any group had some, the share is 0 or, as an upper
    bound, 1.
    """
    if "same_reward" in row:
        return 1.0 - row["same_reward"]
    if "solved_none" in row and "solved_all" in row:
        return max(0.0, 1.0 - row["solved_none"] - row["solved_all"])
    if "advantage_low" in row and "advantage_high" in row:
        return float(row["advantage_high"] - row["advantage_low"] > _ROUNDING)
    if "reward_std" in row:
        return float(row["reward_std"] > _ROUNDING)
    return None
