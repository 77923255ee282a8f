"""A training step in numbers: overall, by band, level, type and strategy; and a run."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_jax.config import Config
from rlvr_jax.metrics import doctor
from rlvr_jax.metrics.statistics import pass_at_k
from rlvr_jax.rollouts.behavior import FLAGS
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import BANDS

_STATUSES = ("correct", "incorrect", "unverified")
_CAUSES = ("nonzero_std", "all_correct", "all_incorrect", "truncated", "unverified")


def rollout_metrics(
    graded: Sequence[GradedCompletion],
    *,
    rewards_PG: np.ndarray,
    advantages_PG: np.ndarray,
    has_signal_P: np.ndarray,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of one step's rollouts, graded, in group-major order.

    Bands, levels, types and strategies that the step did not meet are absent, and so is
    pass@k where no group has k verdicts. `has_signal_P` says which groups hold correct
    and incorrect completions, whatever the shaped reward; a band is that of the problem
    before the step.
    """
    P, G = rewards_PG.shape
    groups = [graded[p * G : (p + 1) * G] for p in range(P)]
    lengths_B = np.array([completion.length for completion in graded])
    metrics = {
        "reward/mean": float(rewards_PG.mean()),
        "reward/std": float(rewards_PG.std()),
        "rollout/length_mean": float(lengths_B.mean()),
        "rollout/truncated": _fraction(
            not completion.finished for completion in graded
        ),
        **{
            f"verdict/{status}": _fraction(
                completion.verdict.status == status for completion in graded
            )
            for status in _STATUSES
        },
        **_groups_by_cause(groups, has_signal_P),
        **_pass_curve(groups, k),
        **_flag_rates(graded),
    }
    mass_P = np.abs(advantages_PG).sum(axis=1)
    total_mass = max(float(mass_P.sum()), 1e-9)
    for level in sorted({group[0].problem.level for group in groups}):
        at_P = np.array([group[0].problem.level == level for group in groups])
        rows = [
            completion for completion in graded if completion.problem.level == level
        ]
        metrics |= {
            f"level_{level}/pass": _fraction(
                _is_correct(completion) for completion in rows
            ),
            f"level_{level}/nonzero_std": float(has_signal_P[at_P].mean()),
            f"level_{level}/length": float(
                np.mean([completion.length for completion in rows])
            ),
            f"level_{level}/advantage_mass": float(mass_P[at_P].sum()) / total_mass,
        }
    for band in BANDS:
        at_P = np.array([group[0].band == band for group in groups])
        if at_P.any():
            band_metrics = _band_metrics(
                [group for group, at in zip(groups, at_P, strict=True) if at],
                rewards_PG[at_P],
                has_signal_P[at_P],
                k=k,
            )
            band_metrics["share"] = float(at_P.mean())
            band_metrics["advantage_mass"] = float(mass_P[at_P].sum()) / total_mass
            metrics |= {
                f"band_{band}/{name}": value for name, value in band_metrics.items()
            }
    return metrics | _type_metrics(groups)


