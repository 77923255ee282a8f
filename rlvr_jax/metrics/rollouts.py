"""Metrics of a training step (overall, by band, level, type, strategy) and of a run."""

import collections
import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from job_jax.metrics_file import StageMetrics
from rlvr_jax.config import Config
from rlvr_jax.metrics import doctor
from rlvr_jax.metrics.luck import lucky_masses, positive_masses
from rlvr_jax.metrics.statistics import pass_at_k
from rlvr_jax.rollouts.behavior import FLAGS, FORMATS
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.types import BANDS, Band

_STATUSES = ("correct", "incorrect", "unverified")
_MIN_MASS = 1e-9
_CAUSES = ("nonzero_std", "all_correct", "all_incorrect", "truncated", "unverified")


def rollout_metrics(
    graded: Sequence[GradedCompletion],
    *,
    rewards_PG: np.ndarray,
    judged_PG: np.ndarray,
    advantages_PG: np.ndarray,
    has_signal_P: np.ndarray,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of one step's graded rollouts, given in group-major order.

    `has_signal_P` marks the groups with correct and incorrect completions, regardless
    of the shaped reward. Bands, levels, types and strategies that the step did not meet
    are absent, and so is pass@k if no group has k verdicts. Rewards are of groups with
    a judged completion (`judged_PG`): without any, `reward/mean` is 0 and
    `band_BAND/reward` absent.

    `advantage/zero_groups` is the share of groups in which all advantages are 0,
    regardless of verdicts. `verdict/reward_gap` is how much more correct completions
    earn than incorrect ones in their group, absent if no group has both. `band_BAND/`
    groups problems by telemetry band (before RL), `posterior_BAND/` by the posterior
    before the step. `format/...` covers completions with a verdict, and is absent
    without any. If the task checks steps, `.../wrong_steps_mass` and
    `.../guessed_start_mass` are shares of the advantage mass on correct completions
    whose steps do not justify the answer: see `lucky_masses` and `positive_masses`.
    """
    P, G = rewards_PG.shape
    groups = [graded[p * G : (p + 1) * G] for p in range(P)]
    lengths_B = np.array([completion.length for completion in graded])
    metrics = {
        "reward/mean": _mean_reward(rewards_PG, judged_PG),
        "reward/std": float(_judged_rewards(rewards_PG, judged_PG).std()),
        "advantage/zero_groups": float((advantages_PG == 0).all(axis=1).mean()),
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
        **_verifier_metrics(graded),
        **_reward_gap(groups, rewards_PG),
        **_groups_by_cause(groups, has_signal_P),
        **_pass_curve(groups, k),
        **_flag_rates(graded),
        **_format_metrics(graded),
        **_thinking_metrics(graded),
    }
    signal = {"has_signal_P": has_signal_P, "mass_PG": np.abs(advantages_PG)}
    metrics |= _level_metrics(groups, **signal)
    metrics |= _metrics_by_band(groups, rewards_PG, judged_PG, **signal, k=k)
    metrics |= _metrics_by_posterior(groups, **signal)
    lucky = lucky_masses(graded, np.abs(advantages_PG).reshape(-1))
    lucky |= positive_masses(graded, advantages_PG.reshape(-1))
    metrics |= {f"lucky/{name}": value for name, value in lucky.items()}
    return metrics | _type_metrics(groups)


def _thinking_metrics(graded: Sequence[GradedCompletion]) -> dict[str, float]:
    """Returns mean tokens of thinking and answer, and the share of unfinished thinking.

    Returns {} if thinking is off.
    """
    judged = [completion.judged_text for completion in graded]
    thought = [t.thinking_tokens for t in judged if t.thinking_tokens is not None]
    answered = [t.answer_tokens for t in judged if t.answer_tokens is not None]
    if not thought:
        return {}
    return {
        "rollout/thinking_tokens": float(np.mean(thought)),
        "rollout/answer_tokens": float(np.mean(answered)),
        "rollout/thinking_unfinished": _fraction(text.is_thinking for text in judged),
    }


def _verifier_metrics(graded: Sequence[GradedCompletion]) -> dict[str, float]:
    """Returns how often verifiers failed, by cause, and their times if measured."""
    verdicts = [completion.verdict for completion in graded]
    seconds = [v.seconds for v in verdicts if v.seconds is not None]
    metrics = {
        "verdict/time_limit": _fraction(v.failure == "time_limit" for v in verdicts),
        "verdict/failed": _fraction(v.failure == "error" for v in verdicts),
    }
    if seconds:
        metrics["time/verifier_mean_s"] = float(np.mean(seconds))
        metrics["time/verifier_max_s"] = max(seconds)
    return metrics


def _reward_gap(
    groups: Sequence[Sequence[GradedCompletion]], rewards_PG: np.ndarray
) -> dict[str, float]:
    """Returns the mean reward gap over the groups with both verdicts, equally weighted.

    Completions that could not be judged are in neither mean.
    """
    gaps = []
    for group, rewards_G in zip(groups, rewards_PG, strict=True):
        status_G = np.array([completion.verdict.status for completion in group])
        correct, incorrect = (
            rewards_G[status_G == status] for status in ("correct", "incorrect")
        )
        if len(correct) and len(incorrect):
            gaps.append(correct.mean() - incorrect.mean())
    return {"verdict/reward_gap": float(np.mean(gaps))} if gaps else {}


def _level_metrics(
    groups: Sequence[Sequence[GradedCompletion]],
    *,
    has_signal_P: np.ndarray,
    mass_PG: np.ndarray,
) -> dict[str, float]:
    """Returns pass rate, signal, length and advantage mass of each level."""
    metrics: dict[str, float] = {}
    for level in sorted({group[0].problem.level for group in groups}):
        at_P = np.array([group[0].problem.level == level for group in groups])
        rows = _flatten(groups, at_P)
        metrics |= {
            f"level_{level}/pass": _fraction(map(_is_correct, rows)),
            f"level_{level}/nonzero_std": float(has_signal_P[at_P].mean()),
            f"level_{level}/length": float(np.mean([c.length for c in rows])),
            f"level_{level}/advantage_mass": _mass_fraction(mass_PG, at_P),
        }
    return metrics


def _metrics_by_band(
    groups: Sequence[Sequence[GradedCompletion]],
    rewards_PG: np.ndarray,
    judged_PG: np.ndarray,
    *,
    has_signal_P: np.ndarray,
    mass_PG: np.ndarray,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of the step's groups, by telemetry band."""
    metrics: dict[str, float] = {}
    for band, at_P in _split_by_band([group[0].band for group in groups]):
        among = [group for group, at in zip(groups, at_P, strict=True) if at]
        values = _band_metrics(
            among, rewards_PG[at_P], judged_PG[at_P], has_signal_P[at_P], k=k
        )
        values |= lucky_masses(_flatten(groups, at_P), mass_PG[at_P].reshape(-1))
        values["share"] = float(at_P.mean())
        values["advantage_mass"] = _mass_fraction(mass_PG, at_P)
        metrics |= {f"band_{band}/{name}": value for name, value in values.items()}
    return metrics


def _metrics_by_posterior(
    groups: Sequence[Sequence[GradedCompletion]],
    *,
    has_signal_P: np.ndarray,
    mass_PG: np.ndarray,
) -> dict[str, float]:
    """Returns some of these metrics by the problems' posterior band before the step."""
    metrics: dict[str, float] = {}
    bands = [group[0].posterior_band for group in groups]
    for band, at_P in _split_by_band(bands):
        rows = _flatten(groups, at_P)
        metrics |= {
            f"posterior_{band}/share": float(at_P.mean()),
            f"posterior_{band}/pass": _fraction(map(_is_correct, rows)),
            f"posterior_{band}/nonzero_std": float(has_signal_P[at_P].mean()),
            f"posterior_{band}/advantage_mass": _mass_fraction(mass_PG, at_P),
        }
    return metrics


def _split_by_band(
    band_of_group: Sequence[Band | None],
) -> list[tuple[Band, np.ndarray]]:
    """Returns the bands that occur, each with a mask [P] of its groups."""
    masks = [(band, np.array([b == band for b in band_of_group])) for band in BANDS]
    return [(band, at_P) for band, at_P in masks if at_P.any()]


def _flatten(
    groups: Sequence[Sequence[GradedCompletion]], at_P: np.ndarray
) -> list[GradedCompletion]:
    return [c for group, at in zip(groups, at_P, strict=True) if at for c in group]


def _mass_fraction(mass_PG: np.ndarray, at_P: np.ndarray) -> float:
    return float(mass_PG[at_P].sum()) / max(float(mass_PG.sum()), _MIN_MASS)


def _mean_reward(rewards_PG: np.ndarray, judged_PG: np.ndarray) -> float:
    """Returns the mean over groups with a judged completion, 0 if there is none."""
    return float(_judged_rewards(rewards_PG, judged_PG).mean())


def _judged_rewards(rewards_PG: np.ndarray, judged_PG: np.ndarray) -> np.ndarray:
    """Returns the rewards of groups with a judged completion; a 0 if there is none."""
    found = rewards_PG[np.asarray(judged_PG.any(axis=1))]
    return found if found.size else np.zeros((1, 1))


def _band_metrics(
    groups: Sequence[Sequence[GradedCompletion]],
    rewards_PG: np.ndarray,
    judged_PG: np.ndarray,
    has_signal_P: np.ndarray,
    *,
    k: Sequence[int],
) -> dict[str, float]:
    """Returns the metrics of one band's groups, without the band_NAME/ prefix."""
    rows = [completion for group in groups for completion in group]
    named = _groups_by_cause(groups, has_signal_P) | _flag_rates(rows)
    named |= _pass_curve(groups, k)
    formats = _verified_formats(rows)
    return {
        **({"reward": _mean_reward(rewards_PG, judged_PG)} if judged_PG.any() else {}),
        "pass": _fraction(_is_correct(completion) for completion in rows),
        "length": float(np.mean([completion.length for completion in rows])),
        **({"format_entropy": _entropy(formats)} if formats else {}),
        **{name.split("/")[1]: value for name, value in named.items()},
    }


def _pass_curve(
    groups: Sequence[Sequence[GradedCompletion]], k: Sequence[int]
) -> dict[str, float]:
    """Returns pass@k over the groups with k verdicts, for each k that has any."""
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


def _format_metrics(graded: Sequence[GradedCompletion]) -> dict[str, float]:
    """Returns the share of each answer format among verified completions, and entropy.

    Returns {} if none is verified.
    """
    formats = _verified_formats(graded)
    if not formats:
        return {}
    shares = {name: formats.count(name) / len(formats) for name in FORMATS}
    return {
        "format/entropy": _entropy(formats),
        **{f"format/{name}": share for name, share in shares.items()},
    }


def _verified_formats(graded: Sequence[GradedCompletion]) -> list[str]:
    return [c.format for c in graded if c.verdict.status != "unverified"]


def run_summary(train: StageMetrics, config: Config) -> dict[str, Any]:
    """Returns the training part of a run's summary.json, from metrics.jsonl.

    The mismatch between sampler and scorer is a mean over steps, in nats per token.
    Skipped steps have no mismatch, and steps with rollouts from older weights have none
    either. Verdicts count the completions that the run trained on.
    """
    mismatches = {
        name: train.series(f"logprob_mismatch/{name}")[1] for name in ("mean", "max")
    }
    completions = config.train.batch_size * config.train.group_size
    alarms = doctor.check_run(train, **doctor.alarm_limits(config))
    return {
        "logprob_mismatch": {
            "mean": float(np.mean(mismatches["mean"])) if mismatches["mean"] else None,
            "max": max(mismatches["max"], default=None),
        },
        "verdicts": {
            status: sum(
                round(share * completions)
                for share in train.series(f"verdict/{status}")[1]
            )
            for status in _STATUSES
        },
        "alarms": [dataclasses.asdict(alarm) for alarm in alarms],
    }


def _groups_by_cause(
    groups: Sequence[Sequence[GradedCompletion]], has_signal_P: np.ndarray
) -> dict[str, float]:
    """Returns the share of groups with a signal, and of those without, by cause."""
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
    metrics: dict[str, float] = {}
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
                np.mean([_entropy([c.strategy for c in group]) for group in of_type])
            )
    return metrics


def _entropy(names: Sequence[str | None]) -> float:
    """Returns the entropy of the names' shares, in nats.

    It is 0 if there is a single name, and at most the logarithm of their number.
    """
    shares = np.array([*collections.Counter(names).values()]) / len(names)
    return float((shares * np.log(1 / shares)).sum())


def _is_correct(completion: GradedCompletion) -> bool:
    return completion.verdict.status == "correct"


def _fraction(flags: Iterable[bool]) -> float:
    return float(np.mean([bool(flag) for flag in flags]))
