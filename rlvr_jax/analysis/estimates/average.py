"""Rank correlations of estimates with influence, averaged over steps and seeds."""

import collections
import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from job_jax.flags import UsageError
from rlvr_jax.metrics.multiple import holm, paired_p_value
from rlvr_jax.metrics.ranks import OverSeeds


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """One file of `analysis influence`: a step of a run, and its rank correlations."""

    run: str
    step: int
    seed: int
    num_problems: int  # with a signal
    correlations: Mapping[str, Mapping[str, float]]  # by outcome and estimate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Averaged:
    """An estimate's correlation with one outcome, over seeds, and its p-values."""

    outcome: str
    estimate: str
    over_seeds: OverSeeds
    p: float
    p_holm: float


def read_measured(paths: Sequence[str]) -> list[Measured]:
    """Returns the results in these files.

    Raises UsageError on a file that `analysis influence` did not write, if two of them
    are of the same step of a run, and if two runs have one seed.
    """
    found = [_read(Path(path)) for path in paths]
    counts = collections.Counter((one.run, one.step) for one in found)
    (run, step), count = counts.most_common(1)[0]
    if count > 1:
        raise UsageError(f"{run}@{step} is in two of the files; give each step once")
    of_seed: dict[int, str] = {}
    for one in found:
        other = of_seed.setdefault(one.seed, one.run)
        if other != one.run:
            raise UsageError(
                f"{other} and {one.run} both have seed {one.seed}; give one run a seed"
            )
    return found


def _read(path: Path) -> Measured:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Measured(
            run=str(Path(data["run"]).resolve()),
            step=data["step"],
            seed=data["seed"],
            num_problems=sum(one["has_signal"] for one in data["problems"]),
            correlations={
                outcome: {name: found["mean"] for name, found in by_name.items()}
                for outcome, by_name in data["correlations"].items()
            },
        )
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path} is not a result of this version's `analysis influence` "
            f"({type(error).__name__}: {error}); measure the step again"
        ) from error


def average_estimates(results: Sequence[Measured]) -> list[Averaged]:
    """Returns each estimate's mean over seeds of its mean over a seed's steps.

    p is of Student's t-test over seeds that the mean is 0. Holm's correction is over
    the estimates of one outcome.
    """
    found: list[Averaged] = []
    for outcome in _names(one.correlations for one in results):
        of_steps = [one.correlations.get(outcome, {}) for one in results]
        over_seeds = {
            name: _average(
                [
                    (one.seed, by_name[name])
                    for one, by_name in zip(results, of_steps, strict=True)
                    if name in by_name
                ]
            )
            for name in _names(of_steps)
        }
        p = [paired_p_value([*one.by_seed.values()]) for one in over_seeds.values()]
        found += [
            Averaged(
                outcome=outcome,
                estimate=name,
                over_seeds=one,
                p=p_one,
                p_holm=float(p_holm),
            )
            for (name, one), p_one, p_holm in zip(
                over_seeds.items(), p, holm(p), strict=True
            )
        ]
    return found


def _average(by_step: Sequence[tuple[int, float]]) -> OverSeeds:
    of_seed: dict[int, list[float]] = {}
    for seed, value in by_step:
        of_seed.setdefault(seed, []).append(value)
    return OverSeeds.average(
        {seed: float(np.mean(of_seed[seed])) for seed in sorted(of_seed)}
    )


def _names(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for one in mappings for name in one))