def _band_metrics(
    groups: Sequence[Sequence[GradedCompletion]],
    rewards_PG: np.ndarray,
    has_signal_P: np.ndarray,
    *,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of one band's groups, without the band_NAME/ prefix."""
    rows = [completion for group in groups for completion in group]
    named = _groups_by_cause(groups, has_signal_P) | _flag_rates(rows)
    named |= _pass_curve(groups, k)
    return {
        "reward": float(rewards_PG.mean()),
        "pass": _fraction(_is_correct(completion) for completion in rows),
        "length": float(np.mean([completion.length for completion in rows])),
        **{name.split("/")[1]: value for name, value in named.items()},
    }


def _pass_curve(
    groups: Sequence[Sequence[GradedCompletion]], k: Sequence[int]
) -> dict[str, float]:
    """Returns pass@k over the groups that have k verdicts, for each such k."""
    verified = [
        [g for g in group if g.verdict.status != "unverified"] for group in groups
    ]
    n_P = np.array([len(group) for group in verified])
    c_P = np.array(
        [sum(_is_correct(completion) for completion in group) for group in verified]
    )
    return {
        f"rollout/pass@{i}": float(np.mean(pass_at_k(n_P[n_P >= i], c_P[n_P >= i], i)))
        for i in k
        if (n_P >= i).any()
    }


def _flag_rates(graded: Sequence[GradedCompletion]) -> dict[str, float]:
    """Returns the share of completions that carry each flag."""
    return {
        f"behavior/{flag}": _fraction(flag in completion.flags for completion in graded)
        for flag in FLAGS
    }


def run_summary(rows: Sequence[Mapping[str, Any]], config: Config) -> dict[str, Any]:
    """Returns what summary.json says of a run's training steps, from metrics.jsonl.

    The gap between sampler and scorer is a mean over steps, in nats a token; a skipped
    step has none. Verdicts count the completions that were learned from.
    """
    steps = [row for row in rows if row["stage"] == "train"]
    gaps = {
        name: [row[key] for row in steps if row[key] is not None]
        for name, key in (
            ("mean", "logprob_mismatch/mean"),
            ("max", "logprob_mismatch/max"),
        )
    }
    completions = config.train.batch_size * config.train.group_size
    alarms = doctor.check_run(
        steps,
        window=config.log.alarm_window,
        max_logprob_mismatch=config.train.max_logprob_mismatch,
        max_explained_variance_drop=config.probe.max_explained_variance_drop,
    )
    return {
        "logprob_mismatch": {
            "mean": float(np.mean(gaps["mean"])) if gaps["mean"] else None,
            "max": max(gaps["max"], default=None),
        },
        "verdicts": {
            status: sum(round(row[f"verdict/{status}"] * completions) for row in steps)
            for status in _STATUSES
        },
        "alarms": [dataclasses.asdict(alarm) for alarm in alarms],
    }


def _groups_by_cause(
    groups: Sequence[Sequence[GradedCompletion]], has_signal_P: np.ndarray
) -> dict[str, float]:
    """Returns the share of groups with a signal, and of silent ones by their cause."""
    causes: collections.Counter[str] = collections.Counter()
    for group, split in zip(groups, has_signal_P, strict=True):
        if split:
            causes["nonzero_std"] += 1
        elif all(_is_correct(completion) for completion in group):
            causes["all_correct"] += 1
        elif any(completion.verdict.status == "unverified" for completion in group):
            causes["unverified"] += 1
        elif not any(completion.finished for completion in group):
            causes["truncated"] += 1
        else:
            causes["all_incorrect"] += 1
    return {f"groups/{name}": causes[name] / len(groups) for name in _CAUSES}


def _type_metrics(groups: Sequence[Sequence[GradedCompletion]]) -> dict[str, float]:
    metrics = {}
    for name in sorted({group[0].problem.type for group in groups} - {""}):
        of_type = [group for group in groups if group[0].problem.type == name]
        rows = [completion for group in of_type for completion in group]
        metrics[f"type_{name}/pass"] = _fraction(
            _is_correct(completion) for completion in rows
        )
        for strategy in sorted(
            {completion.strategy for completion in rows if completion.strategy}
        ):
            used = [
                completion for completion in rows if completion.strategy == strategy
            ]
            metrics[f"strategy_{name}/{strategy}"] = len(used) / len(rows)
            metrics[f"strategy_{name}/{strategy}_pass"] = _fraction(
                _is_correct(completion) for completion in used
            )
        if any(completion.strategy for completion in rows):
            metrics[f"strategy_{name}/entropy"] = float(
                np.mean([_strategy_entropy(group) for group in of_type])
            )
    return metrics


def _strategy_entropy(group: Sequence[GradedCompletion]) -> float:
    """Returns the entropy, in nats, of the strategies in one problem's completions.

    0: all of one strategy; at most the logarithm of their number.
    """
    counts = collections.Counter(completion.strategy for completion in group)
    shares = np.array([*counts.values()]) / len(group)
    return float(-(shares * np.log(shares)).sum())


def _is_correct(completion: GradedCompletion) -> bool:
    return completion.verdict.status == "correct"


def _fraction(flags: Iterable[bool]) -> float:
    return float(np.mean([bool(flag) for flag in flags]))
