"""Right answers by problem, and intervals over seeds and problems of an experiment."""

import json

import numpy as np
import pytest

from rlvr_jax.analysis.experiment.by_problem import (
    by_problem_table,
    measure_over_problems,
)
from rlvr_jax.analysis.experiment.page import (
    render_markdown,
    render_page,
    write_results,
)
from rlvr_jax.analysis.experiment.record import make_record, write_record
from rlvr_jax.analysis.experiment.results import describe_results, read_results
from rlvr_jax.config import Arm, Config, Experiment, Slope
from rlvr_jax.metrics.crossed import crossed_interval
from tests.support.run_workdirs import contender

# Right answers of four, by arm, seed and problem (a, b).
RIGHT = {
    "none": [(2, 3), (1, 4), (2, 2)],
    "half": [(2, 2), (1, 3), (3, 2)],
    "all": [(0, 2), (1, 1), (2, 0)],
}
BEFORE = {"a": "rrrw", "b": "rwww"}
DOSES = {"none": 0.0, "half": 0.5, "all": 1.0}
EXPERIMENT = Experiment(
    question="Is luck a cause?",
    reference="ours",
    arms={name: Arm() for name in RIGHT},
    baseline="none",
    outcomes=("pass@1 gained", "pass@1", "completion length"),
    seed_sd=0.1,
    seed_sd_source="a guess",
    seeds=(0, 1, 2),
    slopes={
        "two": Slope(dose_by_arm={"none": 0.0, "all": 1.0}),
        "three": Slope(dose_by_arm=DOSES, minus="two"),
    },
)


@pytest.fixture
def folder(tmp_path):
    write_record(tmp_path, make_record(EXPERIMENT, Config(), is_reduced=False))
    for name, rights in RIGHT.items():
        for seed, (a, b) in enumerate(rights):
            answers = {"a": "r" * a + "w" * (4 - a), "b": "r" * b + "w" * (4 - b)}
            workdir = tmp_path / name / f"seed_{seed}"
            contender(workdir, answers, before=BEFORE, seed=seed)
    return tmp_path


def test_right_answers_are_stored_by_arm_seed_and_problem(folder, tmp_path):
    results = read_results(folder)
    write_results(tmp_path / "result", results)
    stored = json.loads((tmp_path / "result/by_problem.json").read_text())
    assert stored["problems"] == ["a", "b"]
    assert stored["samples"] == 4
    for name, rights in RIGHT.items():
        for seed, right in enumerate(rights):
            assert stored["correct"][name][str(seed)] == {
                "before": [3, 1],
                "after": [*right],
            }


def test_runs_of_other_problems_are_not_stored_side_by_side(folder):
    contender(folder / "all/seed_2", {"a": "rrww", "c": "wwww"}, seed=2)
    results = read_results(folder)
    assert results.by_problem == {}
    assert results.comparison["over_problems"] == []
    assert "Over seeds and problems" not in render_page(results)


def test_arms_differences_and_slopes_have_intervals_over_both(folder):
    results = read_results(folder)
    found = {
        each["name"]: each
        for each in results.comparison["over_problems"]
        if each["outcome"] == "pass@1"
    }
    share = {name: np.array(rights) / 4 for name, rights in RIGHT.items()}
    three = sum((dose - 0.5) * share[name] for name, dose in DOSES.items()) / 0.5
    two = share["all"] - share["none"]
    expected = {
        **share,
        "half minus none": share["half"] - share["none"],
        "all minus none": two,
        "slope two": two,
        "slope three": three,
        "slope three minus two": three - two,
    }
    assert set(found) == set(expected)
    for name, value_SP in expected.items():
        mean, *ends = crossed_interval(value_SP)
        if name in share:  # a share of right answers, not a difference
            ends = np.clip(ends, 0, 1)
        for end, value in zip(("mean", "low", "high"), (mean, *ends), strict=True):
            known = None if np.isnan(value) else pytest.approx(value)
            assert found[name][end] == known, name
    assert found["none"]["low"] == 0 > crossed_interval(share["none"]).low
    signs = {row[1]: row[2][0] for row in by_problem_table([*found.values()]).rows}
    assert {name: sign for name, sign in signs.items() if sign in "+-"} == {
        name: signs[name] for name in {*expected} - {*share}
    }


def test_a_gain_is_less_than_the_value_by_what_was_right_before():
    record = {
        "problems": ["a", "b"],
        "samples": 4,
        "correct": {
            "none": {
                str(seed): {"before": before, "after": [3, 4]}
                for seed, before in enumerate([[1, 2], [0, 4], [3, 3]])
            }
        },
    }
    gained, after = measure_over_problems(
        EXPERIMENT, record, ["pass@1 gained", "completion length", "pass@1"]
    )
    assert gained["outcome"] == "pass@1 gained"
    assert gained["mean"] == pytest.approx((2 + 2 + 3 + 0 + 0 + 1) / 24)
    assert after["mean"] == pytest.approx(7 / 8)
    two_seeds = {**record, "correct": {"none": {"0": {}, "1": {}}}}
    assert measure_over_problems(EXPERIMENT, two_seeds, ["pass@1"]) == []


def test_the_page_and_the_table_show_them(folder):
    results = read_results(folder)
    text = render_markdown(results)
    assert "| pass@1, % | slope three minus two | " in text
    assert "not other seeds alone" in text
    assert "Over seeds and problems" in render_page(results)


def test_results_name_the_commits_machines_versions_and_dates(folder):
    path = folder / "all/seed_2/config.json"
    record = json.loads(path.read_text())
    record |= {"git_commit": "abc", "cpu": "Xeon", "started": "2026-11-28"}
    path.write_text(json.dumps(record | {"versions": {"jax": "1.2"}}))
    (said,) = [s for s in describe_results(read_results(folder)) if "made at" in s]
    assert said.startswith("made at commit ")
    for part in ("abc", "; processor Xeon", " and jax 1.2", "started 2026-11-28"):
        assert part in said
