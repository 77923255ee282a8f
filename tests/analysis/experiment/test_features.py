"""An arm's own features: gained by no other arm of its seed."""

import dataclasses
import json
import shutil

import pytest

from rlvr_jax.analysis.experiment.features import count_own_features
from rlvr_jax.analysis.experiment.record import make_record, write_record
from rlvr_jax.analysis.experiment.results import outcome_table, read_results
from rlvr_jax.analysis.features.log import NoFeaturesError
from rlvr_jax.config import Arm, Config, Experiment
from tests.support.feature_worlds import World, write_features
from tests.support.run_workdirs import BEFORE, contender

HARD = World(gain={"hard": {0: 2.0, 2: 2.0, 3: 2.0}})
EASY = World(gain={"hard": {3: 2.0}})


@pytest.fixture
def runs(tmp_path):
    """Two arms: on hard texts hard gained 0, 2 and 3, easy gained 3."""
    paths = {name: tmp_path / name / "seed_0" for name in ("hard", "easy")}
    worlds = zip(paths.values(), (HARD, EASY), strict=True)
    for number, (path, world) in enumerate(worlds):
        contender(path, BEFORE, num_epochs=number + 1)
        write_features(path, world)
    return paths


def test_own_features_are_not_gained_by_the_other_arm(runs):
    counts = count_own_features(runs, ("hard", "easy"), write=False)
    hard, easy = (
        {(metric.name, metric.group): score.mean for metric, score in of_run.items()}
        for of_run in (counts["hard"], counts["easy"])
    )
    assert hard["features of its own", "hard"] == 2
    assert easy["features of its own", "hard"] == 0
    assert hard["features of its own", "easy"] == 0


def test_each_run_gets_the_file_of_analysis_features(runs):
    count_own_features(runs, ("hard", "easy"), write=False)
    assert not any((path / "features/dynamics.json").exists() for path in runs.values())
    count_own_features(runs, ("hard", "easy"), write=True)
    for path, gained in zip(runs.values(), (3, 1), strict=True):
        found = json.loads((path / "features/dynamics.json").read_text())
        assert found["counts"]["hard"]["strengthened"] == gained


def test_an_arm_that_is_no_feature_arm_takes_nothing_from_those_that_are(
    runs, tmp_path
):
    """A fork of hard gained the same as hard; its file is written all the same."""
    fork = tmp_path / "fork/seed_0"
    contender(fork, BEFORE, num_epochs=3)
    write_features(fork, HARD)
    counts = count_own_features({**runs, "fork": fork}, ("hard", "easy"), write=True)
    assert counts == count_own_features(runs, ("hard", "easy"), write=True)
    alone = json.loads((fork / "features/dynamics.json").read_text())
    assert alone["counts"]["hard"]["strengthened"] == 3
    of_hard = count_own_features(
        {**runs, "fork": fork}, ("hard", "easy", "fork"), write=True
    )
    assert {score.mean for score in of_hard["hard"].values()} == {0.0}


def test_an_arm_without_a_probe_takes_no_counts_from_the_feature_arms(runs, tmp_path):
    bare = tmp_path / "bare/seed_0"
    contender(bare, BEFORE, num_epochs=3)
    counts = count_own_features({**runs, "bare": bare}, ("hard", "easy"), write=True)
    assert counts == count_own_features(runs, ("hard", "easy"), write=True)
    with pytest.raises(NoFeaturesError, match="has no features logged"):
        count_own_features({**runs, "bare": bare}, ("hard", "easy", "bare"), write=True)


def test_an_arm_of_another_dictionary_is_no_feature_arm(runs, tmp_path):
    wide = tmp_path / "wide/seed_0"
    contender(wide, BEFORE, num_epochs=3)
    write_features(wide, dataclasses.replace(HARD, latents=80), dictionary=1)
    counts = count_own_features({**runs, "wide": wide}, ("hard", "easy"), write=True)
    assert counts == count_own_features(runs, ("hard", "easy"), write=True)
    alone = json.loads((wide / "features/dynamics.json").read_text())
    assert alone["counts"]["hard"]["strengthened"] == 3
    with pytest.raises(NoFeaturesError, match=r"two T-SAEs .* \(80 latents\)"):
        count_own_features({**runs, "wide": wide}, ("hard", "easy", "wide"), write=True)


def test_runs_of_one_config_are_runs_of_their_own(tmp_path):
    """The same arm twice: a feature gained by both is own to neither."""
    paths = {name: tmp_path / name for name in ("once", "again")}
    for path in paths.values():
        contender(path, BEFORE)
        write_features(path, HARD)
    counts = count_own_features(paths, [*paths], write=True)
    assert counts.keys() == paths.keys()
    for of_run in counts.values():
        assert {score.mean for score in of_run.values()} == {0.0}


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


def test_an_experiment_shows_them_next_to_the_claims_of_noise(runs, tmp_path):
    write_experiment(tmp_path)
    rows = outcome_table(read_results(tmp_path)).rows
    own, claimed = ({row[1]: row[2] for row in rows[at : at + 2]} for at in (0, 2))
    assert own == {"easy": "0.0", "hard": "2.0"}
    assert claimed == {"easy": "1.0", "hard": "3.0"}
    # The draws come from the world without its gains: the same for both.
    (noise,) = rows[4:]
    assert noise[1] == "easy, hard"


def test_the_reason_for_missing_features_is_reported(runs, tmp_path):
    write_experiment(tmp_path)
    shutil.rmtree(runs["easy"] / "features")
    results = read_results(tmp_path)
    assert "seed 0 has no feature counts: " in results.left_out[-1]
    assert f"{runs['easy']} has no features logged" in results.left_out[-1]
