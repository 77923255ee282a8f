"""An experiment's results: its arms side by side, read from their workdirs."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.flags import UsageError
from job_jax.schema import did_you_mean
from rlvr_jax.analysis.compare.arms import (
    MIN_SEEDS,
    ExperimentArm,
    compare_arms,
    read_training_run,
)
from rlvr_jax.analysis.compare.metric import BOUNDS, Metric, Score
from rlvr_jax.analysis.compare.rows import PERCENT, choose_rows, label_metric
from rlvr_jax.analysis.compare.run_metrics import measure_run
from rlvr_jax.analysis.compare.text import (
    format_difference,
    format_number,
    seed_cells,
    value_cell,
)
from rlvr_jax.analysis.experiment.by_problem import (
    count_by_problem,
    explain_no_counts,
    measure_over_problems,
)
from rlvr_jax.analysis.experiment.corrected import correct_differences
from rlvr_jax.analysis.experiment.features import any_probed, count_own_features
from rlvr_jax.analysis.experiment.pairs import measure_pairs
from rlvr_jax.analysis.experiment.record import (
    ExperimentRecord,
    has_scores,
    read_record,
    workdir_of,
)
from rlvr_jax.analysis.experiment.slopes import measure_slopes
from rlvr_jax.analysis.features.log import NoFeaturesError
from rlvr_jax.config.experiment import Experiment
from rlvr_jax.metrics.bootstrap import is_constant
from rlvr_jax.metrics.power import POWER, detectable_difference
from rlvr_jax.report.tables import Table


class NoResultsError(UsageError):
    """Too few runs of an experiment have ended to compare any."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Results:
    """An experiment with its arms side by side; the baseline is the first.

    `arms` have finished, and are compared over the seeds that all of them have.
    `by_problem` is `count_by_problem` of them. `outcomes` are in display order, and the
    figures show the first. `left_out` lists the missing parts, in sentences.
    """

    record: ExperimentRecord
    arms: list[ExperimentArm]
    by_problem: Mapping[str, Any]
    outcomes: Sequence[str]
    comparison: Mapping[str, Any]
    left_out: list[str]

    def metric(self, outcome: str) -> Mapping[str, Any] | None:
        """Returns an outcome's numbers, None if no run has them."""
        named = (m for m in self.comparison["metrics"] if label_metric(m) == outcome)
        return next(named, None)


def read_results(
    folder: Path,
    *,
    baseline: str = "",
    only: Sequence[str] = (),
    outcome: str = "",
    rows: Sequence[str] = (),
) -> Results:
    """Returns the results so far. Raises NoResultsError without any.

    Differences are from the experiment's baseline, or from the arm `baseline`. With
    `only`, the other arms (except the baseline) are ignored. `outcome` is shown before
    the experiment's outcomes. `rows` are shown instead of them (see `choose_rows`).

    A seed counts once all arms with any finished run have finished it. So arms are
    compared over the same seeds, and no seed is dropped because of its result. Runs
    with a probe get the files of `analysis features`, unless `only` leaves arms out.
    """
    record = read_record(folder)
    if baseline:
        seen_from = dataclasses.replace(record.experiment, baseline=baseline)
        record = dataclasses.replace(record, experiment=seen_from)
    experiment = record.experiment
    for name in only:
        if name not in experiment.arms:
            raise UsageError(
                f"{name!r} is not an arm of {folder}"
                f"{did_you_mean(name, [*experiment.arms])}"
            )
    ended = _find_ended(folder, experiment, only)
    begun = [name for name in ended if ended[name]]
    seeds = set.intersection(*(ended[name] for name in begun)) if begun else set()
    if not seeds or len(begun) < 2 or begun[0] != experiment.baseline:
        reason = _explain_no_results(experiment, ended)
        raise NoResultsError(f"{folder} has no results yet: {reason}")
    together = [seed for seed in experiment.seeds if seed in seeds]
    arms, without_features = _measure_arms(
        folder, experiment, begun, together, write_features=not only
    )
    comparison = choose_rows(compare_arms(arms), rows)
    outcomes = _order_outcomes(experiment.outcomes, comparison, first=outcome)
    shown = comparison.get("rows", outcomes)
    by_problem = count_by_problem(arms)
    return Results(
        record=record,
        arms=arms,
        by_problem=by_problem,
        outcomes=shown,
        comparison={
            **comparison,
            "decided_by": outcomes[0],
            "slopes": measure_slopes(experiment, comparison["metrics"], shown),
            "pairs": measure_pairs(experiment, comparison["metrics"]),
            "corrected": correct_differences(comparison, experiment.corrected),
            "over_problems": measure_over_problems(experiment, by_problem, shown),
        },
        left_out=_left_out(experiment, ended, seeds)
        + without_features
        + explain_no_counts(by_problem, shown),
    )


