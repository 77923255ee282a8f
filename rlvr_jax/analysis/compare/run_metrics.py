"""The metrics of one run, to compare with other runs."""

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from job_jax.resampling import Interval
from rlvr_jax.analysis.compare.metric import (
    ALARMS,
    BAND,
    BEFORE_RL,
    CALIBRATION,
    CHOSEN,
    CHOSEN_GAINED,
    ENTROPY,
    FEATURES,
    FRESH_BAND,
    GAIN,
    LENGTH,
    LENIENT,
    LENIENT_GAINED,
    MEANS_OVER_STEPS,
    NO_SIGNAL,
    NOISE_FEATURES,
    PASS,
    PASS_BEFORE,
    REWARD,
    REWARD_GAINED,
    RIGHT_GAINED,
    RIGHT_IF_CHOSEN,
    SECONDS,
    Metric,
    Score,
    feature_metric,
)
from rlvr_jax.analysis.features.dynamics import (
    CLAIMED,
    DYNAMICS_FILE,
    EQUAL_DRIFT,
)
from rlvr_jax.config import DifficultyConfig
from rlvr_jax.metrics.crossing import Counts, count_correct
from rlvr_jax.metrics.lenient import has_lenient_accuracy, is_lenient_success
from rlvr_jax.metrics.scores import bands_from_verdicts
from rlvr_jax.metrics.statistics import pass_at_k
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.tables import first_and_last_tenth, mean
from rlvr_jax.rollouts.graded import Verdicts
from rlvr_jax.types import BANDS

