"""What one run measured, in numbers that can be set beside another run's."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from rlvr_jax.analysis.section import ends, mean
from rlvr_jax.analysis.training import alarms
from rlvr_jax.analysis.workdir import Run
from rlvr_jax.config import DifficultyConfig
from rlvr_jax.evaluate import bands, initial_verdicts
from rlvr_jax.statistics import Interval, pass_at_k
from rlvr_jax.types import BANDS

PASS, BEFORE, LENGTH = "pass@k", "pass@k before RL", "completion length"
REWARD, SILENT, ALARMS = "reward", "groups without signal", "alarms"
SECONDS = "seconds"
NAMES = (PASS, BEFORE, LENGTH, REWARD, SILENT, ALARMS, SECONDS)
SHARES = (PASS, BEFORE, SILENT)  # lie in 0..1

Row = Mapping[str, Any]


class Measure(NamedTuple):
    """Something measured of a run: its name, the cut and its part, k where it has one.

    `cut` is "all", "band" or "type", and `of` the band or the type.
    """

    name: str
    cut: str = "all"
    of: str = ""
    k: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Score:
    """A measure's value in one run.

    `by_problem` holds a value a problem, whose mean is `mean`, where the run still
    tells; `stated` is the interval that summary.json gives where it does not.
    """

    mean: float
    by_problem: Mapping[str, float] | None = None
    stated: Interval | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A run, what it measured, and in words what it lacks."""

    run: Run
    scores: dict[Measure, Score]
    missing: list[str]


def measure(run: Run) -> Measured:
    """Returns what there is of a run, finished or not."""
    missing: list[str] = []
    scores = _trained(run, missing)
    if not run.summary.get("eval", {}).get("after"):
        missing.append("no evaluation after RL")
    elif not run.rollout_steps("eval_after"):
        missing.append(
            "no rollouts of its evaluation: intervals are summary.json's, and "
            "differences have none"
        )
        scores |= _stated(run.summary["eval"]["after"])
    else:
        scores |= _evaluated(run, missing)
    if "stages" in run.summary:
        scores[Measure(SECONDS)] = Score(mean=sum(run.summary["stages"].values()))
    return Measured(run=run, scores=scores, missing=missing)


def _trained(run: Run, missing: list[str]) -> dict[Measure, Score]:
    """Returns what the training steps tell."""
    done, asked = len(run.metrics.get("train", [])), run.config["train"]["steps"]
    if done < asked:
        missing.append(f"{done} of {asked} training steps done")
    if not done:
        return {}
    found = {Measure(ALARMS): Score(mean=float(len(alarms(run))))}
    if reward := run.series("train", "reward/mean")[1]:
        found[Measure(REWARD)] = Score(mean=ends(reward)[1])
    if split := run.series("train", "groups/split")[1]:
        found[Measure(SILENT)] = Score(mean=1 - mean(split))
    return found


def _evaluated(run: Run, missing: list[str]) -> dict[Measure, Score]:
    """Returns the held-out scores, problem by problem, as rollouts/ tells them."""
    after = _by_id(run.rollouts("eval_after", 0))
    ks = [int(k) for k in run.summary["eval"]["after"]["pass@k"]]
    cuts: list[tuple[str, str, list[str]]] = [("all", "", list(after))]
    before: dict[str, list[Row]] = {}
    if run.rollout_steps("eval_before"):
        rows = run.rollouts("eval_before", 0)
        before = _by_id(rows)
        cut = bands(initial_verdicts(rows), _cuts(run.config))
        cuts += _parts("band", after, lambda name: cut.get(name, "unknown"), BANDS)
    else:
        missing.append("no rollouts before RL: no bands")
    types = {name: rows[0]["type"] for name, rows in after.items()}
    cuts += _parts("type", after, types.__getitem__, sorted(set(types.values()) - {""}))
    scores = {
        Measure(PASS, cut_, of, k): _scored(after, names, k)
        for cut_, of, names in cuts
        for k in _possible(ks, after)
    }
    scores |= {
        Measure(BEFORE, k=k): _scored(before, before, k) for k in _possible(ks, before)
    }
    lengths = {n: mean([row["length"] for row in rows]) for n, rows in after.items()}
    return scores | {Measure(LENGTH): _of_problems(lengths)}


def _by_id(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["id"], []).append(row)
    return found


def _possible(ks: Iterable[int], rows: Mapping[str, list[Row]]) -> list[int]:
    """Returns those k for which every problem has samples enough."""
    fewest = min(map(len, rows.values()), default=0)
    return [k for k in ks if k <= fewest]


def _parts(
    cut: str, names: Iterable[str], part: Callable[[str], str], parts: Iterable[str]
) -> list[tuple[str, str, list[str]]]:
    """Returns (cut, part, the problems in it) for each part that has any."""
    found = [(cut, each, [n for n in names if part(n) == each]) for each in parts]
    return [each for each in found if each[2]]


def _scored(rows: Mapping[str, list[Row]], names: Iterable[str], k: int) -> Score:
    return _of_problems(
        {
            name: pass_at_k(
                len(rows[name]), sum(row["verdict"] == "right" for row in rows[name]), k
            )
            for name in names
        }
    )


def _of_problems(values: Mapping[str, float]) -> Score:
    return Score(mean=mean([*values.values()]), by_problem=values)


def _stated(scores: Mapping[str, Any]) -> dict[Measure, Score]:
    """Returns the held-out scores as summary.json gives them."""
    cuts = [("all", "", scores)]
    for cut in ("band", "type"):
        parts = scores.get(f"by_{cut}", {}).items()
        cuts += [(cut, of, part) for of, part in parts if of]
    found = {
        Measure(PASS, cut, of, int(k)): Score(mean=interval["mean"], stated=interval)
        for cut, of, part in cuts
        for k, interval in part["pass@k"].items()
    }
    return found | {Measure(LENGTH): Score(mean=scores["length_mean"])}


def _cuts(config: Mapping[str, Any]) -> DifficultyConfig:
    """Returns the cuts between bands: the defaults in runs older than the setting."""
    if "difficulty" not in config:
        return DifficultyConfig()
    cuts = ("hard_below", "easy_above")
    return DifficultyConfig(**{name: config["difficulty"][name] for name in cuts})