def _explain_no_results(experiment: Experiment, ended: Mapping[str, set[int]]) -> str:
    """Returns which runs are missing, of those that `_find_ended` found."""
    base, others = experiment.baseline, {*ended} - {experiment.baseline}
    if not ended.get(base):
        return f"no run of the baseline {base} has finished; let it run"
    begun = [name for name in ended if name in others and ended[name]]
    if not others:
        return f"only the baseline {base} was chosen; add another arm to --arms"
    if not begun:
        return f"only {base} has finished; let another arm run"
    done = "; ".join(
        f"{name}: {', '.join(map(str, sorted(ended[name])))}" for name in (base, *begun)
    )
    return (
        f"no seed has finished in all arms that have begun ({done}); let them run, or "
        "choose arms with --arms"
    )


def _find_ended(
    folder: Path, experiment: Experiment, only: Sequence[str]
) -> dict[str, set[int]]:
    """Returns each arm's evaluated seeds, the baseline first; `only` as above."""
    return {
        name: {s for s in experiment.seeds if has_scores(workdir_of(folder, name, s))}
        for name in (experiment.baseline, *experiment.arms)
        if not only or name in (*only, experiment.baseline)
    }


def _measure_arms(
    folder: Path,
    experiment: Experiment,
    names: Sequence[str],
    seeds: Sequence[int],
    *,
    write_features: bool,
) -> tuple[list[ExperimentArm], list[str]]:
    """Returns the arms with a run of each seed, and notes on seeds without features."""
    arms = [ExperimentArm(label=name, runs=[]) for name in names]
    without_features = []
    for seed in seeds:
        workdirs = {name: workdir_of(folder, name, seed) for name in names}
        own: Mapping[str, dict[Metric, Score]] = {}
        try:
            # First, because `measure_run` reads the feature files that it writes.
            if any_probed([*workdirs.values()]):
                own = count_own_features(
                    workdirs, experiment.feature_arms or names, write=write_features
                )
        except NoFeaturesError as error:
            without_features.append(f"seed {seed} has no feature counts: {error}")
        for arm in arms:
            run = measure_run(read_training_run(str(workdirs[arm.label])))
            scores = {**run.scores, **own.get(arm.label, {})}
            arm.runs.append(dataclasses.replace(run, scores=scores))
    return arms, without_features


def _order_outcomes(
    own: Sequence[str], comparison: Mapping[str, Any], *, first: str
) -> list[str]:
    """Returns the experiment's outcomes, after `first` if given."""
    known = [label_metric(metric) for metric in comparison["metrics"]]
    if first and first not in known:
        raise UsageError(f"no run measured {first!r}{did_you_mean(first, known)}")
    return [*dict.fromkeys((first or own[0], *own))]


def _left_out(
    experiment: Experiment, ended: Mapping[str, set[int]], seeds: set[int]
) -> list[str]:
    sentences = []
    if never := [name for name in experiment.arms if not ended.get(name, True)]:
        sentences.append(f"not run: {', '.join(never)}")
    waiting: dict[str, list[int]] = {}
    for seed in experiment.seeds:
        missing = [name for name in ended if ended[name] and seed not in ended[name]]
        if seed not in seeds:
            waiting.setdefault(", ".join(missing), []).append(seed)
    sentences += [
        f"seed{'s' * (len(which) > 1)} {', '.join(map(str, which))} left out until "
        f"{missing} finished"
        for missing, which in waiting.items()
    ]
    return sentences


