"""Slopes over arms: fitted by seed, with an interval over seeds."""

import json
import math

import numpy as np
import pytest

from job_jax.flags import UsageError
from rlvr_jax.analysis.experiment.page import (
    render_markdown,
    render_page,
    write_results,
)
from rlvr_jax.analysis.experiment.record import (
    check_record,
    make_record,
    write_record,
)
from rlvr_jax.analysis.experiment.results import read_results
from rlvr_jax.analysis.experiment.slopes import (
    dose_panels,
    fit_by_seed,
    measure_slopes,
    slope_table,
)
from rlvr_jax.config import Arm, Config, Experiment, Slope
from tests.support.run_workdirs import contender

DOSES = {"none": 0.0, "quarter": 0.25, "half": 0.5, "all": 1.0}
OTHERS = {"none": 0.0, "wrong": 1.0}


def experiment(**changed):
    names = (*DOSES, "wrong")
    return Experiment(
        **{
            "question": "Is luck a cause?",
            "reference": "ours",
            "arms": {name: Arm() for name in names},
            "baseline": "none",
            "outcomes": ("pass@1", "completion length"),
            "seed_sd": 0.1,
            "seed_sd_source": "a guess",
            "seeds": (0, 1, 2),
            "slopes": {
                "luck": Slope(dose_by_arm=DOSES),
                "wrong": Slope(dose_by_arm=OTHERS, minus="luck"),
            },
            **changed,
        }
    )


def metric(values, name="pass@k"):
    """An outcome's numbers as `compare_arms` gives them: arm -> one value a seed."""
    return {
        "name": name,
        "grouping": "all",
        "group": "",
        "k": 1 if name == "pass@k" else None,
        "seeds": {
            arm: {str(seed): y for seed, y in enumerate(ys) if y is not None}
            for arm, ys in values.items()
        },
    }


@pytest.mark.parametrize("sign", [1, -1])
def test_a_slope_by_hand(sign):
    """Doses 0, 1/4, 1/2, 1 have mean 7/16; their squares from it sum to 0.546875."""
    on_a_line = {arm: {"0": sign * (0.3 + 0.4 * d)} for arm, d in DOSES.items()}
    assert fit_by_seed(DOSES, on_a_line)["0"] == pytest.approx(sign * 0.4)
    # Only the largest dose differs: 0.5625 / 0.546875 of its change.
    at_the_end = {arm: {"0": sign * float(arm == "all")} for arm in DOSES}
    assert fit_by_seed(DOSES, at_the_end)["0"] == pytest.approx(sign * 36 / 35)
    # Only dose 0 differs: -0.4375 / 0.546875.
    at_zero = {arm: {"0": sign * float(arm == "none")} for arm in DOSES}
    assert fit_by_seed(DOSES, at_zero)["0"] == pytest.approx(-sign * 0.8)


def test_two_arms_have_the_slope_of_their_difference():
    values = {"none": {"0": 0.5, "1": 0.4}, "wrong": {"0": 0.2, "1": 0.6}}
    found = fit_by_seed({"none": 0.0, "wrong": 0.5}, values)
    assert found == pytest.approx({"0": -0.6, "1": 0.4})


def test_a_seed_without_all_arms_and_a_slope_without_runs_are_left_out():
    values = metric(dict.fromkeys(DOSES, (0.1, 0.2)) | {"half": (0.1, None)})
    assert [*fit_by_seed(DOSES, values["seeds"])] == ["0"]
    assert fit_by_seed({**DOSES, "never": 2.0}, values["seeds"]) == {}


def test_the_interval_is_students_over_seeds_and_differences_are_paired():
    """Slopes 0.1, 0.2, 0.3 of luck; 0.5, 0.5, 0.8 of wrong, which differ by seed."""
    slopes, others = (0.1, 0.2, 0.3), (0.5, 0.5, 0.8)
    values = {arm: tuple(0.5 + d * s for s in slopes) for arm, d in DOSES.items()}
    values["wrong"] = tuple(0.5 + s for s in others)
    luck, wrong, minus = measure_slopes(experiment(), [metric(values)], ["pass@1"])
    assert (luck["slope"], luck["mean"]) == ("luck", pytest.approx(0.2))
    half = 4.3027 * 0.1 / math.sqrt(3)  # t of two degrees of freedom
    assert luck["low"] == pytest.approx(0.2 - half, abs=1e-4)
    assert luck["high"] == pytest.approx(0.2 + half, abs=1e-4)
    assert luck["sd"] == pytest.approx(0.1)
    assert luck["detectable"] == pytest.approx(0.3264, abs=1e-4)  # 3.264 sd
    assert wrong["mean"] == pytest.approx(0.6)
    assert minus["slope"] == "wrong minus luck"
    assert minus["seeds"] == pytest.approx({"0": 0.4, "1": 0.3, "2": 0.5})
    assert minus["low"] == pytest.approx(0.4 - half, abs=1e-4)
    assert minus["p"] == pytest.approx(1 - math.sqrt(48 / 50))  # t^2 = 48
    assert luck["holm"] is None
    assert minus["holm"] == minus["p"]  # the only difference
    rows = slope_table([luck, wrong, minus]).rows
    assert rows[0] == [
        *("pass@1, %", "luck", "+20.0 [-4.8, +44.8]", "10.0", "32.6", "0.074", ""),
        "+10.0 +20.0 +30.0",
    ]


