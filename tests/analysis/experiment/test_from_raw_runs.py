"""An experiment's table, computed a second time from the runs' files.

This reads rollouts/ itself and takes its statistics from SciPy. Seeds are listed out of
order, their folders sort differently from their numbers, and arms sort their problems
differently. So any pairing by position would be wrong.
"""

import collections
import gzip
import json
import random

import numpy as np
import pytest
from scipy import stats

from rlvr_jax.analysis.experiment.record import make_record, write_record
from rlvr_jax.analysis.experiment.results import outcome_table, read_results
from rlvr_jax.config import Arm, Config, Experiment
from tests.support.run_workdirs import contender

SEEDS = (10, 2, 33, 4)  # as folders: seed_10, seed_2, seed_33, seed_4
PROBLEMS = [f"p{n}" for n in range(12)]
ARMS = {"plain": 0.55, "other": 0.35, "third": 0.8}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment")
    told = Experiment(
        question="Does it work?",
        reference="a paper",
        arms={name: Arm() for name in ARMS},
        baseline="plain",
        outcomes=("pass@1", "pass@1 gained", "completion length"),
        seed_sd=0.1,
        seed_sd_source="a guess",
        seeds=SEEDS,
    )
    write_record(path, make_record(told, Config(), is_reduced=False))
    for place, (name, rate) in enumerate(ARMS.items()):
        for seed in SEEDS:
            rng = random.Random(f"{name} {seed}")
            names = rng.sample(PROBLEMS, len(PROBLEMS))  # each in another order

            def answers(chance, names=names, rng=rng):
                return {
                    p: "".join("r" if rng.random() < chance else "w" for _ in range(4))
                    for p in names
                }

            contender(
                path / name / f"seed_{seed}",
                answers(rate + 0.004 * seed + 0.01 * place),
                before=answers(0.3),
                seed=seed,
            )
    return path


def _read(workdir, when):
    """Returns the correct share of each problem and the lengths, from the text."""
    right, lengths = collections.defaultdict(list), []
    with gzip.open(workdir / f"rollouts/eval_{when}_000000.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            right[row["id"]].append(row["verdict"] == "correct")
            lengths.append(row["length"])
    return {name: np.mean(each) for name, each in right.items()}, np.mean(lengths)


def _by_seed(folder, arm, measure):
    return {seed: measure(folder / arm / f"seed_{seed}") for seed in SEEDS}


def _pass(workdir):
    return np.mean([*_read(workdir, "after")[0].values()])


def _gained(workdir):
    before, after = (_read(workdir, when)[0] for when in ("before", "after"))
    return np.mean([after[name] - before[name] for name in before])


MEASURES = {"pass@1": _pass, "pass@1 gained": _gained}


@pytest.mark.parametrize("name", MEASURES)
def test_means_and_intervals_match_the_runs(folder, name):
    found = read_results(folder).metric(name)
    for arm in ARMS:
        values = [*_by_seed(folder, arm, MEASURES[name]).values()]
        interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
        told = found["values"][arm]
        assert told["mean"] == pytest.approx(np.mean(values))
        assert told["low"] == pytest.approx(interval.low)
        assert told["high"] == pytest.approx(interval.high)
        assert told["runs"] == len(SEEDS)


@pytest.mark.parametrize("name", MEASURES)
def test_differences_are_paired_by_seed(folder, name):
    found = read_results(folder).metric(name)
    base = _by_seed(folder, "plain", MEASURES[name])
    for arm in ("other", "third"):
        ours = _by_seed(folder, arm, MEASURES[name])
        pairs = [ours[seed] - base[seed] for seed in SEEDS]
        interval = stats.ttest_1samp(pairs, 0).confidence_interval(0.95)
        told = found["differences"][arm]
        assert told["method"] == "seed"
        assert told["mean"] == pytest.approx(np.mean(pairs))
        assert told["low"] == pytest.approx(interval.low)
        assert told["high"] == pytest.approx(interval.high)
        # Pairing in the order of the folders' names gives another interval.
        shifted = np.array([*ours.values()]) - np.roll([*base.values()], 1)
        wrong = stats.ttest_1samp(shifted, 0).confidence_interval(0.95)
        assert abs(wrong.low - interval.low) > 1e-3


def test_the_table_has_the_values_in_the_order_of_the_seeds(folder):
    results = read_results(folder)
    order = results.arms[0].seeds
    assert sorted(order) == sorted(SEEDS)
    for row in outcome_table(results).rows:
        if row[0] != "pass@1, %":
            continue
        values = _by_seed(folder, row[1], _pass)
        expected = " ".join(f"{100 * values[seed]:.1f}" for seed in order)
        assert expected in row


def test_a_seed_missing_from_one_arm_is_in_no_mean(folder, tmp_path):
    for arm in ARMS:
        for seed in SEEDS:
            if (arm, seed) != ("other", 33):
                target = tmp_path / arm / f"seed_{seed}"
                target.parent.mkdir(exist_ok=True)
                target.symlink_to(folder / arm / f"seed_{seed}")
    record = folder / "experiment.json"
    (tmp_path / "experiment.json").write_text(record.read_text())
    found = read_results(tmp_path).metric("pass@1")
    for arm in ARMS:
        values = _by_seed(folder, arm, _pass)
        expected = np.mean([values[seed] for seed in SEEDS if seed != 33])
        assert found["values"][arm]["mean"] == pytest.approx(expected)