def describe_results(results: Results) -> list[str]:
    """Returns sentences on the arms and seeds, missing data, and statistical power."""
    seeds = results.arms[0].seeds
    sentences = [
        f"{len(results.arms)} arms, "
        + (f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else "one seed"),
        *results.left_out,
        *(
            f"no run measured {outcome}"
            for outcome in results.outcomes
            if results.metric(outcome) is None
        ),
    ]
    if len(seeds) >= MIN_SEEDS:
        sentences.append(
            "sd is the standard deviation of a difference between seeds; found is the "
            "smallest difference that this number of seeds detects with "
            f"{100 * POWER:.0f} % power"
        )
    sentences += _describe_origin(results.arms)
    if results.record.is_reduced:
        sentences.insert(0, "REDUCED: runs of a few minutes, which prove nothing")
    return sentences


def _describe_origin(arms: Sequence[ExperimentArm]) -> list[str]:
    """Returns a sentence on the runs' commits, machines, versions and dates."""
    records = [run.run.metadata for arm in arms for run in arm.runs]
    parts: dict[str, list[Any]] = {
        "commit": [record.get("git_commit") for record in records],
        "device": [record.get("device") for record in records],
        "processor": [record.get("cpu") for record in records],
        "versions": [
            ", ".join(f"{name} {text}" for name, text in record["versions"].items())
            for record in records
            if "versions" in record
        ],
        "started": [record.get("started") for record in records],
    }
    said = [
        f"{name} {' and '.join(sorted(known))}"
        for name, values in parts.items()
        if (known := {value for value in values if value})
    ]
    return [f"made at {'; '.join(said)}"] if said else []


def outcome_table(results: Results) -> Table:
    """Returns a row for each known outcome and arm, with the arm's difference.

    Arms with the same numbers share a row, such as arms with the same start before RL.
    `sd` and `found` (see `describe_results`) are empty if the difference is constant,
    and for fewer than three seeds.
    """
    experiment = results.record.experiment
    rows = []
    for outcome in results.outcomes:
        if (metric := results.metric(outcome)) is None:
            continue
        unit = PERCENT if metric["name"] in BOUNDS else ""
        decides = outcome == experiment.outcomes[0]  # `published` is for this one
        alike: dict[tuple[str, ...], list[str]] = {}
        for arm in results.arms:
            published = experiment.arms[arm.label].published if decides else ""
            cells = (*_cells(metric, arm, results.comparison["baseline"]), published)
            alike.setdefault(cells, []).append(arm.label)
        rows += [
            [outcome + unit, ", ".join(labels), *cells]
            for cells, labels in alike.items()
        ]
    base = results.comparison["baseline"]
    minus = (f"minus {base}", "sd", "found")
    return Table(
        head=("", "arm", "mean [95 %]", *minus, "by seed", "published"), rows=rows
    )


def _cells(metric: Mapping[str, Any], arm: ExperimentArm, base: str) -> list[str]:
    """Returns an arm's value, its difference, its power and the values by seed."""
    value = value_cell(metric, arm.label, len(arm.seeds))
    several = arm.seeds if len(arm.seeds) > 1 else ()
    ours, theirs = (metric["seeds"][name] for name in (arm.label, base))
    differences = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    power = ["", ""]
    if len(differences) >= MIN_SEEDS and not is_constant(differences):
        spread = statistics.stdev(differences)
        found = detectable_difference(spread, len(differences))
        power = [format_number(each, metric["name"]) for each in (spread, found)]
    is_alike = bool(differences) and not any(differences)
    less = None if is_alike else metric["differences"].get(arm.label)
    difference = format_difference(less, metric["name"]) if less else ""
    by_seed = " ".join(seed_cells(metric, arm.label, several))
    return [value, difference, *power, by_seed]
