"""What a problem teaches by itself, and which of its properties foretell it.

The *learning value* of a problem is held-out pass@1 after RL on it alone less that
before. Its properties are those of the completions of the first step, which the policy
wrote before any update. Runs of one seed begin with one policy; seeds are units: each
has its own policy and its own problems.
"""

import collections
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from job_jax.command import UsageError
from job_jax.resampling import Interval
from rlvr_jax.analysis.tables import mean
from rlvr_jax.analysis.workdir import RunArtifacts
from rlvr_jax.metrics.bootstrap import t_interval
from rlvr_jax.rollouts.behavior import LUCKY_FLAGS

_MIN_PROBLEMS = 3  # of a seed, for a rank correlation


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSampleRun:
    """A run on one problem: its band before RL, its properties, its learning value.

    `learned` is its pass rate in the last step less that in the first.
    """

    name: str
    seed: int
    problem: str
    band: str
    properties: Mapping[str, float]
    learned: float
    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """A number of each seed that has it, and their mean with Student's interval."""

    by_seed: Mapping[int, float]
    interval: Interval

    @classmethod
    def average(cls, by_seed: Mapping[int, float]) -> "OverSeeds":
        """Returns the mean over seeds; of a single one it has no interval."""
        return cls(by_seed=by_seed, interval=t_interval([*by_seed.values()]))


def read_one_sample_run(run: RunArtifacts, *, name: str) -> OneSampleRun:
    """Returns what a run on one problem came to. Raises UsageError if it is none."""
    scores = run.summary.get("eval", {})
    if "before" not in scores or "after" not in scores:
        raise UsageError(
            f"{name} has no scores before and after RL in summary.json; let it end"
        )
    steps = run.rollout_steps("train")
    first, last = (run.rollouts("train", steps[at]) for at in (0, -1))
    problems = {row["id"] for row in (*first, *last)}
    if len(problems) != 1 or steps[0] != 0:
        raise UsageError(
            f"{name} asks {len(problems)} problems, its first saved step is {steps[0]};"
            " give runs with curriculum.name=one_sample and their first step"
        )
    before, after = (
        float(scores[when]["pass@k"]["1"]["mean"]) for when in ("before", "after")
    )
    return OneSampleRun(
        name=name,
        seed=run.config["seed"],
        problem=problems.pop(),
        band=first[0].get("band", "unknown"),
        properties=describe_problem(first),
        learned=_pass_rate(last) - _pass_rate(first),
        value=after - before,
    )


def describe_problem(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Returns properties of one problem, by the completions that a policy gave to it.

    pass rate       p, the share that is right
    p (1 - p)       how much verdicts vary: what GRPO's signal is bounded by
    luck            the share that is right by no steps, wrong ones or a guess
    answer entropy  of the distinct answers, in nats; unreadable ones are one answer
    length          mean, in tokens
    level           of the problem, where its task has levels
    """
    rate = _pass_rate(rows)
    answers = collections.Counter(row["answer"] for row in rows)
    shares = [count / len(rows) for count in answers.values()]
    lucky = frozenset[str]().union(*LUCKY_FLAGS.values())
    properties = {
        "pass rate": rate,
        "p (1 - p)": rate * (1 - rate),
        "luck": mean(
            [_is_right(row) and bool(lucky & {*row.get("flags", ())}) for row in rows]
        ),
        "answer entropy": sum(-share * math.log(share) for share in shares),
        "length": mean([row["length"] for row in rows]),
    }
    level = rows[0]["level"]
    return properties if level is None else {**properties, "level": float(level)}


def correlate_ranks(runs: Sequence[OneSampleRun]) -> dict[str, OverSeeds]:
    """Returns Spearman's correlation of each property with the learning value.

    Within each seed that has three problems which differ in both.
    """
    found: dict[str, dict[int, float]] = collections.defaultdict(dict)
    for seed, same in _by_seed(runs).items():
        values = [run.value for run in same]
        if len(same) < _MIN_PROBLEMS or np.ptp(values) == 0:
            continue
        for name in same[0].properties:
            known = [run.properties[name] for run in same]
            if np.ptp(known) > 0:
                found[name][seed] = float(stats.spearmanr(known, values).statistic)
    return {name: OverSeeds.average(by_seed) for name, by_seed in found.items()}


def average_by_band(runs: Sequence[OneSampleRun]) -> dict[str, OverSeeds]:
    """Returns the mean learning value of a seed's problems of each band."""
    bands = sorted({run.band for run in runs})
    return {
        band: OverSeeds.average(
            {
                seed: mean([run.value for run in same])
                for seed, same in _by_seed(
                    [run for run in runs if run.band == band]
                ).items()
            }
        )
        for band in bands
    }


def _by_seed(runs: Sequence[OneSampleRun]) -> dict[int, list[OneSampleRun]]:
    seeds: dict[int, list[OneSampleRun]] = {}
    for run in runs:
        seeds.setdefault(run.seed, []).append(run)
    return dict(sorted(seeds.items()))


def _pass_rate(rows: Sequence[Mapping[str, Any]]) -> float:
    return mean([_is_right(row) for row in rows])


def _is_right(row: Mapping[str, Any]) -> bool:
    return row["verdict"] == "correct"
