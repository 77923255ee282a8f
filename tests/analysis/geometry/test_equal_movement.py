"""Runs of one start compared where their weights have moved equally far."""

import dataclasses
import json
import math

import numpy as np
import pytest

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis.geometry.equal_movement import (
    METRICS,
    compare_at_equal_movement,
    equal_movement_table,
    find_step,
    read_series,
    value_at,
)
from rlvr_jax.analysis.geometry.movement import (
    RunMovement,
    measure_distance,
    measure_run,
)
from tests.analysis.geometry.test_geometry import write_run
from tests.support.run_workdirs import BEFORE, contender


def moved(workdir, steps, distances, start="s"):
    return RunMovement(
        workdir=workdir, steps=[*steps], start=start, distances=[*distances]
    )


def test_a_distance_is_of_all_tensors_as_one_vector():
    """W_0 is (3, 4, 0) with length 5; it moves by (0, 0, 1) and then by (2, 0, 2)."""
    before = {"a": np.array([[3.0], [4.0]]), "b": np.array([0.0])}
    now = {"a": np.array([[3.0], [4.0]]), "b": np.array([1.0])}
    assert measure_distance(before, now) == pytest.approx(0.2)
    now = {"a": np.array([[5.0], [4.0]]), "b": np.array([-2.0])}
    assert measure_distance(before, now) == pytest.approx(math.sqrt(8) / 5)
    assert measure_distance(before, before) == 0


def test_a_runs_distances_are_one_for_each_checkpoint(tmp_path):
    path = write_run(tmp_path / "run", {2: 0.5, 4: 1.0, 6: 0.25})
    run = measure_run(path, on_progress=lambda done, total: None)
    assert run.steps == [2, 4, 6]
    first, second, third = run.distances
    assert second == pytest.approx(2 * first)
    assert third == pytest.approx(first / 2)


@pytest.mark.parametrize(
    ("distance", "step"),
    [
        (0.0, 0),  # another run never moved
        (0.1, 10),  # half of the way to the first checkpoint
        (0.2, 20),
        (0.25, 25),  # a quarter of the way from 0.2 to 0.4
        (0.4, 40),
        (0.3, 30),  # where it is first reached, though it comes back to it
    ],
)
def test_the_step_is_the_first_at_that_distance(distance, step):
    run = moved("", [20, 40, 60], [0.2, 0.4, 0.3])
    assert find_step(run, distance) == pytest.approx(step)


def test_a_value_lies_on_the_line_between_its_neighbours():
    series = ([0, 20, 40], [0.5, 0.7, 0.3])
    assert value_at(series, 10) == pytest.approx(0.6)
    assert value_at(series, 35) == pytest.approx(0.4)
    assert value_at(series, 41) == 0.3  # one update more than the last value
    assert math.isnan(value_at(series, 41.5))
    assert math.isnan(value_at(([20, 40], [0.5, 0.7]), 10))
    assert math.isnan(value_at(([], []), 10))