def test_the_differences_of_slopes_are_one_family():
    """Two differences of each outcome: the smaller p counts twice (Holm)."""
    ends = Slope(dose_by_arm={"none": 0.0, "half": 0.5}, minus="luck")
    three = {**experiment().slopes, "ends": ends}
    values = dict.fromkeys(("none", "quarter"), (0.5, 0.6, 0.8))
    values |= {
        "half": (0.4, 0.5, 0.65),
        "all": (0.2, 0.2, 0.5),
        "wrong": (0.3, 0.6, 0.6),
    }
    found = measure_slopes(experiment(slopes=three), [metric(values)], ["pass@1"])
    wrong, ends = (one for one in found if "minus" in one["slope"])
    small, large = sorted((wrong, ends), key=lambda one: one["p"])
    assert small["holm"] == pytest.approx(2 * small["p"])
    assert large["holm"] == pytest.approx(max(large["p"], 2 * small["p"]))


def test_each_outcome_has_its_own_slopes_in_the_order_that_is_asked_for():
    passes = metric({arm: (0.5 - d, 0.5, 0.5 + d) for arm, d in DOSES.items()})
    lengths = {arm: (30 + 2 * d, 30 + 2 * d, 30 + 5 * d) for arm, d in DOSES.items()}
    found = measure_slopes(
        experiment(slopes={"luck": Slope(dose_by_arm=DOSES)}),
        [passes, metric(lengths, "completion length")],
        ["completion length", "pass@1", "pass@99"],
    )
    assert [one["outcome"] for one in found] == ["completion length", "pass@1"]
    assert [one["mean"] for one in found] == pytest.approx([3.0, 0.0])
    assert slope_table(found).rows[0][2].startswith("+3.0 [")  # not in percent


def test_two_seeds_have_a_slope_and_no_interval():
    values = {arm: (0.5 - 0.1 * d, 0.5 - 0.3 * d) for arm, d in DOSES.items()}
    (luck,) = measure_slopes(experiment(), [metric(values)], ["pass@1"])
    assert luck["mean"] == pytest.approx(-0.2)
    assert luck["low"] is luck["sd"] is luck["p"] is None
    assert slope_table([luck]).rows[0][2:] == ["-20.0", *[""] * 4, "-10.0 -30.0"]


def test_a_dose_without_effect_is_found_in_one_of_twenty_experiments():
    """Seeds differ by 10 points and runs by 5; pooling seeds would hide that."""
    rng = np.random.default_rng(0)
    wanted = experiment(
        slopes={"luck": Slope(dose_by_arm=DOSES)}, seeds=tuple(range(8))
    )
    found = 0
    for _ in range(1500):
        start = rng.normal(0.5, 0.1, 8)
        values = {arm: start + rng.normal(0, 0.05, 8) for arm in DOSES}
        (luck,) = measure_slopes(wanted, [metric(values)], ["pass@1"])
        found += luck["low"] > 0 or luck["high"] < 0
    assert 0.033 < found / 1500 < 0.067  # standard deviation 0.0056


@pytest.mark.parametrize("slope", [-0.2, 0.2])
def test_a_real_slope_of_either_sign_is_found(slope):
    rng = np.random.default_rng(1)
    values = {
        arm: 0.5 + slope * dose + rng.normal(0, 0.02, 8) for arm, dose in DOSES.items()
    }
    wanted = experiment(
        slopes={"luck": Slope(dose_by_arm=DOSES)}, seeds=tuple(range(8))
    )
    (luck,) = measure_slopes(wanted, [metric(values)], ["pass@1"])
    assert luck["low"] < slope < luck["high"]
    assert luck["low"] * luck["high"] > 0
    assert luck["mean"] * slope > 0


