"""An arm's own features: what no other arm of its seed gained."""

import json
import shutil

import pytest
from feature_worlds import World, write_features
from run_workdirs import BEFORE, contender

from rlvr_jax.analysis.experiment.features import count_own_features
from rlvr_jax.analysis.experiment.record import make_record, write_record
from rlvr_jax.analysis.experiment.results import outcome_table, read_results
from rlvr_jax.config import Arm, Config, Experiment

HARD = World(gain={"hard": {0: 2.0, 2: 2.0, 3: 2.0}})
EASY = World(gain={"hard": {3: 2.0}})


@pytest.fixture
def runs(tmp_path):
    """Two arms: on hard texts hard gained 0, 2 and 3, easy gained 3."""
    paths = [tmp_path / "hard/seed_0", tmp_path / "easy/seed_0"]
    for number, (path, world) in enumerate(zip(paths, (HARD, EASY), strict=True)):
        contender(path, BEFORE, num_epochs=number + 1)
        write_features(path, world)
    return paths


def test_own_is_what_the_other_arm_did_not_gain(runs):
    hard, easy = (
        {(metric.name, metric.group): score.mean for metric, score in of_run.items()}
        for of_run in count_own_features(runs)
    )
    assert hard["features of its own", "hard"] == 2
    assert easy["features of its own", "hard"] == 0
    assert hard["features of its own", "easy"] == 0


def test_each_run_gets_the_file_of_analysis_features(runs):
    count_own_features(runs)
    for path, gained in zip(runs, (3, 1), strict=True):
        found = json.loads((path / "features/dynamics.json").read_text())
        assert found["counts"]["hard"]["strengthened"] == gained


def test_runs_of_one_config_are_runs_of_their_own(tmp_path):
    """The same arm twice: what both gained is nobody's own."""
    paths = [tmp_path / "once", tmp_path / "again"]
    for path in paths:
        contender(path, BEFORE)
        write_features(path, HARD)
    counts = count_own_features(paths)
    assert len(counts) == 2
    assert all(score.mean == 0 for of_run in counts for score in of_run.values())


def write_experiment(folder):
    experiment = Experiment(
        question="Does hard training have features of its own?",
        reference="a paper",
        arms={"hard": Arm(published="35"), "easy": Arm(published="5")},
        baseline="easy",
        outcomes=(
            "features of its own, hard",
            "features claimed, hard",
            "features that noise claims, hard",
        ),
        seed_sd=1.0,
        seed_sd_source="a guess",
        seeds=(0,),
    )
    write_record(folder, make_record(experiment, Config(), is_reduced=False))


def test_an_experiment_sets_them_beside_the_claims_of_noise(runs, tmp_path):
    write_experiment(tmp_path)
    rows = outcome_table(read_results(tmp_path)).rows
    own, claimed, noise = (
        {row[1]: row[2] for row in rows[at : at + 2]} for at in (0, 2, 4)
    )
    assert own == {"easy": "0.0", "hard": "2.0"}
    assert claimed == {"easy": "1.0", "hard": "3.0"}
    # The draws are of the world without its gains: alike for both.
    assert noise["easy"] == noise["hard"]
    assert len(rows) == 6


def test_why_there_are_no_features_is_told(runs, tmp_path):
    write_experiment(tmp_path)
    shutil.rmtree(runs[1] / "features")
    results = read_results(tmp_path)
    assert "seed 0 tells of no features: " in results.left_out[-1]
    assert f"{runs[1]} has no features logged" in results.left_out[-1]
