"""What a single problem teaches, and which of its properties predict it.

The *learning value* of a problem is held-out pass@1 after RL on this problem minus
pass@1 before. Its properties come from the completions of the first step, which the
policy wrote before any update. Runs differ only in the problem and in the seed, so all
runs of a seed begin with the same policy. Seeds are the units of intervals; each has
its own policy and problems.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from job_jax.config_io import diff_json
from job_jax.flags import UsageError
from rlvr_jax.analysis.compare.arms import compared_config
from rlvr_jax.metrics.ranks import OverSeeds, rank_correlations
from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.report.tables import mean
from rlvr_jax.rollouts.behavior import UNEARNED_FLAGS
from rlvr_jax.rollouts.graded import read_answer_value
from rlvr_jax.types import BANDS

_MIN_PROBLEMS = 3  # of a seed, for a rank correlation
_DIGITS = 12  # numbers that differ only by rounding get the same rank
_PROBLEM = "curriculum.problem_index:"


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSampleRun:
    """A run on one problem: its band before RL, its properties, its learning value.

    `learned` is its pass rate in the last step minus the first.
    """

    name: str
    seed: int
    problem: str
    band: str
    properties: Mapping[str, float]
    learned: float
    value: float


def read_one_sample_run(run: RunArtifacts, *, name: str) -> OneSampleRun:
    """Returns the result of a run on one problem. Raises UsageError for other runs."""
    steps = run.rollout_steps("train")
    if not steps or steps[0] != 0:
        raise UsageError(
            f"{name}/rollouts has no completions of the first step of RL, which show "
            "what the policy knew about its problem; give a run that saved them"
        )
    first, last = (run.rollouts("train", steps[at]) for at in (0, -1))
    problems = {row["id"] for row in (*first, *last)}
    if len(problems) != 1:
        raise UsageError(
            f"{name} trains on {len(problems)} problems; give runs with "
            "curriculum.name=one_sample"
        )
    return OneSampleRun(
        name=name,
        seed=run.config["seed"],
        problem=problems.pop(),
        band=first[0].get("band", "unknown"),
        properties=describe_problem(first),
        learned=round(_pass_rate(last) - _pass_rate(first), _DIGITS),
        value=round(
            _held_out(run, "after", name) - _held_out(run, "before", name), _DIGITS
        ),
    )


def _held_out(run: RunArtifacts, when: str, name: str) -> float:
    scores = run.summary.get("eval", {}).get(when, {}).get("pass@k", {})
    if "1" not in scores:
        raise UsageError(
            f"{name}/summary.json has no held-out pass@1 {when} RL; let the run "
            "finish, with 1 in eval.k"
        )
    return float(scores["1"]["mean"])


def check_alike(runs: Mapping[str, RunArtifacts]) -> None:
    """Raises UsageError if runs (by name) differ in more than problem and seed."""
    first, *_ = runs
    asked: dict[tuple[int, int], str] = {}
    for name, run in runs.items():
        lines = diff_json(
            compared_config(runs[first].config), compared_config(run.config)
        )
        other = [line for line in lines if not line.startswith(_PROBLEM)]
        if other:
            raise UsageError(
                f"{name} differs from {first} in more than its problem: "
                f"{'; '.join(other)}; compare runs of one recipe"
            )
        key = run.config["seed"], run.config["curriculum"].get("problem_index", 0)
        if key in asked:
            raise UsageError(
                f"{asked[key]} and {name} have the same problem and the same seed; "
                "give one of them"
            )
        asked[key] = name


def describe_problem(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns properties of one problem, from a policy's completions.

    pass rate       p, the share of right completions
    p (1 - p)       the variance of verdicts, which bounds GRPO's signal
    luck            the share of right completions whose steps do not justify the
                    answer: a step is wrong or missing, or they begin with a guess;
                    only for tasks whose steps are read
    answer entropy  of distinct values, in nats; unreadable ones count as one
    length          mean length, in tokens
    level           the problem's level, 0 if its task has no levels
    """
    rate = _pass_rate(rows)
    answers = collections.Counter(map(read_answer_value, rows))
    shares = [count / len(rows) for count in answers.values()]
    properties = {
        "pass rate": rate,
        "p (1 - p)": rate * (1 - rate),
        "answer entropy": sum(-share * math.log(share) for share in shares),
        "length": mean([row["length"] for row in rows]),
        "level": float(rows[0]["level"]),
    }
    if all("strategy" in row for row in rows):
        unearned = frozenset[str]().union(*UNEARNED_FLAGS.values())
        properties["luck"] = mean(
            [
                _is_right(row) and bool(unearned & {*row.get("flags", ())})
                for row in rows
            ]
        )
    return {name: round(value, _DIGITS) for name, value in properties.items()}


def correlate_ranks(runs: Sequence[OneSampleRun]) -> dict[str, OverSeeds]:
    """Returns Spearman's correlation of each property with the learning value.

    It is computed within each seed with at least three problems, if both the property
    and the value vary.
    """
    found: dict[str, dict[int, float]] = collections.defaultdict(dict)
    for seed, same in _by_seed(runs).items():
        values = [run.value for run in same]
        if len(same) < _MIN_PROBLEMS:
            continue
        for name in same[0].properties:
            known = [run.properties.get(name, math.nan) for run in same]
            correlation = float(rank_correlations(known, values))
            if not math.isnan(correlation):
                found[name][seed] = correlation
    return {name: OverSeeds.average(by_seed) for name, by_seed in found.items()}


def average_by_band(
    runs: Sequence[OneSampleRun],
) -> dict[str, tuple[OverSeeds, OverSeeds]]:
    """Returns by band the learning value and how far its problems improved themselves.

    Each seed contributes the mean over its problems in the band.
    """
    found: dict[str, tuple[OverSeeds, OverSeeds]] = {}
    for band in BANDS:
        seeds = _by_seed([run for run in runs if run.band == band])
        if seeds:
            found[band] = (
                OverSeeds.average(
                    {s: mean([run.value for run in same]) for s, same in seeds.items()}
                ),
                OverSeeds.average(
                    {
                        s: mean([run.learned for run in same])
                        for s, same in seeds.items()
                    }
                ),
            )
    return found


def _by_seed(runs: Sequence[OneSampleRun]) -> dict[int, list[OneSampleRun]]:
    seeds: dict[int, list[OneSampleRun]] = {}
    for run in runs:
        seeds.setdefault(run.seed, []).append(run)
    return dict(sorted(seeds.items()))


def _pass_rate(rows: Sequence[Mapping[str, object]]) -> float:
    return mean([_is_right(row) for row in rows])


def _is_right(row: Mapping[str, object]) -> bool:
    return row["verdict"] == "correct"