def write(path, passes, entropies, *, before=0.5):
    """Returns a finished run with evaluations after updates 20 and 40."""
    contender(path, BEFORE)
    (path / "metrics.jsonl").unlink()
    with MetricsWriter(path) as writer:
        for step in range(40):
            row = {"rollout/entropy": entropies[step // 20]}
            if passes and (step + 1) % 20 == 0:
                row |= {"eval/pass@1": passes[step // 20], "eval/pass@8": 0.9}
            writer.write("train", step, row)
    summary = json.loads((path / "summary.json").read_text())
    scores = {str(k): {"mean": before} for k in (1, 8)}
    summary["eval"]["before"] = {"pass@k": scores}
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def test_evaluations_follow_the_update_and_completions_come_before(tmp_path):
    run = moved(write(tmp_path / "run", (0.6, 0.7), (1.0, 0.5)), [20, 40], [0.1, 0.2])
    assert read_series(run, "eval/pass@1") == ([0, 20, 40], [0.5, 0.6, 0.7])
    at, values = read_series(run, "rollout/entropy")
    assert (at[0], at[-1], values[0], values[-1]) == (0, 39, 1.0, 0.5)


def test_arms_are_compared_where_the_slower_one_ended(tmp_path):
    """The fast arm passes distance 0.1 after 10 updates, where the slow one ends."""
    fast = write(tmp_path / "fast", (0.7, 0.9), (1.0, 0.5))
    slow = write(tmp_path / "slow", (0.5, 0.4), (1.0, 0.8))
    arms = {
        "fast": [moved(fast, [20, 40], [0.2, 0.4])],
        "slow": [moved(slow, [20, 40], [0.05, 0.1])],
    }
    found = {(one.metric, one.arm): one for one in compare_at_equal_movement(arms)}
    assert found["eval/pass@1", "fast"].steps == [10]
    assert found["eval/pass@1", "fast"].values == pytest.approx([0.6])
    assert found["eval/pass@1", "slow"].steps == [40]
    assert found["eval/pass@1", "slow"].differences == pytest.approx([-0.2])
    assert found["rollout/entropy", "fast"].values == [1.0]
    assert found["rollout/entropy", "slow"].values == [0.8]
    rows = equal_movement_table([*found.values()]).rows
    assert rows[0] == ["eval/pass@1", "fast", "10", "0.600", ""]
    assert rows[1][:2] + rows[1][3:] == ["eval/pass@1", "slow", "0.400", "-0.200"]


def test_each_start_has_its_own_distance_and_only_shared_starts_count(tmp_path):
    paths = {
        name: write(tmp_path / name, (0.6, 0.8), (1.0, 1.0))
        for name in ("a1", "a2", "b1", "b2", "b3")
    }
    arms = {
        "a": [
            moved(paths["a1"], [20, 40], [0.1, 0.2], "one"),
            moved(paths["a2"], [20, 40], [0.3, 0.6], "two"),
        ],
        "b": [
            moved(paths["b2"], [20, 40], [0.15, 0.3], "two"),
            moved(paths["b1"], [20, 40], [0.2, 0.4], "one"),
            moved(paths["b3"], [20, 40], [0.2, 0.4], "three"),
        ],
    }
    a, b, *_ = compare_at_equal_movement(arms)
    assert (a.steps, b.steps) == ([40, 20], [20, 40])
    # From a pretrained model all seeds have one start: then seeds tell runs apart.
    same = {
        label: [
            dataclasses.replace(run, start="hf", seed=["one", "two"].index(run.start))
            for run in runs
            if run.start != "three"
        ]
        for label, runs in arms.items()
    }
    assert compare_at_equal_movement(same)[0].steps == a.steps
    assert a.values == pytest.approx([0.8, 0.6])
    assert b.differences == pytest.approx([-0.2, 0.2])


def test_a_metric_that_a_run_lacks_is_left_out(tmp_path):
    arms = {}
    for name in ("a", "b"):
        path = write(tmp_path / name, (0.6, 0.8)[: 2 * (name == "a")], (1.0, 1.0))
        arms[name] = [moved(path, [20, 40], [0.1, 0.2])]
    found = {one.metric for one in compare_at_equal_movement(arms)}
    assert found == {"rollout/entropy"}


def test_one_arm_or_one_checkpoint_is_no_comparison(tmp_path):
    path = write(tmp_path / "run", (0.6, 0.8), (1.0, 1.0))
    run = moved(path, [20, 40], [0.1, 0.2])
    assert compare_at_equal_movement({"a": [run]}) == []
    lone = moved(path, [40], [0.2])
    assert compare_at_equal_movement({"a": [run], "b": [lone]}) == []
    other = moved(path, [20, 40], [0.1, 0.2], "another")
    assert compare_at_equal_movement({"a": [run], "b": [other]}) == []
    assert set(METRICS) == {"eval/pass@1", "eval/pass@8", "rollout/entropy"}
