"""The run doctor's checks of the metrics of training steps, a function each.

A check yields (code, finding, advice) if its condition holds, else nothing. It sees the
first few steps, the latest window, or both. Checks of verifiers and rewards are in
`metrics.reward_symptoms`, checks of the update and of the frozen autoencoder in
`metrics.update_symptoms`, checks of the start and of progress in
`metrics.progress_symptoms`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from rlvr_jax.metrics.progress_symptoms import (
    Trend,
    find_no_ending,
    find_no_progress,
    find_weak_start,
)
from rlvr_jax.metrics.reward_symptoms import UNSCORED, find_reward_symptoms
from rlvr_jax.metrics.step_metrics import Findings, StepMetrics, percent, step_mean
from rlvr_jax.metrics.update_symptoms import find_update_symptoms

_LEVEL = re.compile(r"level_(\d+)/(pass|nonzero_std|length)")
_BAND = re.compile(r"band_(\w+)/(pass|length)")
# A part of the reward that is paid in addition to the verdict, or instead of it.
_OTHER_REWARD = re.compile(r"reward/(?!(?:mean|std|correctness)$).+")
_NAMES = frozenset(
    {
        "groups/nonzero_std",
        "groups/all_correct",
        "groups/all_incorrect",
        "groups/truncated",
        "groups/unverified",
        "reward/mean",
        "rollout/length_mean",
        "rollout/entropy",
        "rollout/truncated",
        "verdict/correct",
        "verdict/incorrect",
        "verdict/unverified",
        "verdict/time_limit",
        "verdict/failed",
        "verdict/reward_gap",
        "behavior/repetition",
        "behavior/bare_answer",
        "behavior/skipped_steps",
        "behavior/forgotten",
        "dynamic_sampling/zero_variance",
        "logprob_mismatch/mean",
        "logprob_mismatch/clipped",
        "staleness/versions_behind",
        "loss/tis_truncated",
        "optimizer/grad_norm",
        "optimizer/skipped",
        "sae/fve_reference",
        "sae/splice_kl_reference",
        "sae/splice_cost_reference",
    }
)

# Below this share of groups with a signal, a step's gradient is mostly noise.
_MIN_SIGNAL = 0.10
_MIN_GRADIENT_STEPS = 0.5  # of the steps: if fewer have one, gradients are rare
# Length, accuracy and entropy are compared between the first and the latest few steps:
# one step is noisy, and a whole window sees a collapse too late.
FEW_STEPS = 5
_LENGTH_COLLAPSE = 0.5  # of the first steps' mean
_MOSTLY_CUT = 0.5  # of completions: then their mean length is that of the limit
_ACCURACY_COLLAPSE = 0.5  # of the first steps' mean
_MIN_ACCURACY_FALL = 0.1  # of completions: halving a tiny accuracy is noise
_ENTROPY_COLLAPSE = 0.1  # of the first steps' mean
_MAX_SHORTCUT_RISE = 0.2  # of completions, beyond the first steps' share

_ADVICE_BY_CAUSE = {
    "all_correct": "The problems are too easy by now: train on higher levels, or leave "
    "out the problems that are mastered.",
    "all_incorrect": "The problems are too hard: train on lower levels, lengthen the "
    "warm start, or draw more samples per prompt.",
    "truncated": "Completions end before they answer: raise "
    "train.sampling.max_new_tokens.",
    "unverified": "The verifier could not judge them: read the reasons in rollouts/, "
    "and check the golds and verifier.timeout_s.",
}


class _HighFraction(NamedTuple):
    """A fraction of completions whose mean over a window should not exceed `limit`."""

    code: str
    metric: str
    limit: float
    finding: str  # {steps} is the window
    advice: str


_HIGH_FRACTIONS = (
    _HighFraction(
        "truncation",
        "rollout/truncated",
        0.25,
        "ran into the length limit over the last {steps} steps and could not finish.",
        "Raise train.sampling.max_new_tokens, or see in rollouts/ whether they repeat "
        "themselves.",
    ),
    _HighFraction(
        "repetition",
        "behavior/repetition",
        0.2,
        "repeat themselves over the last {steps} steps.",
        "Lower train.optimizer.learning_rate, or punish length with "
        "train.overlong_buffer.",
    ),
    _HighFraction(
        "forgetting",
        "behavior/forgotten",
        0.1,
        "over the last {steps} steps are wrong on problems that were solved at their "
        "previous visit.",
        "Lower train.optimizer.learning_rate, or set curriculum.name=replay.",
    ),
)


def is_read(name: str) -> bool:
    """Returns whether a check reads the metric with this name."""
    patterns = (_LEVEL, _BAND, UNSCORED, _OTHER_REWARD)
    return name in _NAMES or any(pattern.fullmatch(name) for pattern in patterns)


def find_symptoms(
    first: Sequence[StepMetrics],
    recent: Sequence[StepMetrics],
    *,
    num_steps: int,
    total_steps: int,
    window: int,
    max_logprob_mismatch: float,
    max_unexplained_growth: float,
    max_splice_cost: float,
    accuracy: Trend | None = None,
) -> list[tuple[str, str, str]]:
    """Returns (code, finding, advice) for every check that holds after this step.

    `first` and `recent` are the first few and the latest steps. `num_steps` counts the
    steps so far, and `total_steps` those planned. `accuracy` is the trend of
    verdict/correct, None if the accuracy of different steps cannot be compared.
    """
    few = min(FEW_STEPS, window)
    found = find_update_symptoms(
        first,
        recent,
        max_logprob_mismatch=max_logprob_mismatch,
        max_unexplained_growth=max_unexplained_growth,
        max_splice_cost=max_splice_cost,
    )
    endless = [*find_no_ending(first, recent)] if num_steps >= few else []
    found += endless
    if num_steps >= window:
        found += [*_no_signal(recent), *find_reward_symptoms(recent)]
        found += _rare_gradient(recent)
        high = _high_fractions(recent)
        found += [s for s in high if not endless or s[0] != "truncation"]
        found += _dynamic_sampling_short(recent)
    elif num_steps >= min(FEW_STEPS, total_steps) and _never_correct(recent):
        found += _no_signal(recent)
    if num_steps >= 2 * few:
        latest = recent[-few:]
        found += [
            *_length_collapse(first, latest),
            *_accuracy_collapse(first, latest),
            *_shortcuts(first, latest),
            *_entropy_collapse(first, latest),
        ]
    if few <= num_steps <= window and not endless:
        found += find_weak_start(first, min_signal=_MIN_SIGNAL)
    if accuracy is not None:
        codes = [code for code, _, _ in found]
        found += find_no_progress(
            accuracy, first, recent, codes=codes, total_steps=total_steps, window=window
        )
    return found


def _levels(rows: Sequence[StepMetrics]) -> list[int]:
    matches = [_LEVEL.fullmatch(name) for row in rows for name in row]
    return sorted({int(match[1]) for match in matches if match})


def _bands(rows: Sequence[StepMetrics]) -> list[str]:
    matches = [_BAND.fullmatch(name) for row in rows for name in row]
    return sorted({match[1] for match in matches if match})


def _steps(count: int) -> str:
    return f"{count} step{'s' * (count != 1)}"


def _never_correct(rows: Sequence[StepMetrics]) -> bool:
    """Returns whether no completion was correct, which shows before a full window."""
    return step_mean(rows, "verdict/correct") == 0.0


def _no_signal(recent: Sequence[StepMetrics]) -> Findings:
    split = step_mean(recent, "groups/nonzero_std")
    if split is None or split >= _MIN_SIGNAL:
        return
    shares = {c: step_mean(recent, f"groups/{c}") or 0.0 for c in _ADVICE_BY_CAUSE}
    causes = ", ".join(
        f"{percent(share)} {cause.replace('_', ' ')}"
        for cause, share in sorted(shares.items(), key=lambda item: -item[1])
        if share > 0
    )
    levels = "; ".join(
        f"level {level} {percent(level_split)} at pass rate {level_pass:.2f}"
        for level in _levels(recent)
        if (level_split := step_mean(recent, f"level_{level}/nonzero_std")) is not None
        and (level_pass := step_mean(recent, f"level_{level}/pass")) is not None
    )
    others = [name for name in recent[-1] if _OTHER_REWARD.fullmatch(name)]
    # Without verdicts (the log of another trainer), only rewards tell groups apart.
    judged = step_mean(recent, "verdict/correct") is not None
    differing = (
        "both correct and incorrect completions" if judged else "unequal rewards"
    )
    finding = (
        f"No learning signal{' in verdicts' if others else ''}: over the last "
        f"{_steps(len(recent))} only "
        f"{percent(split)} of groups had {differing}{'; ' * bool(causes)}{causes}."
    )
    if _never_correct(recent):
        finding += " No completion was correct."
    if levels:
        finding += f" Groups with signal: {levels}."
    if others:
        finding += f" Other parts of the reward may teach: {', '.join(others)}."
    yield "no_signal", finding, _ADVICE_BY_CAUSE[max(shares, key=shares.__getitem__)]


def _rare_gradient(recent: Sequence[StepMetrics]) -> Findings:
    """Finds runs in which most steps have no gradient at all, under any reward.

    Adam divides a gradient by its own recent size. A rare gradient therefore moves each
    weight by several learning rates, however small it is
    (docs/findings/rare_gradient.md). A KL or entropy term gives every step a gradient,
    and a gradient that is not finite counts as one.
    """
    norms = [row.get("optimizer/grad_norm", 1.0) for row in recent]
    with_gradient = sum(norm != 0.0 for norm in norms)
    if not 0 < with_gradient < _MIN_GRADIENT_STEPS * len(norms):
        return
    yield (
        "rare_gradient",
        f"Only {with_gradient} of the last {_steps(len(norms))} had a gradient. Unless "
        "its eps is large, Adam steps as far after a small gradient as after a large "
        "one, so the few groups whose rewards differed make the policy drift.",
        "Train on problems whose completions earn different rewards (curriculum.name), "
        "or lower train.optimizer.learning_rate.",
    )


def _length_collapse(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> Findings:
    if _has_learned_to_end(first, latest):
        return
    names = {"completions": "rollout/length_mean"} | {
        f"level {level}": f"level_{level}/length" for level in _levels(latest)
    }
    names |= {f"band {band}": f"band_{band}/length" for band in _bands(latest)}
    fallen = []
    for where, name in names.items():
        before, now = step_mean(first, name), step_mean(latest, name)
        if before is not None and now is not None and now < _LENGTH_COLLAPSE * before:
            fallen.append(f"{where}: {before:.1f} to {now:.1f}")
    if not fallen:
        return
    yield (
        "length_collapse",
        "Completions are less than half as long as at the start (mean tokens of "
        + ", ".join(fallen)
        + ").",
        "Accuracy tends to fall next: check in rollouts/ whether short answers earn "
        "the reward without steps.",
    )


def _has_learned_to_end(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> bool:
    """Returns whether most completions were cut at first, and end and earn more now."""
    cut, cut_now = (step_mean(rows, "rollout/truncated") for rows in (first, latest))
    paid, paid_now = (step_mean(rows, "reward/mean") for rows in (first, latest))
    if cut is None or cut_now is None or paid is None or paid_now is None:
        return False
    return cut_now < _MOSTLY_CUT <= cut and paid_now > paid


def _accuracy_collapse(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> Findings:
    """Finds runs with less than half as many correct completions as at the start.

    A curriculum that moves to harder problems is not a collapse. So the pass rate must
    also have halved within the levels sampled both then and now, and within the bands.
    """
    before = step_mean(first, "verdict/correct")
    now = step_mean(latest, "verdict/correct")
    if before is None or now is None or before - now <= _MIN_ACCURACY_FALL:
        return
    rows = [*first, *latest]
    levels = [f"level_{level}" for level in _levels(rows)]
    bands = [f"band_{band}" for band in _bands(rows)]
    if (
        now >= _ACCURACY_COLLAPSE * before
        or not _collapsed_within(levels, first, latest)
        or not _collapsed_within(bands, first, latest)
    ):
        return
    yield (
        "accuracy_collapse",
        f"{percent(now)} of completions are correct, {percent(before)} at the start.",
        "Lower train.optimizer.learning_rate, keep the policy close to its reference "
        "with train.loss.kl_coef, and check in rollouts/ whether the reward pays for "
        "right answers.",
    )


def _collapsed_within(
    groups: Sequence[str], first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> bool:
    """Returns whether the pass rate collapsed, over groups sampled then and now.

    A group is "level_3" or "band_hard", and all weigh the same. True without groups.
    """
    names = [f"{group}/pass" for group in groups]
    means = [(step_mean(first, name), step_mean(latest, name)) for name in names]
    both = [(b, n) for b, n in means if b is not None and n is not None]
    before, now = sum(b for b, _ in both), sum(n for _, n in both)
    return not groups or now < _ACCURACY_COLLAPSE * before


def _entropy_collapse(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> Findings:
    before = step_mean(first, "rollout/entropy")
    now = step_mean(latest, "rollout/entropy")
    if before is None or now is None or now >= _ENTROPY_COLLAPSE * before:
        return
    yield (
        "entropy_collapse",
        f"Entropy fell from {before:.3f} to {now:.3f} nats per token: the policy "
        "hardly explores any more.",
        "Lower train.optimizer.learning_rate, raise train.loss.clip_high or set "
        "train.loss.entropy_coef.",
    )


def _shortcuts(first: Sequence[StepMetrics], latest: Sequence[StepMetrics]) -> Findings:
    names = ("behavior/bare_answer", "behavior/skipped_steps")
    before, now = (
        sum(step_mean(rows, n) or 0.0 for n in names) for rows in (first, latest)
    )
    if now - before <= _MAX_SHORTCUT_RISE:
        return
    yield (
        "shortcuts",
        f"{percent(now)} of completions answer without the steps, "
        f"{percent(before)} at the start.",
        "The reward pays for a right answer however it was found, and accuracy tends "
        "to fall next: leave out problems that reward shortcuts (curriculum.name), or "
        "guard against luck (train.advantage.overhard_advantage).",
    )


def _high_fractions(recent: Sequence[StepMetrics]) -> Findings:
    for rule in _HIGH_FRACTIONS:
        fraction = step_mean(recent, rule.metric)
        if fraction is not None and fraction > rule.limit:
            finding = f"{percent(fraction)} of completions {rule.finding}"
            yield rule.code, finding.format(steps=len(recent)), rule.advice


def _dynamic_sampling_short(recent: Sequence[StepMetrics]) -> Findings:
    share = step_mean(recent, "dynamic_sampling/zero_variance") or 0.0
    if share == 0.0:
        return
    yield (
        "dynamic_sampling_short",
        f"After all refills {percent(share)} of groups over the last {len(recent)} "
        "steps still had no signal; the run trains on them anyway.",
        "Raise dynamic_sampling.max_rounds, or choose a curriculum of problems that "
        "the policy solves about half the time.",
    )
