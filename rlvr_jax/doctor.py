"""The run doctor: says in plain words when a run stops learning, and why.

`examine` looks at each training step's metrics and at the steps before it, and raises
alarms that accuracy alone would show too late: a policy that unlearns to reason loses
its length well before its accuracy (https://arxiv.org/abs/2605.28388). It reads

    groups/split, groups/all_right, groups/all_wrong, groups/truncated, groups/unjudged
        shares of all groups: those with a learning signal, and the silent ones by
        cause, each group under one cause, so that the five add up to 1
    level_{n}/pass, level_{n}/split, level_{n}/length, band_{name}/length
    rollout/length_mean, rollout/entropy, rollout/truncated
    verdict/right, verdict/wrong, verdict/unjudged
    behaviour/repetition, behaviour/bare_answer, behaviour/skipped_steps,
    behaviour/forgotten, refill/silent
    logprob_gap/mean, optimizer/skipped
    dictionary/fve_probe

and leaves out what a step does not have.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Row = Mapping[str, float]

# Below this share of groups with a signal, a step's gradient is mostly noise.
_MIN_SPLIT = 0.10
# Length and entropy are compared between the first and the latest few steps: one step
# is noisy, and a whole window sees a collapse too late.
_FEW_STEPS = 5
_LENGTH_COLLAPSE = 0.5  # of the first steps' mean
_ENTROPY_COLLAPSE = 0.1  # of the first steps' mean
_GAP_NEAR_LIMIT = 0.5  # of the limit that stops the run
_MAX_TRUNCATED = 0.25  # of completions
_MAX_UNJUDGED = 0.05  # of completions
_MAX_REPETITION = 0.2  # of completions
_MAX_FORGOTTEN = 0.1  # of completions
_MORE_SHORTCUTS = 0.2  # of completions, beyond the first steps' share

_LEVEL = re.compile(r"level_(\d+)/(pass|split|length)")
_BAND = re.compile(r"band_(\w+)/length")
_NAMES = frozenset(
    {
        "groups/split",
        "groups/all_right",
        "groups/all_wrong",
        "groups/truncated",
        "groups/unjudged",
        "rollout/length_mean",
        "rollout/entropy",
        "rollout/truncated",
        "verdict/right",
        "verdict/wrong",
        "verdict/unjudged",
        "behaviour/repetition",
        "behaviour/bare_answer",
        "behaviour/skipped_steps",
        "behaviour/forgotten",
        "refill/silent",
        "logprob_gap/mean",
        "optimizer/skipped",
        "dictionary/fve_probe",
    }
)
_ADVICE_BY_CAUSE = {
    "all_right": "The problems are too easy by now: train on higher levels, or leave "
    "out what is mastered.",
    "all_wrong": "The problems are too hard: train on lower levels, lengthen the warm "
    "start, or draw more samples per prompt.",
    "truncated": "Completions end before they answer: raise "
    "train.sampling.max_new_tokens.",
    "unjudged": "The verifier could not judge them: read the reasons in rollouts/, and "
    "check the golds and verifier.timeout_s.",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Alarm:
    """One thing that goes wrong: a stable code, the step, what is seen, what to do."""

    code: str
    step: int
    finding: str
    advice: str

    def __str__(self) -> str:
        """Returns the alarm as one line of the log."""
        return f"step {self.step}: {self.code}: {self.finding} {self.advice}"


def new_state() -> dict[str, Any]:
    """Returns the state before the first step: plain JSON, fit for a checkpoint.

    `first` and `recent` are rows of metrics, `held` the step at which each alarm's
    condition last held.
    """
    return {"seen": 0, "first": [], "recent": [], "held": {}}


def examine(
    state: Mapping[str, Any],
    step: int,
    metrics: Mapping[str, float | None],
    *,
    window: int,
    max_logprob_gap: float,
    max_fve_drop: float,
) -> tuple[dict[str, Any], list[Alarm]]:
    """Returns the state after this step and the alarms that it raises.

    An alarm is raised when its condition begins to hold, and again only after the
    condition has been gone for a whole window. `state` is not modified.
    """
    row = {
        name: float(value)
        for name, value in metrics.items()
        if value is not None
        and (name in _NAMES or _LEVEL.fullmatch(name) or _BAND.fullmatch(name))
    }
    seen = state["seen"] + 1
    few = min(_FEW_STEPS, window)
    first = [*state["first"], row][:few]
    recent = [*state["recent"], row][-window:]

    found = [*_skipped(recent), *_logprob_gap(row, max_logprob_gap)]
    found += _outgrown(first, row, max_fve_drop)
    if seen >= window:
        found += [*_no_signal(recent), *_truncated(recent), *_unjudged(recent)]
        found += [*_repetition(recent), *_forgetting(recent), *_refill(recent)]
    if seen >= 2 * few:
        latest = recent[-few:]
        found += [
            *_length_collapse(first, latest),
            *_shortcuts(first, latest),
            *_entropy_collapse(first, latest),
        ]

    held = dict(state["held"])
    alarms = []
    for code, finding, advice in found:
        if code not in held or step - held[code] > window:
            alarms.append(Alarm(code=code, step=step, finding=finding, advice=advice))
        held[code] = step
    return {"seen": seen, "first": first, "recent": recent, "held": held}, alarms


def review(
    records: Iterable[Mapping[str, Any]],
    *,
    window: int,
    max_logprob_gap: float,
    max_fve_drop: float,
) -> list[Alarm]:
    """Returns the alarms of a whole run, from the training lines of metrics.jsonl."""
    state, alarms = new_state(), []
    for record in records:
        metrics = {k: v for k, v in record.items() if "/" in k}
        state, raised = examine(
            state,
            record["step"],
            metrics,
            window=window,
            max_logprob_gap=max_logprob_gap,
            max_fve_drop=max_fve_drop,
        )
        alarms += raised
    return alarms


# A check yields (code, finding, advice) where its condition holds, else nothing.
_Found = Iterator[tuple[str, str, str]]


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return sum(values) / len(values) if values else None


def _levels(rows: Sequence[Row]) -> list[int]:
    matches = [_LEVEL.fullmatch(name) for row in rows for name in row]
    return sorted({int(match[1]) for match in matches if match})


def _bands(rows: Sequence[Row]) -> list[str]:
    matches = [_BAND.fullmatch(name) for row in rows for name in row]
    return sorted({match[1] for match in matches if match})


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _no_signal(recent: Sequence[Row]) -> _Found:
    split = _mean(recent, "groups/split")
    if split is None or split >= _MIN_SPLIT:
        return
    shares = {c: _mean(recent, f"groups/{c}") or 0.0 for c in _ADVICE_BY_CAUSE}
    causes = ", ".join(
        f"{_percent(share)} {cause.replace('_', ' ')}"
        for cause, share in sorted(shares.items(), key=lambda item: -item[1])
        if share > 0
    )
    levels = "; ".join(
        f"level {level} {_percent(level_split)} at pass rate {level_pass:.2f}"
        for level in _levels(recent)
        if (level_split := _mean(recent, f"level_{level}/split")) is not None
        and (level_pass := _mean(recent, f"level_{level}/pass")) is not None
    )
    finding = (
        f"No learning signal: over the last {len(recent)} steps only "
        f"{_percent(split)} of groups had completions of different reward; {causes}."
    )
    if levels:
        finding += f" Groups with signal: {levels}."
    yield "no_signal", finding, _ADVICE_BY_CAUSE[max(shares, key=shares.__getitem__)]


def _length_collapse(first: Sequence[Row], latest: Sequence[Row]) -> _Found:
    names = {"completions": "rollout/length_mean"} | {
        f"level {level}": f"level_{level}/length" for level in _levels(latest)
    }
    names |= {f"band {band}": f"band_{band}/length" for band in _bands(latest)}
    fallen = []
    for where, name in names.items():
        before, now = _mean(first, name), _mean(latest, name)
        if before is not None and now is not None and now < _LENGTH_COLLAPSE * before:
            fallen.append(f"{where}: {before:.1f} to {now:.1f}")
    if not fallen:
        return
    yield (
        "length_collapse",
        "Completions are less than half as long as at the start (mean tokens of "
        + ", ".join(fallen)
        + ").",
        "Accuracy tends to fall next: see in rollouts/ whether short answers earn "
        "the reward without the steps.",
    )


def _entropy_collapse(first: Sequence[Row], latest: Sequence[Row]) -> _Found:
    before = _mean(first, "rollout/entropy")
    now = _mean(latest, "rollout/entropy")
    if before is None or now is None or now >= _ENTROPY_COLLAPSE * before:
        return
    yield (
        "entropy_collapse",
        f"Entropy fell from {before:.3f} to {now:.3f} nats a token: the policy "
        "hardly explores any more.",
        "Lower train.optimizer.learning_rate, raise train.loss.clip_high or set "
        "train.loss.entropy_coef.",
    )


def _logprob_gap(row: Row, limit: float) -> _Found:
    gap = row.get("logprob_gap/mean", 0.0)
    if gap <= _GAP_NEAR_LIMIT * limit:
        return
    yield (
        "logprob_gap",
        f"Sampler and update disagree on log-probabilities by {gap:.3f} nats a "
        f"token; the run stops at {limit:g}.",
        "Compute in float32, or compare the sampler's settings with the update's.",
    )


def _outgrown(first: Sequence[Row], row: Row, limit: float) -> _Found:
    name = "dictionary/fve_probe"
    before, now = _mean(first, name), row.get(name)
    if before is None or now is None or before - now <= limit:
        return
    yield (
        "dictionary_outgrown",
        f"The frozen autoencoder explains {_percent(now)} of the stream's variance, "
        f"{_percent(before)} at the start: the policy has moved away from it.",
        "Trust its features less from here on; train another on the newest checkpoint "
        "(docs/features.md).",
    )


def _skipped(recent: Sequence[Row]) -> _Found:
    count = sum(row.get("optimizer/skipped", 0.0) for row in recent)
    if count == 0:
        return
    yield (
        "skipped_steps",
        f"Optimizer updates skipped within the last {len(recent)} steps: {count:g}; "
        "their gradient was not finite.",
        "Lower train.optimizer.learning_rate; the run stops at "
        "train.optimizer.max_skipped in a row.",
    )


def _truncated(recent: Sequence[Row]) -> _Found:
    share = _mean(recent, "rollout/truncated")
    if share is None or share <= _MAX_TRUNCATED:
        return
    yield (
        "truncation",
        f"{_percent(share)} of completions ran into the length limit over the last "
        f"{len(recent)} steps and could not finish.",
        "Raise train.sampling.max_new_tokens, or see in rollouts/ whether they "
        "repeat themselves.",
    )


def _unjudged(recent: Sequence[Row]) -> _Found:
    means = [
        _mean(recent, f"verdict/{s}") or 0.0 for s in ("right", "wrong", "unjudged")
    ]
    if sum(means) == 0 or means[2] / sum(means) <= _MAX_UNJUDGED:
        return
    yield (
        "unjudged",
        f"{_percent(means[2] / sum(means))} of completions could not be "
        f"judged over the last {len(recent)} steps.",
        "Read the reasons in rollouts/; check the golds and verifier.timeout_s.",
    )


def _shortcuts(first: Sequence[Row], latest: Sequence[Row]) -> _Found:
    names = ("behaviour/bare_answer", "behaviour/skipped_steps")
    before, now = (
        sum(_mean(rows, n) or 0.0 for n in names) for rows in (first, latest)
    )
    if now - before <= _MORE_SHORTCUTS:
        return
    yield (
        "shortcuts",
        f"{_percent(now)} of completions answer without the steps, "
        f"{_percent(before)} at the start.",
        "A right answer pays however it was found, and accuracy tends to fall next: "
        "leave out the problems that reward it (curriculum.name), or guard against "
        "luck (train.advantage.guard).",
    )


def _repetition(recent: Sequence[Row]) -> _Found:
    share = _mean(recent, "behaviour/repetition")
    if share is None or share <= _MAX_REPETITION:
        return
    yield (
        "repetition",
        f"{_percent(share)} of completions repeat themselves over the last "
        f"{len(recent)} steps.",
        "Lower train.optimizer.learning_rate, or punish length with "
        "train.overlong_buffer.",
    )


def _forgetting(recent: Sequence[Row]) -> _Found:
    share = _mean(recent, "behaviour/forgotten")
    if share is None or share <= _MAX_FORGOTTEN:
        return
    yield (
        "forgetting",
        f"{_percent(share)} of completions over the last {len(recent)} steps are wrong "
        "on problems that were solved when last asked.",
        "Lower train.optimizer.learning_rate, or set curriculum.name=replay.",
    )


def _refill(recent: Sequence[Row]) -> _Found:
    share = _mean(recent, "refill/silent") or 0.0
    if share == 0.0:
        return
    yield (
        "refill_short",
        f"After all refills {_percent(share)} of groups over the last {len(recent)} "
        "steps still held no signal; the run goes on with them.",
        "Raise curriculum.refill_rounds, or choose a curriculum that asks what the "
        "policy can half do.",
    )
