"""Intervals of every comparison method cover the truth, in simulated arms.

Each metric is an independent world with the same truth, so one comparison makes
hundreds of intervals. Most of the spread comes from what both arms share, seeds or
problems. An interval that ignored the pairs, or formed wrong ones, would be far too
wide.
"""

import pathlib
import types

import numpy as np
import pytest

from rlvr_jax.analysis.compare.arms import ExperimentArm, compare_arms
from rlvr_jax.analysis.compare.metric import LENGTH, PASS, Metric, Score
from rlvr_jax.analysis.compare.run_metrics import RunMetrics

WORLDS = 600
CONFIG = {"seed": 0, "task": {}, "train": {}, "log": {}}


def run(name, seed, scores):
    """Returns a run with these scores, without a workdir."""
    artifacts = types.SimpleNamespace(
        path=pathlib.Path(name), config={**CONFIG, "seed": seed, "arm": name[0]}
    )
    return RunMetrics(run=artifacts, scores=scores, missing=[], after={}, before={})


def compared(arms):
    """Returns values and differences of each world, [W, 3] each, and the method."""
    comparison = compare_arms(
        [ExperimentArm(label=name, runs=runs) for name, runs in arms.items()]
    )
    base, other = arms
    ends = ("mean", "low", "high")
    values, differences = (
        np.array([[each[end] for end in ends] for each in found], float)
        for found in (
            [metric["values"][base] for metric in comparison["metrics"]],
            [metric["differences"][other] for metric in comparison["metrics"]],
        )
    )
    methods = {
        metric["differences"][other]["method"] for metric in comparison["metrics"]
    }
    (method,) = methods
    return values, differences, method


def assert_covered(found_W3, truth, *, least=0.012, most=0.042):
    """Checks that each side misses about 2.5 % of the worlds."""
    mean_W, low_W, high_W = found_W3.T
    assert ((low_W <= mean_W) & (mean_W <= high_W)).all()
    for share in (np.mean(truth > high_W), np.mean(truth < low_W)):
        assert least <= share <= most


def arm_of_seeds(name, values):
    """Returns an arm of a run a seed, from values [W] by seed."""
    return [
        run(
            f"{name}{seed}",
            seed,
            {
                Metric(LENGTH, "type", str(world)): Score(mean=float(value))
                for world, value in enumerate(of_seed)
            },
        )
        for seed, of_seed in values.items()
    ]


def test_paired_seeds_are_covered_in_any_order():
    """Seeds vary by 10, arms of one seed by 1: Student's t of five pairs."""
    rng = np.random.default_rng(0)
    seeds = range(5)
    common = {seed: 50 + 10 * rng.normal(size=WORLDS) for seed in seeds}
    base, other = (
        {seed: common[seed] + gain + rng.normal(size=WORLDS) for seed in order}
        for gain, order in ((0.0, seeds), (2.0, (3, 1, 4, 0, 2)))
    )
    values, differences, method = compared(
        {"base": arm_of_seeds("b", base), "other": arm_of_seeds("o", other)}
    )
    assert method == "seed"
    assert_covered(values, 50.0)
    assert_covered(differences, 2.0)
    # 2 t sd / sqrt(5), sd = sqrt(2), t of 4 = 2.776: 3.3, and 35 without the pairs.
    assert np.mean(differences[:, 2] - differences[:, 1]) < 4.0


def test_arms_of_other_seeds_are_covered_without_pairs():
    rng = np.random.default_rng(1)
    base, other = (
        {seed: gain + spread * rng.normal(size=WORLDS) for seed in seeds}
        for gain, spread, seeds in ((50.0, 1.0, range(4)), (52.0, 4.0, range(2, 8)))
    )
    _, differences, method = compared(
        {"base": arm_of_seeds("b", base), "other": arm_of_seeds("o", other)}
    )
    assert method == "welch"
    assert_covered(differences, 2.0)


def one_run(name, metric_name, values, problems):
    """Returns an arm of one run, from values [problem, W]."""
    scores = {
        Metric(metric_name, "type", str(world)): Score(
            mean=float(column.mean()),
            by_problem=dict(zip(problems, column.tolist(), strict=True)),
        )
        for world, column in enumerate(values.T)
    }
    return [run(name, 0, scores)]


def test_lengths_of_the_same_problems_are_covered_by_pairs():
    """The problems of the second arm are in another order."""
    rng = np.random.default_rng(2)
    names = [f"p{i}" for i in range(40)]
    common = 50 + 10 * rng.normal(size=(40, WORLDS))
    base, other = (common + gain + rng.normal(size=common.shape) for gain in (0.0, 2.0))
    order = rng.permutation(40)
    values, differences, method = compared(
        {
            "base": one_run("b", LENGTH, base, names),
            "other": one_run("o", LENGTH, other[order], [names[i] for i in order]),
        }
    )
    assert method == "problem"
    assert_covered(values, 50.0)
    assert_covered(differences, 2.0)
    assert np.mean(differences[:, 2] - differences[:, 1]) < 1.1  # 2 x 2.02 sqrt(2 / 40)


def test_lengths_of_other_problems_are_covered_unpaired():
    rng = np.random.default_rng(3)
    base = 50 + 10 * rng.normal(size=(40, WORLDS))
    other = 52 + 3 * rng.normal(size=(25, WORLDS))
    _, differences, method = compared(
        {
            "base": one_run("b", LENGTH, base, [f"p{i}" for i in range(40)]),
            "other": one_run("o", LENGTH, other, [f"q{i}" for i in range(25)]),
        }
    )
    assert method == "unpaired"
    assert_covered(differences, 2.0)


@pytest.mark.parametrize("is_paired", [True, False])
def test_fractions_are_covered_with_and_without_pairs(monkeypatch, is_paired):
    """pass@1 of 120 problems, four samples each: 0.4 against 0.5.

    The intervals are slightly too wide, because they allow for an unseen problem.
    """
    monkeypatch.setattr("rlvr_jax.analysis.compare.arms._RESAMPLES", 300)
    rng = np.random.default_rng(4)
    worlds = 300
    own = rng.beta(0.8, 1.2, size=(120, worlds))
    harder = own if is_paired else rng.beta(0.8, 1.2, size=own.shape)
    base = rng.binomial(4, harder) / 4
    other = rng.binomial(4, own + (1 - own) / 6) / 4
    names = [f"p{i}" for i in range(120)]
    theirs = names if is_paired else [f"q{i}" for i in range(120)]
    values, differences, method = compared(
        {
            "base": one_run("b", PASS, base, names),
            "other": one_run("o", PASS, other, theirs),
        }
    )
    assert method == ("problem" if is_paired else "unpaired")
    assert_covered(values, 0.4, least=0.003, most=0.04)
    assert_covered(differences, 0.1, least=0.003, most=0.04)
    width = np.mean(differences[:, 2] - differences[:, 1])
    assert (width < 0.13) == is_paired
