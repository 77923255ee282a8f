"""The run doctor: says in plain words when a run stops learning, and why.

`check_step` looks at each training step's metrics and at the steps before it, and
raises alarms that accuracy alone would show too late: a policy that unlearns to reason
loses its length well before its accuracy (https://arxiv.org/abs/2605.28388). It reads

    groups/nonzero_std, groups/all_correct, groups/all_incorrect, groups/truncated,
    groups/unverified
        shares of all groups: those with a learning signal, and the silent ones by
        cause, each group under one cause, so that the five add up to 1
    level_{n}/pass, level_{n}/nonzero_std, level_{n}/length, band_{name}/length
    rollout/length_mean, rollout/entropy, rollout/truncated
    verdict/correct, verdict/incorrect, verdict/unverified
    behavior/repetition, behavior/bare_answer, behavior/skipped_steps,
    behavior/forgotten, dynamic_sampling/zero_variance
    logprob_mismatch/mean, optimizer/skipped
    sae/fve_reference

and leaves out what a step does not have.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

StepMetrics = Mapping[str, float]

# Below this share of groups with a signal, a step's gradient is mostly noise.
_MIN_SIGNAL = 0.10
# Length and entropy are compared between the first and the latest few steps: one step
# is noisy, and a whole window sees a collapse too late.
_FEW_STEPS = 5
_LENGTH_COLLAPSE = 0.5  # of the first steps' mean
_ENTROPY_COLLAPSE = 0.1  # of the first steps' mean
_MISMATCH_NEAR_LIMIT = 0.5  # of the limit that stops the run
_MAX_TRUNCATED = 0.25  # of completions
_MAX_UNVERIFIED = 0.05  # of completions
_MAX_REPETITION = 0.2  # of completions
_MAX_FORGOTTEN = 0.1  # of completions
_MAX_SHORTCUT_RISE = 0.2  # of completions, beyond the first steps' share

_LEVEL = re.compile(r"level_(\d+)/(pass|nonzero_std|length)")
_BAND = re.compile(r"band_(\w+)/length")
_NAMES = frozenset(
    {
        "groups/nonzero_std",
        "groups/all_correct",
        "groups/all_incorrect",
        "groups/truncated",
        "groups/unverified",
        "rollout/length_mean",
        "rollout/entropy",
        "rollout/truncated",
        "verdict/correct",
        "verdict/incorrect",
        "verdict/unverified",
        "behavior/repetition",
        "behavior/bare_answer",
        "behavior/skipped_steps",
        "behavior/forgotten",
        "dynamic_sampling/zero_variance",
        "logprob_mismatch/mean",
        "optimizer/skipped",
        "sae/fve_reference",
    }
)
_ADVICE_BY_CAUSE = {
    "all_correct": "The problems are too easy by now: train on higher levels, or leave "
    "out what is mastered.",
    "all_incorrect": "The problems are too hard: train on lower levels, lengthen the "
    "warm "
    "start, or draw more samples per prompt.",
    "truncated": "Completions end before they answer: raise "
    "train.sampling.max_new_tokens.",
    "unverified": "The verifier could not judge them: read the reasons in rollouts/, "
    "and "
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoctorState:
    """What the alarms of the next step depend on.

    `first` and `recent` are metrics of the first and the latest steps, `last_active`
    the step at which each alarm's condition last held.
    """

    num_steps: int = 0
    first: Sequence[StepMetrics] = ()
    recent: Sequence[StepMetrics] = ()
    last_active: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns the state as plain JSON."""
        return {
            "num_steps": self.num_steps,
            "first": [dict(row) for row in self.first],
            "recent": [dict(row) for row in self.recent],
            "last_active": dict(self.last_active),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Returns the state that `to_json` wrote."""
        first, recent = tuple(data["first"]), tuple(data["recent"])
        return cls(**{**data, "first": first, "recent": recent})


def check_step(
    state: DoctorState,
    step: int,
    metrics: Mapping[str, float | None],
    *,
    window: int,
    max_logprob_mismatch: float,
    max_explained_variance_drop: float,
) -> tuple[DoctorState, list[Alarm]]:
    """Returns the state after this step and the alarms that it raises.

    An alarm is raised when its condition begins to hold, and again only after the
    condition has been gone for a whole window.
    """
    row = {
        name: float(value)
        for name, value in metrics.items()
        if value is not None
        and (name in _NAMES or _LEVEL.fullmatch(name) or _BAND.fullmatch(name))
    }
    seen = state.num_steps + 1
    few = min(_FEW_STEPS, window)
    first = (*state.first, row)[:few]
    recent = (*state.recent, row)[-window:]

    found = [*_skipped_updates(recent), *_logprob_mismatch(row, max_logprob_mismatch)]
    found += _sae_stale(first, row, max_explained_variance_drop)
    if seen >= window:
        found += [*_no_signal(recent), *_truncated(recent), *_unverified(recent)]
        found += [
            *_repetition(recent),
            *_forgetting(recent),
            *_dynamic_sampling_short(recent),
        ]
    if seen >= 2 * few:
        latest = recent[-few:]
        found += [
            *_length_collapse(first, latest),
            *_shortcuts(first, latest),
            *_entropy_collapse(first, latest),
        ]

    held = dict(state.last_active)
    alarms = []
    for code, finding, advice in found:
        if code not in held or step - held[code] > window:
            alarms.append(Alarm(code=code, step=step, finding=finding, advice=advice))
        held[code] = step
    new_state = DoctorState(
        num_steps=seen, first=first, recent=recent, last_active=held
    )
    return new_state, alarms


def check_run(
    records: Iterable[Mapping[str, Any]],
    *,
    window: int,
    max_logprob_mismatch: float,
    max_explained_variance_drop: float,
) -> list[Alarm]:
    """Returns the alarms of a whole run, from the training lines of metrics.jsonl."""
    state, alarms = DoctorState(), []
    for record in records:
        metrics = {k: v for k, v in record.items() if "/" in k}
        state, raised = check_step(
            state,
            record["step"],
            metrics,
            window=window,
            max_logprob_mismatch=max_logprob_mismatch,
            max_explained_variance_drop=max_explained_variance_drop,
        )
        alarms += raised
    return alarms


# A check yields (code, finding, advice) where its condition holds, else nothing.
_Findings = Iterator[tuple[str, str, str]]


def _mean(rows: Sequence[StepMetrics], name: str) -> float | None:
    values = [row[name] for row in rows if name in row]
    return sum(values) / len(values) if values else None


def _levels(rows: Sequence[StepMetrics]) -> list[int]:
    matches = [_LEVEL.fullmatch(name) for row in rows for name in row]
    return sorted({int(match[1]) for match in matches if match})


def _bands(rows: Sequence[StepMetrics]) -> list[str]:
    matches = [_BAND.fullmatch(name) for row in rows for name in row]
    return sorted({match[1] for match in matches if match})


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _no_signal(recent: Sequence[StepMetrics]) -> _Findings:
    split = _mean(recent, "groups/nonzero_std")
    if split is None or split >= _MIN_SIGNAL:
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
        if (level_split := _mean(recent, f"level_{level}/nonzero_std")) is not None
        and (level_pass := _mean(recent, f"level_{level}/pass")) is not None
    )
    finding = (
        f"No learning signal: over the last {len(recent)} steps only "
        f"{_percent(split)} of groups had completions of different reward; {causes}."
    )
    if levels:
        finding += f" Groups with signal: {levels}."
    yield "no_signal", finding, _ADVICE_BY_CAUSE[max(shares, key=shares.__getitem__)]


def _length_collapse(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> _Findings:
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


def _entropy_collapse(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> _Findings:
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


def _logprob_mismatch(row: StepMetrics, limit: float) -> _Findings:
    gap = row.get("logprob_mismatch/mean", 0.0)
    if gap <= _MISMATCH_NEAR_LIMIT * limit:
        return
    yield (
        "logprob_mismatch",
        f"Sampler and update disagree on log-probabilities by {gap:.3f} nats a "
        f"token; the run stops at {limit:g}.",
        "Compute in float32, or compare the sampler's settings with the update's.",
    )


def _sae_stale(
    first: Sequence[StepMetrics], row: StepMetrics, limit: float
) -> _Findings:
    name = "sae/fve_reference"
    before, now = _mean(first, name), row.get(name)
    if before is None or now is None or before - now <= limit:
        return
    yield (
        "sae_stale",
        f"The frozen autoencoder explains {_percent(now)} of the stream's variance, "
        f"{_percent(before)} at the start: the policy has moved away from it.",
        "Trust its features less from here on; train another on the newest checkpoint "
        "(docs/features.md).",
    )


def _skipped_updates(recent: Sequence[StepMetrics]) -> _Findings:
    count = sum(row.get("optimizer/skipped", 0.0) for row in recent)
    if count == 0:
        return
    yield (
        "skipped_steps",
        f"Optimizer updates skipped within the last {len(recent)} steps: {count:g}; "
        "their gradient was not finite.",
        "Lower train.optimizer.learning_rate; the run stops at "
        "train.optimizer.max_consecutive_nonfinite in a row.",
    )


def _truncated(recent: Sequence[StepMetrics]) -> _Findings:
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


def _unverified(recent: Sequence[StepMetrics]) -> _Findings:
    means = [
        _mean(recent, f"verdict/{s}") or 0.0
        for s in ("correct", "incorrect", "unverified")
    ]
    if sum(means) == 0 or means[2] / sum(means) <= _MAX_UNVERIFIED:
        return
    yield (
        "unverified",
        f"{_percent(means[2] / sum(means))} of completions could not be "
        f"judged over the last {len(recent)} steps.",
        "Read the reasons in rollouts/; check the golds and verifier.timeout_s.",
    )


def _shortcuts(
    first: Sequence[StepMetrics], latest: Sequence[StepMetrics]
) -> _Findings:
    names = ("behavior/bare_answer", "behavior/skipped_steps")
    before, now = (
        sum(_mean(rows, n) or 0.0 for n in names) for rows in (first, latest)
    )
    if now - before <= _MAX_SHORTCUT_RISE:
        return
    yield (
        "shortcuts",
        f"{_percent(now)} of completions answer without the steps, "
        f"{_percent(before)} at the start.",
        "A right answer pays however it was found, and accuracy tends to fall next: "
        "leave out the problems that reward it (curriculum.name), or guard against "
        "luck (train.advantage.overhard_advantage).",
    )


def _repetition(recent: Sequence[StepMetrics]) -> _Findings:
    share = _mean(recent, "behavior/repetition")
    if share is None or share <= _MAX_REPETITION:
        return
    yield (
        "repetition",
        f"{_percent(share)} of completions repeat themselves over the last "
        f"{len(recent)} steps.",
        "Lower train.optimizer.learning_rate, or punish length with "
        "train.overlong_buffer.",
    )


def _forgetting(recent: Sequence[StepMetrics]) -> _Findings:
    share = _mean(recent, "behavior/forgotten")
    if share is None or share <= _MAX_FORGOTTEN:
        return
    yield (
        "forgetting",
        f"{_percent(share)} of completions over the last {len(recent)} steps are wrong "
        "on problems that were solved when last asked.",
        "Lower train.optimizer.learning_rate, or set curriculum.name=replay.",
    )


def _dynamic_sampling_short(recent: Sequence[StepMetrics]) -> _Findings:
    share = _mean(recent, "dynamic_sampling/zero_variance") or 0.0
    if share == 0.0:
        return
    yield (
        "dynamic_sampling_short",
        f"After all refills {_percent(share)} of groups over the last {len(recent)} "
        "steps still held no signal; the run goes on with them.",
        "Raise dynamic_sampling.max_rounds, or choose a curriculum that asks what the "
        "policy can half do.",
    )