RolloutRow = Mapping[str, Any]
RowsByProblem = Mapping[str, list[RolloutRow]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """A run with its scores, and sentences about missing data.

    `after` and `before` are the numbers of samples and of correct samples for each
    held-out problem, after and before RL; {} if the rollouts are missing.
    """

    run: RunArtifacts
    scores: dict[Metric, Score]
    missing: list[str]
    after: Counts
    before: Counts


def measure_run(run: RunArtifacts) -> RunMetrics:
    """Returns the scores of a run, finished or not."""
    missing: list[str] = []
    after, before = (
        _rows_by_problem(run, stage) for stage in ("eval_after", "eval_before")
    )
    scores = _training_scores(run, missing)
    if not run.summary.get("eval", {}).get("after"):
        missing.append("no evaluation after RL")
        after = {}  # of fewer steps, if a run is continued
    elif not after:
        missing.append(
            "no rollouts of its evaluation: intervals come from summary.json, and "
            "differences have no interval"
        )
        scores |= _summary_scores(run.summary["eval"]["after"])
    else:
        scores |= _eval_scores(run, after, before, missing)
    scores |= _strategy_scores(run.summary.get("eval", {}))
    scores |= _calibration_scores(run.summary.get("eval", {}))
    scores |= _feature_scores(run)
    if "stages" in run.summary:
        scores[Metric(SECONDS)] = Score(mean=sum(run.summary["stages"].values()))
    return RunMetrics(
        run=run,
        scores=scores,
        missing=missing,
        after=count_correct(_verdicts(after)),
        before=count_correct(_verdicts(before)),
    )


def _training_scores(run: RunArtifacts, missing: list[str]) -> dict[Metric, Score]:
    """Returns the scores of the training steps: alarms, reward, missing signal."""
    done, num_steps = len(run.stage("train")), run.config["train"]["steps"]
    if done < num_steps:
        missing.append(f"{done} of {num_steps} training steps done")
    if not done:
        return {}
    scores = {Metric(ALARMS): Score(mean=float(len(run.alarms)))}
    if reward := run.series("train", "reward/mean")[1]:
        first, last = first_and_last_tenth(reward)
        scores[Metric(REWARD)] = Score(mean=last)
        scores[Metric(REWARD_GAINED)] = Score(mean=last - first)
    if entropies := run.series("train", "rollout/entropy")[1]:
        scores[Metric(ENTROPY)] = Score(mean=first_and_last_tenth(entropies)[1])
    if has_signal := run.series("train", "groups/nonzero_std")[1]:
        scores[Metric(NO_SIGNAL)] = Score(mean=1 - mean(has_signal))
    for name, logged in MEANS_OVER_STEPS.items():
        if values := run.series("train", logged)[1]:
            scores[Metric(name)] = Score(mean=mean(values))
    return scores


def _rows_by_problem(run: RunArtifacts, stage: str) -> RowsByProblem:
    """Returns an evaluation's completions by problem, {} if none were saved."""
    by_id: dict[str, list[RolloutRow]] = {}
    for row in run.rollouts(stage, 0) if run.rollout_steps(stage) else ():
        by_id.setdefault(row["id"], []).append(row)
    return by_id


def _verdicts(rows: RowsByProblem) -> Verdicts:
    return {name: [row["verdict"] for row in each] for name, each in rows.items()}


def _eval_scores(
    run: RunArtifacts, after: RowsByProblem, before: RowsByProblem, missing: list[str]
) -> dict[Metric, Score]:
    """Returns the held-out scores, problem by problem, from the saved rollouts."""
    ks = [int(k) for k in run.summary["eval"]["after"]["pass@k"]]
    now, then = _verdicts(after), _verdicts(before)
    scores = _pass_scores(now, then, [("all", "", [*after])], ks)
    if before:
        scores |= _band_scores(now, then, ks, run.band_thresholds)
    else:
        missing.append("no rollouts before RL: no bands")
    types = {name: rows[0]["type"] for name, rows in after.items()}
    named = sorted(set(types.values()) - {""})
    scores |= _pass_scores(now, then, _split_problems("type", types, named), ks)
    lengths = {n: mean([row["length"] for row in rows]) for n, rows in after.items()}
    return (
        scores
        | _lenient_scores(after, before)
        | {Metric(LENGTH): _mean_over_problems(lengths)}
    )


def _band_scores(
    now: Verdicts, then: Verdicts, ks: Sequence[int], thresholds: DifficultyConfig
) -> dict[Metric, Score]:
    """Returns pass@k by band and by fresh band, as `metrics.scores` defines them.

    Only fresh bands have gains. Other bands come from the same samples before RL, so
    even without learning their scores would regress toward the mean.
    """
    half = min(map(len, then.values())) // 2
    first = {name: each[:half] for name, each in then.items()}
    late_now, late_then = (
        {name: each[half:] for name, each in side.items()} for side in (now, then)
    )
    scores: dict[Metric, Score] = {}
    for grouping, chosen_by, after, before in (
        (BAND, then, now, {}),
        (FRESH_BAND, first, late_now, late_then),
    )[: 2 if half else 1]:
        band_of = bands_from_verdicts(chosen_by, thresholds)
        bands = {name: band_of.get(name, "unknown") for name in now}
        groups = _split_problems(grouping, bands, BANDS)
        scores |= _pass_scores(after, before, groups, ks)
    return scores


def _pass_scores(
    after: Verdicts,
    before: Verdicts,
    groups: Iterable[tuple[str, str, list[str]]],
    ks: Sequence[int],
) -> dict[Metric, Score]:
    """Returns pass@k of groups of problems, before RL too if there are verdicts."""
    now, then = count_correct(after), count_correct(before)
    scores: dict[Metric, Score] = {}
    for grouping, group, names in groups:
        for k in _feasible_ks(ks, now):
            scores[Metric(PASS, grouping, group, k)] = _mean_over_problems(
                _pass_by_problem(now, names, k)
            )
        asked = [name for name in names if name in then]
        for k in _feasible_ks(ks, then) if asked else ():
            before_k = _pass_by_problem(then, asked, k)
            scores[Metric(PASS_BEFORE, grouping, group, k)] = _mean_over_problems(
                before_k
            )
            if Metric(PASS, grouping, group, k) in scores:
                after_k = _pass_by_problem(now, asked, k)
                scores[Metric(GAIN, grouping, group, k)] = _mean_over_problems(
                    {name: after_k[name] - before_k[name] for name in asked}
                )
    return scores


def _lenient_scores(after: RowsByProblem, before: RowsByProblem) -> dict[Metric, Score]:
    """Returns lenient accuracy and its gain, {} if a gold is not a number."""
    golds = (gold for rows in after.values() for row in rows for gold in _golds(row))
    if not has_lenient_accuracy(golds):
        return {}
    now, then = map(_stated_by_problem, (after, before))
    scores = {Metric(LENIENT): _mean_over_problems(now)}
    if both := now.keys() & then.keys():
        scores[Metric(LENIENT_GAINED)] = _mean_over_problems(
            {name: now[name] - then[name] for name in sorted(both)}
        )
    return scores


def _stated_by_problem(rows: RowsByProblem) -> dict[str, float]:
    """Returns the share of each problem's completions that state its gold."""
    return {
        name: mean(
            [
                is_lenient_success(row["verdict"], row["completion"], _golds(row))
                for row in each
            ]
        )
        for name, each in rows.items()
    }


def _golds(row: Mapping[str, Any]) -> list[str]:
    return [row["gold"], *row.get("other_golds", ())]


def _feasible_ks(ks: Iterable[int], counts: Counts) -> list[int]:
    """Returns the values of k for which every problem has enough samples."""
    fewest = min((samples for samples, _ in counts.values()), default=0)
    return [k for k in ks if k <= fewest]


def _split_problems(
    grouping: str, group_of: Mapping[str, str], groups: Iterable[str]
) -> list[tuple[str, str, list[str]]]:
    """Returns (grouping, group, its problems) for each group that has problems."""
    members = {g: [name for name in group_of if group_of[name] == g] for g in groups}
    return [(grouping, group, names) for group, names in members.items() if names]


def _pass_by_problem(counts: Counts, names: Iterable[str], k: int) -> dict[str, float]:
    names = [*names]
    samples, correct = np.array([counts[name] for name in names]).T
    return dict(zip(names, pass_at_k(samples, correct, k).tolist(), strict=True))


def _strategy_scores(evals: Mapping[str, Any]) -> dict[Metric, Score]:
    """Returns P(strategy | type) and P(correct | strategy, type) from summary.json.

    For strategies that were already chosen before RL, it also returns the gains.
    """
    now, then = (evals.get(w, {}).get("strategies", {}) for w in ("after", "before"))
    scores: dict[Metric, Score] = {}
    for kind, strategies in now.items():
        for strategy, found in strategies.items():
            of = ("strategy", f"{kind} {strategy}")
            before = then.get(kind, {}).get(strategy)
            for name, gained, part in (
                (CHOSEN, CHOSEN_GAINED, "share"),
                (RIGHT_IF_CHOSEN, RIGHT_GAINED, "pass"),
            ):
                value, interval = found[part]["mean"], Interval.from_json(found[part])
                scores[Metric(name, *of)] = Score(mean=value, interval=interval)
                if before:
                    gain = value - before[part]["mean"]
                    scores[Metric(gained, *of)] = Score(mean=gain)
    return scores


def _calibration_scores(evals: Mapping[str, Any]) -> dict[Metric, Score]:
    """Returns from summary.json how well stated confidences fit the verdicts."""
    scores: dict[Metric, Score] = {}
    for when, suffix in (("after", ""), ("before", BEFORE_RL)):
        found = evals.get(when, {}).get("calibration") or {}
        for name, key in CALIBRATION.items():
            value = found.get(key)
            if isinstance(value, dict):
                interval = Interval.from_json(value)
                scores[Metric(name + suffix)] = Score(
                    mean=value["mean"], interval=interval
                )
            elif value is not None:
                scores[Metric(name + suffix)] = Score(mean=value)
    return scores


def _feature_scores(run: RunArtifacts) -> dict[Metric, Score]:
    """Returns how many features changed, by band, if `analysis features` has run.

    It also returns how many features are claimed for weight noise that moves the
    residual stream equally far.
    """
    path = run.path / DYNAMICS_FILE
    if not path.is_file():
        return {}
    found = json.loads(path.read_text())
    scores = {
        feature_metric(FEATURES[kind], band): Score(mean=float(count))
        for band, kinds in found["counts"].items()
        for kind, count in kinds.items()
        if kind in FEATURES
    }
    (noise,) = (null for null in found["nulls"] if null["label"] == EQUAL_DRIFT)
    return scores | {
        feature_metric(NOISE_FEATURES, band): Score(
            mean=mean([draw[band][CLAIMED] for draw in noise["draws"]])
        )
        for band in found["counts"]
    }


def _mean_over_problems(values: Mapping[str, float]) -> Score:
    return Score(mean=mean([*values.values()]), by_problem=values)


def _summary_scores(scores: Mapping[str, Any]) -> dict[Metric, Score]:
    """Returns the held-out scores and their intervals from summary.json."""
    groups = [("all", "", scores)]
    for grouping in (BAND, FRESH_BAND, "type"):
        parts = scores.get(f"by_{grouping}", {}).items()
        groups += [(grouping, group, part) for group, part in parts if group]
    pass_scores = {
        Metric(PASS, grouping, group, int(k)): Score(
            mean=interval["mean"], interval=Interval.from_json(interval)
        )
        for grouping, group, part in groups
        for k, interval in part["pass@k"].items()
    }
    return pass_scores | {Metric(LENGTH): Score(mean=scores["length_mean"])}