@pytest.fixture
def folder(tmp_path):
    """Three seeds of five arms: pass@1 falls with the dose, less with wrong answers."""
    write_record(tmp_path, make_record(experiment(), Config(), is_reduced=False))
    rights = {
        "none": (8, 6, 8),
        "quarter": (7, 5, 6),
        "half": (6, 4, 5),
        "all": (4, 2, 1),
        "wrong": (8, 5, 7),
    }
    for name, by_seed in rights.items():
        for seed, right in enumerate(by_seed):
            letters = "r" * right + "w" * (8 - right)
            path = tmp_path / name / f"seed_{seed}"
            contender(path, {"a": letters[:4], "b": letters[4:]}, seed=seed)
    return tmp_path


def test_an_experiments_files_have_its_slopes(folder):
    results = read_results(folder)
    luck, wrong, minus, *_ = results.comparison["slopes"]
    # Of eighths: -4, -4, and for (8, 6, 5, 1) -3.75 / 0.546875 = -48/7.
    by_seed = {"0": -0.5, "1": -0.5, "2": -6 / 7}
    assert luck["seeds"] == pytest.approx(by_seed)
    assert wrong["seeds"] == pytest.approx({"0": 0.0, "1": -1 / 8, "2": -1 / 8})
    assert minus["seeds"]["2"] == pytest.approx(-1 / 8 + 6 / 7)
    said = render_markdown(results)
    assert "| pass@1, % | luck | -61.9 [" in said
    assert "| pass@1, % | wrong minus luck | +53.6 [" in said
    assert "from dose 0 to dose 1" in said
    page = " ".join(render_page(results).split())
    assert "Decided by the slopes of" in page
    assert "wrong minus luck" in page


def test_outcomes_are_drawn_over_the_dose(folder, tmp_path):
    results = read_results(folder)
    metrics = results.comparison["metrics"]
    (panel,) = dose_panels(results.record.experiment, metrics, ["pass@1"])
    assert panel.title == "pass@1, %"
    luck = [line for line in panel.lines if line.label == "luck"]
    mean, *seeds = luck
    assert [line.faint for line in luck] == [False, True, True, True]
    for line in luck:
        assert line.x == [0.0, 0.25, 0.5, 1.0]
    np.testing.assert_allclose(mean.y, np.mean([line.y for line in seeds], axis=0))
    assert seeds[2].y == [100.0, 75.0, 62.5, 12.5]
    assert mean.interval[0][0] < mean.y[0] < mean.interval[1][0]
    assert not panel.categorical  # half a dose is half as far
    wrong = [line for line in panel.lines if line.label == "wrong"]
    assert [line.x for line in wrong] == [[0.0, 1.0]] * 4
    write_results(tmp_path / "result", results)
    assert (tmp_path / "result/doses.png").read_bytes().startswith(b"\x89PNG")
    assert ">luck</text>" in (tmp_path / "result/doses.svg").read_text()


def test_what_was_measured_before_rl_has_no_slope(folder):
    values = {arm: [0.1, 0.5, 0.9] for arm in (*DOSES, "wrong")}
    before = metric(values, name="pass@k before RL") | {"k": 1}
    assert measure_slopes(experiment(), [before], ["pass@1 before RL"]) == []
    assert measure_slopes(experiment(), [metric(values)], ["pass@1"])


def test_slopes_that_differ_by_rounding_alone_have_no_interval():
    values = {arm: [0.1, 0.5, 0.9] for arm in (*DOSES, "wrong")}
    for slope in measure_slopes(experiment(), [metric(values)], ["pass@1"]):
        assert slope["mean"] == pytest.approx(0.0, abs=1e-12)
        assert slope["low"] is slope["p"] is None


def test_an_experiment_without_slopes_shows_none(folder):
    write_record(folder, make_record(experiment(slopes={}), Config(), is_reduced=False))
    results = read_results(folder)
    assert results.comparison["slopes"] == []
    assert "per dose" not in render_markdown(results)
    assert "Decided by the slopes" not in " ".join(render_page(results).split())


def test_a_view_without_some_arms_has_the_slopes_of_the_others(folder):
    results = read_results(folder, only=["wrong"])
    assert {slope["slope"] for slope in results.comparison["slopes"]} == {"wrong"}


def test_a_slope_may_be_added_later_but_not_changed(folder):
    more = experiment(slopes={**experiment().slopes, "ends": Slope(dose_by_arm=OTHERS)})
    record = make_record(more, Config(), is_reduced=False)
    check_record(folder, record, Config())
    for slopes in ({}, {"luck": Slope(dose_by_arm={"none": 0, "all": 1})}):
        other = make_record(experiment(slopes=slopes), Config(), is_reduced=False)
        with pytest.raises(UsageError, match="the slope luck"):
            check_record(folder, other, Config())


def test_records_from_before_slopes_have_none(folder):
    record = json.loads((folder / "experiment.json").read_text())
    del record["experiment"]["slopes"]
    (folder / "experiment.json").write_text(json.dumps(record))
    assert read_results(folder).comparison["slopes"] == []
