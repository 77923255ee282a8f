"""The run doctor on another trainer's log.

Each row is translated to our metrics and goes through the same checks as our own runs
(`metrics.doctor`), then through the few checks of `other_trainers.symptoms`. A window
counts rows of the log.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

from rlvr_jax.metrics.doctor import Alarm, DoctorState, check_step, raise_alarms
from rlvr_jax.metrics.step_metrics import step_mean
from rlvr_jax.other_trainers.log import Log
from rlvr_jax.other_trainers.symptoms import (
    Quantities,
    RewardHistory,
    find_nonfinite,
    find_symptoms,
    signal_share,
)

_SIGNAL = (
    ("same_reward",),
    ("solved_none", "solved_all"),
    ("advantage_low", "advantage_high"),
    ("reward_std",),
)
# Each check with the quantities that it needs: all of one of the tuples.
CHECKS: Mapping[str, Sequence[Sequence[str]]] = {
    "no_ending": (("truncated", "reward"),),
    "truncation": (("truncated",),),
    "no_signal": _SIGNAL,
    "rare_gradient": (("grad_norm",), *_SIGNAL),
    "length_collapse": (("length",),),
    "entropy_collapse": (("entropy",),),
    "reward_collapse": (("reward",),),
    "logprob_mismatch": (("logprob_mismatch",), ("prob_mismatch",), ("sampler_kl",)),
    "nonfinite": (("grad_norm",), ("loss",), ("reward",)),
}

_NO_GRADIENT = 1e-5  # a smaller norm comes from rounding
_NEARLY_ALL = 0.9  # of groups, or of a reward between 0 and 1
_MOSTLY_TRUNCATED = 0.5
# Findings to which the mean reward is added.
_WITH_REWARD = frozenset({"truncation", "no_signal", "no_ending"})


def check_log(log: Log, *, window: int) -> list[Alarm]:
    """Returns the findings about a log, each at the step where its condition begins."""
    rows = [_without_nan_reward(row) for row in log.rows]
    is_share = _has_share_rewards(rows)
    state, history, findings = DoctorState(), RewardHistory(window), []
    for at, row in enumerate(rows):
        recent = rows[max(0, at + 1 - window) : at + 1]
        if "reward" in row:
            history.append(row["reward"])
        state, alarms = check_step(
            state,
            at,
            _translate(row),
            total_steps=len(log.rows),
            window=window,
            max_logprob_mismatch=math.inf,
            max_unexplained_growth=math.inf,
            max_splice_cost=math.inf,
        )
        symptoms = [*find_nonfinite(log.rows[at])]
        symptoms += find_symptoms(recent, num_steps=at + 1, window=window)
        symptoms += history.find_collapse(is_share=is_share)
        held, more = raise_alarms(state.last_active, at, symptoms, window=window)
        state = dataclasses.replace(state, last_active=held)
        findings += [
            _complete(alarm, log, recent, is_share=is_share)
            for alarm in (*alarms, *more)
        ]
    return findings


def split_checks(log: Log) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the checks that were made, and for each missing metric those that not."""
    present, trainer = log.quantities(), log.trainer
    made: list[str] = []
    missing: dict[str, list[str]] = {}
    for code, alternatives in CHECKS.items():
        if any(present.issuperset(needs) for needs in alternatives):
            made.append(code)
            continue
        known = [needs for needs in alternatives if trainer.names.keys() >= {*needs}]
        needs = [n for n in (known or alternatives)[0] if n not in present]
        what = ", ".join(trainer.names.get(n, (n,))[0] for n in needs)
        hint = trainer.how_to_log.get(needs[0], "")
        missing.setdefault(f"{what}{hint and f' ({hint})'}", []).append(code)
    return made, missing


def _without_nan_reward(row: Quantities) -> Quantities:
    """Returns a row in which a mean reward, if there is one, is a number."""
    return {k: v for k, v in row.items() if k != "reward" or not math.isnan(v)}


def _has_share_rewards(rows: Sequence[Quantities]) -> bool:
    """Returns whether all rewards of the log are between 0 and 1."""
    names = ("reward", "reward_low", "reward_high")
    return all(0 <= row[name] <= 1 for row in rows for name in names if name in row)


def _translate(row: Quantities) -> dict[str, float]:
    """Returns a row with the names of our metrics."""
    names = {
        "reward": "reward/mean",
        "length": "rollout/length_mean",
        "truncated": "rollout/truncated",
        "entropy": "rollout/entropy",
        "grad_norm": "optimizer/grad_norm",
        "solved_all": "groups/all_correct",
        "solved_none": "groups/all_incorrect",
    }
    metrics = {ours: row[name] for name, ours in names.items() if name in row}
    signal = signal_share(row)
    if signal is not None:
        metrics["groups/nonzero_std"] = signal
    norm = metrics.get("optimizer/grad_norm", signal)
    if norm is not None:
        metrics["optimizer/grad_norm"] = 0.0 if abs(norm) < _NO_GRADIENT else norm
    return metrics


def _complete(
    alarm: Alarm, log: Log, recent: Sequence[Quantities], *, is_share: bool
) -> Alarm:
    """Returns the alarm at the log's step, with the reward and the trainer's advice."""
    finding, cause = alarm.finding, ""
    reward = step_mean(recent, "reward")
    if alarm.code in _WITH_REWARD and reward is not None:
        finding += f" The mean reward of these steps is {reward:.3g}."
    if alarm.code == "no_signal":
        cause = _find_cause(recent, reward if is_share else None)
        if cause == "all_correct":
            finding += " Nearly all completions are right."
        elif cause:
            finding += " Nearly all completions are wrong."
    return Alarm(
        code=alarm.code,
        step=log.steps[alarm.step],
        finding=finding,
        advice=log.trainer.advise(alarm.code, cause),
    )


def _find_cause(recent: Sequence[Quantities], reward: float | None) -> str:
    """Returns why groups have no signal, "" if the log does not show it."""
    none, solved = (step_mean(recent, n) for n in ("solved_none", "solved_all"))
    if none is None or solved is None:
        none, solved = (0.0, 0.0) if reward is None else (1 - reward, reward)
    if solved >= _NEARLY_ALL:
        return "all_correct"
    if none < _NEARLY_ALL:
        return ""
    truncated = step_mean(recent, "truncated") or 0.0
    return "truncated" if truncated >= _MOSTLY_TRUNCATED else "all_incorrect"
