"""Symptoms of verifiers and rewards, which judge and pay completions.

Each check yields (code, finding, advice) if its condition holds, else nothing.
"""

import math
import re
from collections.abc import Sequence

from rlvr_jax.metrics.step_metrics import Findings, StepMetrics, percent, step_mean

# Metrics of completions that a custom reward, or the judge, could not score.
UNSCORED = re.compile(r"reward_(time_limit|failed)/(.+)")

_MAX_UNVERIFIED = 0.05  # of completions
_MIN_GAP_STEPS = 0.5  # of the steps: if fewer have a gap, no alarm is raised


def find_reward_symptoms(recent: Sequence[StepMetrics]) -> list[tuple[str, str, str]]:
    """Returns (code, finding, advice) for every check that holds in window `recent`."""
    return [*_unverified(recent), *_unscored(recent), *_blind_reward(recent)]


def _unverified(recent: Sequence[StepMetrics]) -> Findings:
    means = [
        step_mean(recent, f"verdict/{s}") or 0.0
        for s in ("correct", "incorrect", "unverified")
    ]
    late, failed = _failures(recent, "verdict/time_limit", "verdict/failed")
    if sum(means) == 0:
        return
    if max(means[2] / sum(means), late + failed) <= _MAX_UNVERIFIED:
        return
    yield (
        "unverified",
        f"{percent(means[2] / sum(means))} of completions could not be "
        f"judged over the last {len(recent)} steps; {percent(late)} of all ran over "
        f"the time limit, on {percent(failed)} the verifier failed.",
        "Read the reasons in rollouts/; check the golds and verifier.timeout_s (for a "
        "judge, judge.timeout_s).",
    )


def _unscored(recent: Sequence[StepMetrics]) -> Findings:
    """Finds custom rewards, or a judge, that fail on many completions."""
    names = {match[2] for row in recent for n in row if (match := UNSCORED.match(n))}
    for name in sorted(names):
        late, failed = _failures(
            recent, f"reward_time_limit/{name}", f"reward_failed/{name}"
        )
        if late + failed > _MAX_UNVERIFIED:
            yield (
                f"unscored_{name}",
                f"The reward {name} scored {percent(1 - late - failed)} of "
                f"completions over the last {len(recent)} steps: {percent(late)} ran "
                f"over its time limit, on {percent(failed)} it failed. These earn "
                "their group's mean.",
                f"Fix the cause that the log's first failure of {name} names, or raise "
                f"{'judge' if name == 'judge' else 'train.reward'}.timeout_s.",
            )


def _failures(recent: Sequence[StepMetrics], *names: str) -> list[float]:
    return [step_mean(recent, name) or 0.0 for name in names]


def _blind_reward(recent: Sequence[StepMetrics]) -> Findings:
    """Finds rewards that do not pay correct completions more than incorrect ones.

    Only groups with both count, and the test is Student's t over steps. With a reward
    like that the policy still moves, and forgets (docs/findings/random_reward.md).
    """
    gaps = [row["verdict/reward_gap"] for row in recent if "verdict/reward_gap" in row]
    if len(gaps) < _MIN_GAP_STEPS * len(recent):
        return
    from rlvr_jax.metrics.bootstrap import t_interval  # noqa: PLC0415 - loads SciPy

    mean, low, high = t_interval(gaps)
    if math.isnan(low):  # the same in every step
        low = high = mean
    if low > 0:
        return
    yield (
        "blind_reward",
        "Correct completions do not measurably earn more than incorrect ones in their "
        f"group: {mean:+.2g} [{low:+.2g}, {high:+.2g}] over the last "
        f"{len(recent)} steps.",
        "Compare rewards with verdicts in rollouts/, and check train.reward. If the "
        "reward is meant to ignore the answer, evaluate during training (eval.every).",
    )
