"""Symptoms of a run that starts too weak, never ends a text, or makes no progress.

Each check yields (code, finding, advice) if its condition holds, else nothing.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Self

from rlvr_jax.metrics.step_metrics import Findings, StepMetrics, percent, step_mean

CORRECT = "verdict/correct"

# A weak start: most groups are all wrong, and the pass rate is low. With fewer groups
# with a signal than the second, `no_signal` reports it.
_MIN_ALL_WRONG = 0.5  # of groups
_MAX_WEAK_PASS = 0.1  # of completions
_HIGH_PASS = 0.8  # of completions: from here on, accuracy has little room to rise

# No progress: the trend over all steps shows no rise (within this many standard errors
# of 0), and even its upper bound is smaller than a rise that would matter. That is as
# much as the run solves now, within these limits.
_NO_RISE_Z = 0.5
_UPPER_Z = 2.33  # one-sided 99 %
_MIN_RISE, _MAX_RISE = 0.02, 0.05  # of completions
_MIN_WINDOWS = 2
_MIN_PART = 0.5  # of the planned steps; before, a slow rise looks like none

# Policies that never end by themselves: this share of completions or more reaches the
# limit, in the first steps and since, and the reward stays at or below the second.
_MIN_WITHOUT_END = 0.9
_MAX_REWARD_WITHOUT_END = 0.1

# These explain why accuracy does not rise, so no_progress would only repeat them.
_CAUSES = frozenset(
    {"no_signal", "accuracy_collapse", "blind_reward", "unverified", "no_ending"}
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trend:
    """Sums from which the linear trend of a series is computed, kept by the doctor."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    moment: float = 0.0  # of (0-based position) x value

    def add(self, value: float) -> Self:
        """Returns the trend of the series with one more value."""
        return dataclasses.replace(
            self,
            count=self.count + 1,
            total=self.total + value,
            squares=self.squares + value**2,
            moment=self.moment + self.count * value,
        )

    def rise(self) -> tuple[float, float]:
        """Returns the rise of the fitted line from first to last value, and its error.

        The error is the standard error, from the scatter of the values around the line.
        Needs at least 3 values.
        """
        n = self.count
        spread = n * (n**2 - 1) / 12  # sum of squares of the positions
        product = self.moment - (n - 1) / 2 * self.total
        slope = product / spread
        unexplained = self.squares - self.total**2 / n - slope * product
        variance = max(unexplained, 0.0) / (n - 2)
        return slope * (n - 1), math.sqrt(variance / spread) * (n - 1)


def draws_alike(curriculum: Mapping[str, object], *, max_rounds: int) -> bool:
    """Returns whether all steps draw from the same problems, so that accuracy compares.

    `curriculum` is its section of a config as JSON. A curriculum that follows the
    policy keeps accuracy where it is, however much the policy learns; so does dynamic
    sampling (`max_rounds`). A user's curriculum may do either.
    """
    name, source = curriculum.get("name"), curriculum.get("difficulty_source")
    is_fixed = name in ("band", "mixture") and source == "initial"
    return max_rounds == 0 and (is_fixed or name in ("uniform", "one_sample"))


def find_weak_start(first: Sequence[StepMetrics], *, min_signal: float) -> Findings:
    """Finds runs whose first steps are mostly wrong, though not without any signal.

    `min_signal` is the share of groups with a signal below which `no_signal` says so.
    """
    correct = step_mean(first, CORRECT)
    wrong = step_mean(first, "groups/all_incorrect")
    split = step_mean(first, "groups/nonzero_std")
    if correct is None or wrong is None or split is None:
        return
    if correct >= _MAX_WEAK_PASS or wrong < _MIN_ALL_WRONG or split < min_signal:
        return
    yield (
        "weak_start",
        f"RL starts from a policy that solves {100 * correct:.1f} % of its problems: "
        f"in the first {len(first)} steps {percent(wrong)} of groups were all wrong "
        "and taught nothing.",
        "Lengthen the warm start (sft.steps), train on easier problems, or draw more "
        "samples per problem (train.group_size). If the model is pretrained, check its "
        "chat template and the answer format in rollouts/ first.",
    )


def find_no_ending(
    first: Sequence[StepMetrics], recent: Sequence[StepMetrics]
) -> Findings:
    """Finds policies that do not stop by themselves, from the first step on.

    A policy that learned to stop runs into the limit on long answers only. If nearly
    every completion does so before any training, the prompt or the end token is wrong.
    """
    before, now = (
        step_mean(rows, "rollout/truncated") or 0.0 for rows in (first, recent)
    )
    earned = step_mean(recent, "verdict/correct")
    if earned is None:  # a log without verdicts
        earned = step_mean(recent, "reward/mean")
    if earned is None or earned > _MAX_REWARD_WITHOUT_END:
        return
    if min(before, now) < _MIN_WITHOUT_END:
        return
    yield (
        "no_ending",
        f"From the first step on, nearly every completion ({percent(now)}) ran "
        "into the length limit, and almost none earned a reward: the policy does not "
        "know when to stop.",
        "Check the chat template and the end token (tokenizer), or teach the policy to "
        "end with a warm start (sft.steps), before you raise "
        "train.sampling.max_new_tokens.",
    )


def find_no_progress(
    trend: Trend,
    first: Sequence[StepMetrics],
    recent: Sequence[StepMetrics],
    *,
    codes: Collection[str],
    total_steps: int,
    window: int,
) -> Findings:
    """Finds runs whose accuracy has not risen, when it would have been seen to rise.

    `first` and `recent` are the first few and the latest steps, `codes` the symptoms
    that were found already. Quiet before half of the planned steps.
    """
    if trend.count < max(_MIN_WINDOWS * window, _MIN_PART * total_steps, 3):
        return
    before, now = step_mean(first, CORRECT), step_mean(recent, CORRECT)
    if before is None or now is None or now >= _HIGH_PASS or _CAUSES & {*codes}:
        return
    rise, error = trend.rise()
    upper = rise + _UPPER_Z * error
    enough = min(max(now, _MIN_RISE), _MAX_RISE)
    if rise > _NO_RISE_Z * error or upper >= enough or now - before >= enough:
        return
    wrong = step_mean(recent, "groups/all_incorrect") or 0.0
    advice = (
        f"{percent(wrong)} of groups are all wrong: train on easier problems, lengthen "
        "the warm start (sft.steps), or draw more samples (train.group_size)."
        if wrong >= _MIN_ALL_WRONG
        else "Raise train.optimizer.learning_rate, train on problems that are solved "
        "about half the time (curriculum.name), or draw more completions per step "
        "(train.batch_size, train.group_size)."
    )
    yield (
        "no_progress",
        f"Accuracy has not risen in {trend.count} steps: {100 * before:.1f} % of "
        f"completions were correct in the first {len(first)}, {100 * now:.1f} % in the "
        f"last {len(recent)}. The trend over all steps is {100 * rise:+.1f} points, "
        f"with 99 % confidence under {100 * upper:+.1f}.",
        advice,
    )
