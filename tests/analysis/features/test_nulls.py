"""Each kind of noise draw is used for its own purpose: null, check or other noise.

Each test plants a feature that only one kind of draw moves, in every draw of that kind.
The counts then show which draws were used for which purpose.
"""

import dataclasses
import json

import pytest

from rlvr_jax.analysis import read_run
from rlvr_jax.analysis.features.dynamics import compute_dynamics, to_json
from rlvr_jax.analysis.features.log import read_feature_log
from rlvr_jax.probe.weight_noise import NoiseReadings, noise_file
from sae_jax.stats.dynamics import Thresholds
from sae_jax.stats.feature_statistics import FeatureTable
from tests.support.feature_worlds import World, write_features

STEP, GROWN = 100, 0  # RL changes only feature 0, on hard texts
WORLD = World(latents=24, gain={"hard": {GROWN: 1.8}})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    config = {
        "name": "run",
        "seed": 0,
        "train": {"steps": STEP},
        "probe": {"max_unexplained_growth": 0.5},
    }
    record = {"config": config, "seed": 0, "device": "1 x cpu"}
    (path / "config.json").write_text(json.dumps(record))
    write_features(path, WORLD, steps=(0, STEP))
    return path


@pytest.fixture
def counts(run):
    """Returns the number of claims for the run and for each draw of noise.

    In all draws of a kind the sums of the planted features are doubled.
    """
    file = noise_file(run, STEP)
    untouched = file.read_bytes()

    def count(planted):
        file.write_bytes(untouched)
        readings = NoiseReadings.load(file)
        for kind, features in planted.items():
            for name, sums in readings.sums.items():
                if name.startswith(kind):
                    sums[:, features] *= 2.0
        readings.save(file)
        found = compute_dynamics(read_feature_log(read_run(run)), Thresholds())
        check, norm = (
            [draw["hard"]["claimed"] for draw in null.draws] for null in found.nulls
        )
        return found.counts["hard"]["claimed"], check, norm

    yield count
    file.write_bytes(untouched)


def test_without_anything_planted_the_run_alone_claims(counts):
    assert counts({}) == (1, [0] * 5, [0] * 5)


def test_the_check_uses_its_own_draws(counts):
    assert counts({"check": [5]}) == (1, [1] * 5, [0] * 5)


def test_other_noise_uses_its_own_draws(counts):
    assert counts({"norm": [6, 7]}) == (1, [0] * 5, [2] * 5)


def test_the_null_is_made_of_the_draws_of_equal_drift(counts):
    """A feature that those draws move as far is claimed for nothing."""
    assert counts({"drift": [GROWN]}) == (0, [0] * 5, [0] * 5)
    alike = {"drift": [5], "check": [5], "norm": [5]}
    assert counts(alike) == (1, [0] * 5, [0] * 5)


def test_texts_are_paired_in_whichever_order_they_were_logged(run):
    """The rows of the later step and of step 0 have different orders."""
    log = read_feature_log(read_run(run))
    expected = to_json(compute_dynamics(log, Thresholds()))
    file = run / f"features/step_{STEP:06d}.npz"
    written = file.read_bytes()
    table = FeatureTable.load(file)
    turned = {name: array[::-1] for name, array in vars(table.statistics).items()}
    statistics = dataclasses.replace(table.statistics, **turned)
    FeatureTable(rows=table.rows[::-1], statistics=statistics).save(file)
    assert to_json(compute_dynamics(log, Thresholds())) == expected
    file.write_bytes(written)
    assert expected["features"]
