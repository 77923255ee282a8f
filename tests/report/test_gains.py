"""The report on gains, retention, luck and memorization."""

import gzip
import json

import numpy as np
import pytest

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis import read_run
from rlvr_jax.report.page import render_page
from rlvr_jax.report.parts.bands import band_moves
from rlvr_jax.report.parts.gains import gain_by_band, prior_capability
from rlvr_jax.report.parts.learning import by_level
from rlvr_jax.report.parts.luck import lucky_successes, memorization
from tests.support.run_workdirs import config

NO_NAMES = {}
STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}


def run_of(tmp_path, verdicts, *, summary=None, train=(), names=NO_NAMES):
    """Returns a run with {id: (level, before, after)} held out, a letter per sample."""
    record = {"config": config(120), "device": "cpu"}
    (tmp_path / "config.json").write_text(json.dumps(record))
    (tmp_path / "rollouts").mkdir()
    for at, when in ((1, "before"), (2, "after")):
        rows = [
            {"id": name, "level": values[0], "verdict": STATUS[letter]}
            | ({"level_name": names[values[0]]} if values[0] in names else {})
            for name, values in verdicts.items()
            for letter in values[at]
        ]
        path = tmp_path / f"rollouts/eval_{when}_000000.jsonl.gz"
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    with MetricsWriter(tmp_path) as writer:
        for step, values in enumerate(train):
            writer.write("train", step, values)
    if summary is not None:
        (tmp_path / "summary.json").write_text(json.dumps(summary))
    return read_run(tmp_path)


def test_gains_are_those_of_samples_that_chose_no_band(tmp_path):
    """Hard by its first four samples; the other four go from 1 of 4 to 3 of 4."""
    run = run_of(
        tmp_path,
        {
            "a": (9, "wwwwrwww", "rrrrrrrw"),
            "b": (9, "wwwwrwww", "wwwwrrrw"),
            "c": (4, "rrrrrrrr", "rrrrrrrw"),
        },
    )
    section = gain_by_band(run)
    assert section.table.head[0] == "band before RL"
    assert [row[:4] for row in section.table.rows] == [
        ["easy", "1", "100\u00a0%", "75\u00a0%"],
        ["hard", "2", "25\u00a0%", "75\u00a0%"],
    ]
    # Both problems gain a half; an unseen third weighs up to 1 - 0.025^(1/2) = 84 %:
    # 50 - 150 * 0.84 = -76 and 50 + 50 * 0.84 = 92.
    gain, low, high = section.table.rows[1][4].split()
    assert gain == "+50.0"
    assert float(low.strip("[,")) == pytest.approx(-76, abs=4)
    assert float(high.strip("]")) == pytest.approx(92, abs=2)
    assert section.table.rows[0][4] == "-25.0"  # one problem


def test_gains_are_paired_by_problem_in_any_order(tmp_path):
    """The evaluation after RL has its problems in another order."""
    problems = {
        f"p{n}": (2, "rrww" if n % 2 else "wwww", "rrrr" if n % 2 else "wwwr")
        for n in range(12)
    }
    run = run_of(tmp_path, problems, train=[{"level_5/pass": 0.5}])
    rows = [prior_capability(run).table.rows, gain_by_band(run).table.rows]
    path = tmp_path / "rollouts/eval_after_000000.jsonl.gz"
    with gzip.open(path, "rt") as file:
        lines = file.readlines()
    with gzip.open(path, "wt") as file:
        by_id = sorted(lines, key=lambda line: json.loads(line)["id"], reverse=True)
        file.writelines(by_id)
    again = read_run(tmp_path)
    assert [
        prior_capability(again).table.rows,
        gain_by_band(again).table.rows,
    ] == rows


