"""The report by band: held-out scores, training, behavior."""

import json

import pytest

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis import read_run
from rlvr_jax.report.parts.bands import (
    behavior_by_band,
    pass_by_band,
    signal_by_band,
    training_by_band,
)
from tests.support.run_workdirs import config, make_workdir


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return read_run(make_workdir(tmp_path_factory.mktemp("whole")))


def test_difficulty_is_told_by_band(whole):
    scores = whole.summary["eval"]["after"]["by_band"]
    section = pass_by_band(whole)
    assert [row[0] for row in section.table.rows] == ["easy", "medium", "hard"]
    assert len(section.figures) == 3
    # No sample of easy problems is fresh here.
    easy, medium, _ = section.table.rows
    assert easy[4:] == ["0", "\u2013", "\u2013"]
    assert medium[1:4] == medium[4:]
    assert easy[3].startswith(
        f"{100 * scores['easy']['pass@k']['1']['mean']:.0f}\u00a0%"
    )
    assert (easy[1], medium[1]) == ("48", "48")

    training = training_by_band(whole)
    assert len(training.figures) == 4  # drift, pass, length, mass
    assert len(signal_by_band(whole).figures) == 3
    assert (
        "By then the estimated pass rate of 25\u00a0% had crossed the limit of a band."
        in training.text
    )
    assert [row[-1] for row in training.table.rows] == [
        "10\u00a0%",
        "60\u00a0%",
        "30\u00a0%",
    ]
    assert training.table.rows[2][3] == "39 \u2192 23"


def test_behavior_by_band_names_what_grew_and_the_alarms(tmp_path):
    workdir = make_workdir(tmp_path / "run", evals=None, sick_from=40)
    section = behavior_by_band(read_run(workdir))
    assert section.table.head == ("flag", "easy", "medium", "hard")
    # Absent entries are left out; 12 steps are a tenth.
    assert section.table.rows == [
        ("bare answer", *["0\u00a0% \u2192 0\u00a0%"] * 2, "2\u00a0% \u2192 47\u00a0%")
    ]
    ((heading, seen, _),) = section.findings
    assert heading == "Step 42: length_collapse"
    assert "band hard: 39.7 to 15.5" in seen  # three of five steps at 3 tokens


def test_a_run_that_knew_of_no_difficulty_shows_none(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"config": config(120)}))
    with MetricsWriter(tmp_path) as writer:
        for step in range(9):
            values = {"band_unknown/pass": 0.5, "band_unknown/bare_answer": 1.0}
            writer.write("train", step, values)
    run = read_run(tmp_path)
    assert training_by_band(run) is None
    assert signal_by_band(run) is None
    assert behavior_by_band(run) is None


def test_a_band_that_few_steps_met_has_a_row_and_no_curve(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"config": config(120)}))
    rare = {"pass": 0.5, "length": 9, "nonzero_std": 1.0, "advantage_mass": 0.5}
    common = {**rare, "share": 0.9}
    with MetricsWriter(tmp_path) as writer:
        for step in range(40):
            values = {f"band_easy/{name}": value for name, value in common.items()}
            if step in (4, 30, 35):
                values |= {f"band_hard/{name}": value for name, value in rare.items()}
                values["band_hard/share"] = 0.4
            writer.write("train", step, values)
    run = read_run(tmp_path)
    assert len(signal_by_band(run).figures) == 1
    # 0.4 in three steps of 40; of mass it has 3 of 43 parts.
    easy, hard = training_by_band(run).table.rows
    assert (easy[0], hard[0]) == ("easy", "hard")
    assert (hard[1], hard[-1]) == ("3\u00a0%", "7\u00a0%")
