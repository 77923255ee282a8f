"""Which metrics move before held-out pass@1 falls, when, and how reliably."""

import json
import math
import random

import pytest

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.warnings.measure import (
    LIMIT,
    WINDOW,
    find_fall,
    find_moves,
    find_warnings,
    watch_run,
)
from rlvr_jax.report.run_files import read_run
from tests.support.run_workdirs import config

FLAT = [1.0, -1.0] * 10  # neighbors are 2 apart: a step's standard deviation is 1.414


def write_run(path, *, before=0.6, scores=(), **metrics):
    """Returns a workdir evaluated every 5 steps, with each metric at every step."""
    path.mkdir()
    record = {"config": config(5 * len(scores))}
    (path / "config.json").write_text(json.dumps(record))
    start = {"pass@k": {"1": {"mean": before, "low": 0.0, "high": 1.0}}}
    (path / "summary.json").write_text(json.dumps({"eval": {"before": start}}))
    with MetricsWriter(path) as writer:
        for step in range(5 * len(scores)):
            row = {name.replace("__", "/"): of[step] for name, of in metrics.items()}
            if step % 5 == 4:
                row["eval/pass@1"] = scores[step // 5]
            writer.write("train", step, row)
    return path


@pytest.mark.parametrize(
    ("scores", "fall"),
    [
        ([0.6, 0.54, 0.54, 0.7], 1),
        ([0.6, 0.54, 0.6, 0.54], None),  # once is chance
        ([0.6, 0.6, 0.6, 0.54], None),
        ([0.551, 0.551, 0.551, 0.551], None),
        ([0.549, 0.549, 0.6, 0.6], 0),
    ],
)
def test_a_fall_is_two_evaluations_in_a_row_below_the_margin(scores, fall):
    assert find_fall(scores, 0.6, margin=0.05) == fall


def test_a_move_is_measured_in_errors_of_means_of_steps():
    error = math.sqrt(2) * math.sqrt(2 / WINDOW)
    # `high` more from the middle on. Windows of five of FLAT differ by up to 0.4 by
    # chance, so the bounds leave that much room.
    for factor, moves in ((0.9, False), (1.6, True)):
        high = factor * LIMIT * error
        values = [*FLAT, *(high + value for value in FLAT)]
        assert (find_moves(values).get("rises") is not None) == moves
        falls = find_moves([-value for value in values])
        assert (falls.get("falls") is not None) == moves
        assert "rises" not in falls


def test_a_move_is_told_when_the_last_steps_have_made_it():
    values = [0.0, 0.1] * 6 + [9.0, 9.1] * 6
    (moved,) = find_moves(values).items()
    assert moved[0] == "rises"
    assert 12 < moved[1] <= 12 + WINDOW
    # Later values do not change when it warned.
    assert find_moves(values[: moved[1]]) == find_moves(values)


def test_unmoved_or_non_finite_metrics_do_not_warn():
    assert find_moves([2.0] * 40) == {}
    assert find_moves([2.0] * 20 + [math.nan] * 20) == {}
    assert find_moves([0.0] * 4 + [9.0] * 5) == {}  # too short for two windows


def test_noise_alone_moves_in_few_runs():
    rng = random.Random(0)
    moved = sum(
        bool(find_moves([rng.gauss(0, 1) for _ in range(80)])) for _ in range(400)
    )
    assert moved < 20


def test_metrics_that_moved_before_a_fall_or_without_one(tmp_path):
    falling, level = (0.6, 0.6, 0.6, 0.6, 0.5, 0.5), (0.6,) * 6
    early = [0.0, 0.1] * 6 + [5.0, 5.1] * 9
    late = [0.0, 0.1] * 13 + [5.0, 5.1] * 2
    still = [0.0, 0.1] * 15
    runs = [
        watch_run(read_run(write_run(tmp_path / name, **how)), name=name, margin=0.05)
        for name, how in {
            "hard": {
                "scores": falling,
                "reward__mean": early,
                "rollout__length_mean": late,
                "loss__kl": early,
                "optimizer__learning_rate": early,
            },
            "medium": {
                "scores": level,
                "reward__mean": still,
                "rollout__length_mean": late,
                "loss__kl": early,
            },
        }.items()
    ]
    hard, medium = runs
    assert (hard.fell, medium.fell) == (25, None)
    assert (hard.before, hard.lowest) == (0.6, 0.5)
    # Counted from 1: the third step of the higher reward, which starts at step 13.
    assert hard.moved["reward/mean", "rises"] == 15
    reward, kl = find_warnings(runs[::-1])  # length moved after the fall
    assert (reward.metric, reward.ahead, reward.false_alarms) == ("reward/mean", 1, 0)
    assert reward.leads == [10]
    assert (kl.metric, kl.ahead, kl.false_alarms) == ("loss/kl", 1, 1)


def test_the_command_tells_of_runs_and_of_warnings(tmp_path, capsys):
    early = [0.0, 0.1] * 6 + [5.0, 5.1] * 9
    scores = (0.6, 0.6, 0.6, 0.6, 0.5, 0.5)
    hard = write_run(tmp_path / "hard", scores=scores, reward__mean=early)
    assert main(["warnings", str(hard)]) == 0
    told = capsys.readouterr().out
    assert "never" not in told
    assert "reward/mean rises  1 of 1" in told
    assert "0 of 0" in told
    assert main(["warnings", str(hard), "--margin=0.2"]) == 0
    told = capsys.readouterr().out
    assert "never" in told
    assert "pass@1 fell in no run: there is nothing to warn of" in told


def test_a_run_that_was_not_evaluated_on_its_way_is_refused(tmp_path, capsys):
    hard = write_run(tmp_path / "hard", scores=(0.5,), reward__mean=[0.0] * 5)
    for args, said in (
        ([str(hard)], f"{hard} needs an evaluation before RL and two"),
        ([str(hard), f"{hard}/"], "a run is given twice"),
    ):
        assert main(["warnings", *args]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