def test_the_interval_of_a_gain_is_paired_by_problem(tmp_path):
    """Close to percentiles of 20,000 NumPy resamples of many problems."""
    gains = [4, 0, 2, 4, -2, 0, 2, 4, 0, 2] * 40  # of four samples
    problems = {
        f"p{n}": (2, "rrww" * 2, "rrww" + "r" * (2 + g // 2) + "w" * (2 - g // 2))
        for n, g in enumerate(gains)
    }
    section = prior_capability(
        run_of(tmp_path, problems, train=[{"level_5/pass": 0.5}])
    )
    ((label, size, before, after, gain),) = section.table.rows
    assert (label, size, before) == ("level 2", "400", "50\u00a0%")
    points = np.array([100 * (g // 2) / 8 for g in gains])
    assert after == f"{50 + points.mean():.0f}\u00a0%"
    rng = np.random.default_rng(1)
    means = rng.choice(points, (20_000, 400)).mean(axis=1)
    low, high = (float(x) for x in gain.split("[")[1].rstrip("]").split(", "))
    assert float(gain.split()[0]) == pytest.approx(points.mean(), abs=0.06)
    assert low == pytest.approx(np.quantile(means, 0.025), abs=1.3)
    assert high == pytest.approx(np.quantile(means, 0.975), abs=1.3)


def test_levels_in_rl_training_are_not_prior_capability(tmp_path):
    problems = {"a": (2, "rr", "rr"), "b": (3, "rr", "ww"), "c": (5, "ww", "rr")}
    run = run_of(tmp_path, problems, train=[{"level_5/pass": 0.5}])
    rows = prior_capability(run).table.rows
    assert [row[0] for row in rows] == ["level 2", "level 3", "all of these"]
    assert [row[4] for row in rows[:2]] == ["+0.0", "-100.0"]  # one problem each
    assert rows[2][2:4] == ["100\u00a0%", "50\u00a0%"]


def test_levels_have_their_names_from_the_data(tmp_path):
    names = {2: "so-so", 5: "hard"}
    problems = {"a": (2, "rr", "rr"), "b": (3, "rr", "ww"), "c": (5, "ww", "rr")}
    run = run_of(tmp_path, problems, train=[{"level_5/pass": 0.5}], names=names)
    rows = prior_capability(run).table.rows
    assert [row[0] for row in rows] == ["so-so", "level 3", "all of these"]
    taught = by_level(run)
    assert [row[0] for row in taught.table.rows] == ["hard"]
    assert set(taught.legend) == {"hard"}


def test_a_run_that_asked_all_levels_or_is_not_done_shows_no_prior(tmp_path):
    problems = {"a": (5, "rr", "rr")}
    run = run_of(tmp_path, problems, train=[{"level_5/pass": 0.5}])
    assert prior_capability(run) is None
    (tmp_path / "rollouts/eval_after_000000.jsonl.gz").unlink()
    assert prior_capability(run) is None
    assert gain_by_band(run) is None


def test_luck_and_moves_between_bands_have_their_tables(tmp_path):
    lucky = {
        "band_hard/wrong_steps_mass": 0.4,
        "band_hard/guessed_start_mass": 0.1,
        "band_hard/lucky_guess": 0.125,
        "band_hard/first_success": 0.004,
    }
    moves = {"hard": {"easy": 1, "medium": 2, "hard": 3, "unknown": 4}}
    run = run_of(
        tmp_path,
        {"a": (5, "rrww", "rrrw")},
        train=[lucky, lucky],
        summary={"difficulty": {"posterior_by_initial": moves}},
    )
    section = lucky_successes(run)
    assert len(section.figures) == 2
    assert section.table.rows == [
        (
            "hard",
            "40\u00a0% \u2192 40\u00a0%",
            "10\u00a0% \u2192 10\u00a0%",
            "12.5\u00a0%",
            "0.4\u00a0%",
        )
    ]
    assert band_moves(run).table.rows == [("hard", "10", "1", "2", "3", "4")]
    page = render_page(run)
    assert "How much credit went to lucky answers" in page
    assert "How many problems became easier or harder" in page


def test_memorization_stands_beside_its_control(tmp_path):
    values = {
        "problems": 64,
        "perplexity_seen": 1.1,
        "perplexity_fresh": 1.21,
        "ratio": {"mean": 1.1, "low": 1.05, "high": 1.15},
    }
    evals = {w: {"memorization": values} for w in ("before", "after")}
    run = run_of(tmp_path, {}, summary={"eval": evals})
    assert memorization(run).table.rows == [
        (f"{when} RL", "64", "1.100", "1.210", "1.100 [1.050, 1.150]")
        for when in ("before", "after")
    ]
    assert lucky_successes(run) is None
    assert band_moves(run) is None
