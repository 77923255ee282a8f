"""A training step in numbers: overall, by band, level, type and strategy; and a run."""

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlvr_jax import doctor
from rlvr_jax.behaviour import FLAGS
from rlvr_jax.config import Config
from rlvr_jax.evaluate import Judged, pass_at_k
from rlvr_jax.types import BANDS

_STATUSES = ("right", "wrong", "unjudged")
_CAUSES = ("split", "all_right", "all_wrong", "truncated", "unjudged")


def rollout_metrics(
    judged: Sequence[Judged],
    *,
    rewards_PG: np.ndarray,
    advantages_PG: np.ndarray,
    split_P: np.ndarray,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of one step's rollouts, judged in group-major order.

    Bands, levels, types and strategies that the step did not meet are absent, and so is
    pass@k where no group has k verdicts. A group's `split` is judged on its verdicts,
    never on the shaped reward. A band is where its problem stood before the step.
    """
    P, G = rewards_PG.shape
    groups = [judged[p * G : (p + 1) * G] for p in range(P)]
    lengths_B = np.array([one.length for one in judged])
    metrics = {
        "reward/mean": float(rewards_PG.mean()),
        "reward/std": float(rewards_PG.std()),
        "rollout/length_mean": float(lengths_B.mean()),
        "rollout/truncated": _share(not one.finished for one in judged),
        **{
            f"verdict/{status}": _share(one.verdict.status == status for one in judged)
            for status in _STATUSES
        },
        **_groups_by_cause(groups, split_P),
        **_pass_curve(groups, k),
        **_behaviour(judged),
    }
    mass_P = np.abs(advantages_PG).sum(axis=1)
    total_mass = max(float(mass_P.sum()), 1e-9)
    for level in sorted({group[0].problem.level for group in groups}):
        at_P = np.array([group[0].problem.level == level for group in groups])
        rows = [one for one in judged if one.problem.level == level]
        metrics |= {
            f"level_{level}/pass": _share(_is_right(one) for one in rows),
            f"level_{level}/split": float(split_P[at_P].mean()),
            f"level_{level}/length": float(np.mean([one.length for one in rows])),
            f"level_{level}/advantage_mass": float(mass_P[at_P].sum()) / total_mass,
        }
    for band in BANDS:
        at_P = np.array([group[0].band == band for group in groups])
        if at_P.any():
            found = _of_band(
                [group for group, at in zip(groups, at_P, strict=True) if at],
                rewards_PG[at_P],
                split_P[at_P],
                k=k,
            )
            found["share"] = float(at_P.mean())
            found["advantage_mass"] = float(mass_P[at_P].sum()) / total_mass
            metrics |= {f"band_{band}/{name}": value for name, value in found.items()}
    return metrics | _by_type(judged)


def _of_band(
    groups: Sequence[Sequence[Judged]],
    rewards_PG: np.ndarray,
    split_P: np.ndarray,
    *,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of one band's groups, by their last names."""
    rows = [one for group in groups for one in group]
    named = _groups_by_cause(groups, split_P) | _behaviour(rows)
    named |= _pass_curve(groups, k)
    return {
        "reward": float(rewards_PG.mean()),
        "pass": _share(_is_right(one) for one in rows),
        "length": float(np.mean([one.length for one in rows])),
        **{name.split("/")[1]: value for name, value in named.items()},
    }


def _pass_curve(
    groups: Sequence[Sequence[Judged]], k: Sequence[int]
) -> dict[str, float]:
    """Returns pass@k over the groups that have k verdicts, for each such k."""
    judged = [[one for one in g if one.verdict.status != "unjudged"] for g in groups]
    n_P = np.array([len(group) for group in judged])
    c_P = np.array([sum(_is_right(one) for one in group) for group in judged])
    return {
        f"rollout/pass@{each}": float(
            np.mean(pass_at_k(n_P[n_P >= each], c_P[n_P >= each], each))
        )
        for each in k
        if (n_P >= each).any()
    }


def _behaviour(judged: Sequence[Judged]) -> dict[str, float]:
    """Returns the share of completions that carry each flag."""
    return {
        f"behaviour/{flag}": _share(flag in one.flags for one in judged)
        for flag in FLAGS
    }


def run_summary(rows: Sequence[Mapping[str, Any]], config: Config) -> dict[str, Any]:
    """Returns what summary.json says of a run's training steps, from metrics.jsonl.

    The gap between sampler and scorer is a mean over steps, in nats a token; a skipped
    step has none. Verdicts count the completions that were learnt from.
    """
    steps = [row for row in rows if row["stage"] == "train"]
    gaps = {
        name: [row[key] for row in steps if row[key] is not None]
        for name, key in (("mean", "logprob_gap/mean"), ("max", "logprob_gap/max"))
    }
    completions = config.train.prompts_per_step * config.train.samples_per_prompt
    alarms = doctor.review(
        steps,
        window=config.log.alarm_window,
        max_logprob_gap=config.train.max_logprob_gap,
        max_fve_drop=config.probe.max_fve_drop,
    )
    return {
        "logprob_gap": {
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
    groups: Sequence[Sequence[Judged]], split_P: np.ndarray
) -> dict[str, float]:
    """Returns the share of groups with a signal, and of silent ones by their cause."""
    causes: collections.Counter[str] = collections.Counter()
    for group, split in zip(groups, split_P, strict=True):
        if split:
            causes["split"] += 1
        elif all(_is_right(one) for one in group):
            causes["all_right"] += 1
        elif any(one.verdict.status == "unjudged" for one in group):
            causes["unjudged"] += 1
        elif not any(one.finished for one in group):
            causes["truncated"] += 1
        else:
            causes["all_wrong"] += 1
    return {f"groups/{name}": causes[name] / len(groups) for name in _CAUSES}


def _by_type(judged: Sequence[Judged]) -> dict[str, float]:
    metrics = {}
    for name in sorted({one.problem.type for one in judged} - {""}):
        rows = [one for one in judged if one.problem.type == name]
        metrics[f"type_{name}/pass"] = _share(_is_right(one) for one in rows)
        for strategy in sorted({one.strategy for one in rows if one.strategy}):
            used = [one for one in rows if one.strategy == strategy]
            metrics[f"strategy_{name}/{strategy}"] = len(used) / len(rows)
            metrics[f"strategy_{name}/{strategy}_pass"] = _share(
                _is_right(one) for one in used
            )
    return metrics


def _is_right(one: Judged) -> bool:
    return one.verdict.status == "right"


def _share(flags: Iterable[bool]) -> float:
    return float(np.mean([bool(flag) for flag in flags]))
