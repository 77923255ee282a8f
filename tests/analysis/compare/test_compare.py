"""Runs side by side: pairing, pooling, and notes on missing data."""

import csv
import json
import pathlib
import statistics
import xml.etree.ElementTree

import pytest

from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.compare.arms import compare_arms, compare_runs, read_arms
from rlvr_jax.analysis.compare.figure import comparison_panels
from rlvr_jax.analysis.compare.reading import explain_numbers
from rlvr_jax.analysis.compare.text import comparison_table, format_comparison
from tests.support.run_workdirs import BEFORE, contender, make_workdir


def found(comparison, name="pass@k", cut="all", of="", k=None):
    """Returns the one matching measure."""
    (one,) = (
        each
        for each in comparison["metrics"]
        if (each["name"], each["grouping"], each["group"], each["k"])
        == (name, cut, of, k)
    )
    return one


@pytest.fixture
def pair(tmp_path):
    """Two runs that differ in one field, on the same problems."""
    base = {"a": "rrrr", "b": "rrww", "c": "rwww", "d": "wwww"}
    other = {"a": "rrrr", "b": "rrrw", "c": "rrww", "d": "rwwu"}
    return [
        contender(tmp_path / "plain", base, types=("s", "t")),
        contender(tmp_path / "other", other, types=("s", "t"), num_epochs=2),
    ]


def test_runs_on_the_same_problems_are_paired_by_problem(pair):
    comparison = compare_runs(pair)
    one = found(comparison, k=1)
    assert one["values"]["plain"]["mean"] == pytest.approx(7 / 16)
    assert one["values"]["other"]["mean"] == pytest.approx(10 / 16)
    assert one["values"]["other"]["problems"] == 4
    # Each problem's difference is 0 or a quarter. An unseen fifth may be anything:
    # its weight exceeds 0.602, which is 1 - 0.025^(1/4), once in 40 times.
    gain = one["differences"]["other"]
    assert gain["method"] == "problem"
    assert gain["mean"] == pytest.approx(3 / 16)
    assert -0.602 < gain["low"] < 0 < 3 / 16 < gain["high"] < 0.25 + 0.75 * 0.602
    assert one["values"]["plain"]["high"] - one["values"]["plain"]["low"] > 0.5
    # One of four, of problems that had 4, 2, 1, 0 right: 3/4.
    assert found(comparison, k=4)["values"]["plain"]["mean"] == pytest.approx(3 / 4)
    assert comparison["notes"] == []
    assert comparison["arms"][1]["differs"] == ["train.num_epochs: 1 -> 2"]


def test_bands_are_of_the_policy_before_rl_and_types_of_the_problems(pair):
    comparison = compare_runs(pair)
    hard = found(comparison, cut="band", of="hard", k=1)
    assert hard["values"]["plain"]["problems"] == 2  # c and d
    assert hard["values"]["plain"]["mean"] == pytest.approx(1 / 8)
    assert hard["differences"]["other"]["mean"] == pytest.approx(2 / 8)
    easy = found(comparison, cut="band", of="easy", k=1)
    # A single problem has no interval.
    assert easy["values"]["plain"] == {
        "mean": 1.0,
        "low": None,
        "high": None,
        "runs": 1,
        "problems": 1,
    }
    assert easy["differences"]["other"]["method"] == "none"
    of_type = found(comparison, cut="type", of="t", k=1)
    assert of_type["values"]["plain"]["mean"] == pytest.approx(2 / 8)  # b and d
    length = found(comparison, "completion length")
    assert length["values"]["plain"]["mean"] == pytest.approx(25)
    assert (
        found(comparison, "pass@k before RL", k=1)["differences"]["other"]["mean"] == 0
    )


def test_training_figures_of_single_runs_have_no_interval(pair):
    comparison = compare_runs(pair)
    for name in ("reward", "groups without signal", "alarms", "seconds"):
        difference = found(comparison, name)["differences"]["other"]
        # Both have the same training rows.
        assert difference == {"mean": 0, "low": None, "high": None, "method": "none"}
    assert found(comparison, "seconds")["values"]["plain"]["mean"] == 60
    incorrect = found(comparison, "groups all incorrect")["values"]["plain"]["mean"]
    assert incorrect == pytest.approx(
        statistics.fmean(logged(pair[0], "groups/all_incorrect"))
    )
    assert 0 < incorrect < 1


def logged(workdir, name):
    """Returns a metric of the training steps, in order."""
    lines = pathlib.Path(workdir, "metrics.jsonl").read_text().splitlines()
    return [row[name] for row in map(json.loads, lines) if row["stage"] == "train"]


def test_the_reward_of_the_last_steps_less_that_of_the_first_is_gained(pair):
    comparison = compare_runs(pair)
    reward = logged(pair[0], "reward/mean")
    tenth = len(reward) // 10
    assert tenth > 1
    first, last = (statistics.fmean(r) for r in (reward[:tenth], reward[-tenth:]))
    assert last > first + 0.05
    at_last, gained = (found(comparison, n) for n in ("reward", "reward gained"))
    assert at_last["values"]["plain"]["mean"] == pytest.approx(last)
    assert gained["values"]["plain"]["mean"] == pytest.approx(last - first)


def test_seeds_are_one_arm_and_paired_by_seed(tmp_path):
    """Pass@1 0, 1/4, 1/2 against 1/4, 1/2, 3/4: the differences do not differ."""
    plain, other = (
        [
            contender(
                tmp_path / f"{name}{seed}",
                {"a": "r" * (seed + more) + "w" * (4 - seed - more)},
                seed=seed,
                **changed,
            )
            for seed in range(3)
        ]
        for name, more, changed in (("plain", 0, {}), ("other", 1, {"num_epochs": 2}))
    )
    comparison = compare_runs([plain[0], *other, *plain[1:]])
    assert [arm["seeds"] for arm in comparison["arms"]] == [[0, 1, 2], [0, 1, 2]]
    one = found(comparison, k=1)
    # 0, 1/4, 1/2: std 1/4, and t(2, 0.975) is 4.3027.
    half = 4.3027 * 0.25 / 3**0.5
    assert one["values"]["plain0"] == {
        "mean": pytest.approx(0.25),
        "low": 0.0,  # 0.25 - 0.62, but no share is below 0
        "high": pytest.approx(0.25 + half, abs=1e-4),
        "runs": 3,
    }
    assert one["differences"]["other0"] == {
        "mean": pytest.approx(0.25),
        "low": None,  # three equal numbers say nothing about a fourth
        "high": None,
        "method": "none",
        "seeds": {"0": 0.25, "1": 0.25, "2": 0.25},
    }
    length = found(comparison, "completion length")["differences"]["other0"]
    assert (length["mean"], length["low"]) == (0, None)


def arms_of_seeds(tmp_path, seeds=(3, 5), **changed):
    """Returns runs of two arms: pass@1 of seed s is s / 8 of problems a and b."""
    return [
        contender(
            tmp_path / f"{name}{seed}",
            {"a": "r" * seed + "w" * (8 - seed), "b": "r" * seed + "w" * (8 - seed)},
            seed=seed,
            **more,
        )
        for name, more in (("plain", {}), ("a_b%", {"num_epochs": 2}))
        for seed in seeds
    ]


def test_a_run_of_a_version_with_fewer_fields_is_of_the_same_arm(tmp_path):
    paths = [contender(tmp_path / f"run_{seed}", BEFORE, seed=seed) for seed in (0, 1)]
    make_workdir(tmp_path / "alone", steps=20)
    for path in (paths[0], tmp_path / "alone"):
        file = pathlib.Path(path) / "config.json"
        record = json.loads(file.read_text())
        del record["config"]["probe"]["log_every"], record["config"]["judge"]
        del record["config"]["eval"]["bootstrap_resamples"]
        file.write_text(json.dumps(record))
    (arm,) = read_arms(paths)
    assert arm.seeds == [0, 1]
    assert main(["report", str(tmp_path / "alone")]) == 0


def test_each_of_three_seeds_has_a_column_next_to_its_arm(tmp_path):
    comparison = compare_runs(arms_of_seeds(tmp_path, (1, 3, 5)))
    one = found(comparison, k=1)
    assert one["seeds"] == {
        arm: {"1": 1 / 8, "3": 3 / 8, "5": 5 / 8} for arm in ("plain1", "a_b%1")
    }
    table = comparison_table(comparison)
    columns = ["seed 1", "seed 3", "seed 5"]
    assert table.head == [
        *("", "plain1", *columns),
        *("a_b%1", *columns, "a_b%1 - plain1"),
    ]
    (row,) = (row for row in table.rows if row[0] == "pass@1, %")
    # A standard deviation of 25 points; t(2, 0.975) is 4.3027: 37.5 +- 62.1.
    cells = ["37.5 [0.0, 99.6]", "12.5", "37.5", "62.5"]
    assert row[1:] == [*cells, *cells, "+0.0"]


def test_two_seeds_are_shown_by_their_own_values_and_have_no_interval(tmp_path):
    """Student's t of one degree of freedom would be 50 +- 12.7 * 12.5."""
    runs = [
        contender(
            tmp_path / f"{name}{seed}",
            {"a": "r" * right + "w" * (8 - right)},
            seed=seed,
            **changed,
        )
        for name, rights, changed in (
            ("plain", (3, 5), {}),
            ("other", (4, 7), {"num_epochs": 2}),
        )
        for seed, right in enumerate(rights)
    ]
    comparison = compare_runs(runs)
    one = found(comparison, k=1)
    unknown = {"low": None, "high": None}
    assert one["values"]["plain0"] == {"mean": 0.5, **unknown, "runs": 2}
    assert one["differences"]["other0"] == {
        "mean": 3 / 16,
        **unknown,
        "method": "none",
        "seeds": {"0": 1 / 8, "1": 2 / 8},
    }
    table = comparison_table(comparison)
    assert table.head == ["", "plain0", "other0", "other0 - plain0"]
    (row,) = (row for row in table.rows if row[0] == "pass@1, %")
    assert row[1:] == [
        "50.0 (37.5, 62.5)",
        "68.8 (50.0, 87.5)",
        "+18.8 (+12.5, +25.0)",
    ]
    assert not any("[" in cell for row in table.rows for cell in row)
    assert all(
        metric["differences"]["other0"]["low"] is None
        for metric in comparison["metrics"]
    )


def test_two_seeds_next_to_three_have_a_difference_without_an_interval(tmp_path):
    two = arms_of_seeds(tmp_path, (3, 5))[:2]
    three = arms_of_seeds(tmp_path, (1, 2, 6))[3:]
    table = comparison_table(compare_runs([*two, *three]))
    (row,) = (row for row in table.rows if row[0] == "pass@1, %")
    # 3/8: the standard deviation is 0.331, and t(2, 0.975) is 4.3027.
    cells = ["37.5 [0.0, 100.0]", "12.5", "25.0", "75.0"]
    assert row[1:] == ["50.0 (37.5, 62.5)", *cells, "-12.5"]


def test_a_seed_without_the_metric_is_empty_and_one_seed_has_no_interval(tmp_path):
    """Not over problems either: next to intervals over seeds it would mislead."""
    runs = arms_of_seeds(tmp_path)
    (tmp_path / "plain5/summary.json").unlink()
    comparison = compare_runs(runs)
    (row,) = (row for row in comparison_table(comparison).rows if row[0] == "pass@1, %")
    assert row[1] == "37.5 in 1 of 2 runs (37.5, -)"
    (tmp_path / "a_b%5/summary.json").unlink()
    difference = found(compare_runs(runs), k=1)["differences"]["a_b%3"]
    assert difference == {"mean": 0.0, "low": None, "high": None, "method": "none"}


def test_an_arm_of_one_run_is_its_seed(pair):
    table = comparison_table(compare_runs(pair))
    assert table.head == ["", "plain", "other", "other - plain"]


def test_a_run_of_one_problem_is_told_to_be_one(tmp_path):
    one = contender(tmp_path / "one", {"a": "rrww"}, before={"a": "rrww"})
    two = contender(tmp_path / "two", {"a": "rrww", "b": "rrww"}, num_epochs=2)
    notes = compare_runs([one, two])["notes"]
    assert (
        notes[0] == "one was evaluated on one problem, which says nothing about others"
    )
    assert not any(note.startswith("two was evaluated on one") for note in notes)


def test_csv_has_a_row_for_each_arm_and_each_seed(tmp_path):
    out = tmp_path / "out.csv"
    assert main(["compare", *arms_of_seeds(tmp_path), f"--out={out}"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    picked = [row for row in rows if (row["metric"], row["k"]) == ("pass@k", "1")]
    of_all = [row for row in picked if row["grouping"] == "all"]
    assert [(row["arm"], row["seed"], row["value"]) for row in of_all] == [
        ("plain3", "", "0.5"),
        ("plain3", "3", "0.375"),
        ("plain3", "5", "0.625"),
        ("a_b%3", "", "0.5"),
        ("a_b%3", "3", "0.375"),
        ("a_b%3", "5", "0.625"),
    ]
    assert (of_all[0]["low"], of_all[0]["runs"]) == ("", "2")
    assert (of_all[3]["difference"], of_all[3]["method"]) == ("0.0", "none")
    assert [row["difference"] for row in of_all] == ["", "", "", "0.0", "0.0", "0.0"]
    assert all(row["low"] == row["method"] == "" for row in rows if row["seed"])


def test_latex_is_a_tabular_of_the_printed_cells(tmp_path):
    out = tmp_path / "out.tex"
    runs = arms_of_seeds(tmp_path, (1, 3, 5))
    assert main(["compare", *runs, f"--out={out}"]) == 0
    package, *lines = out.read_text().splitlines()
    assert package == r"% \usepackage{booktabs}"
    comments = [line for line in lines if line.startswith("% ")]
    assert comments == [f"% {said}" for said in explain_numbers(compare_runs(runs))]
    begin, top, head, middle, *rows, bottom, end = lines[len(comments) :]
    assert begin == r"\begin{tabular}{lrrrrrrrrr}"
    assert (top, middle, bottom, end) == (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\end{tabular}",
    )
    assert head == (
        r" & plain1 & seed 1 & seed 3 & seed 5 & a\_b\%1 & seed 1 & seed 3 & seed 5 & "
        r"a\_b\%1 - plain1 \\"
    )
    cells = "37.5 [0.0, 99.6] & 12.5 & 37.5 & 62.5"
    assert rows[0] == rf"pass@1, \% & {cells} & {cells} & $+$0.0 \\"
    assert all(row.count("&") == 9 and row.endswith(r" \\") for row in rows)


def test_figures_are_self_contained_files(tmp_path):
    runs = arms_of_seeds(tmp_path)
    files = [tmp_path / "out.svg", tmp_path / "out.png"]
    assert main(["compare", *runs, f"--out={files[0]},{files[1]}"]) == 0
    svg = xml.etree.ElementTree.fromstring(files[0].read_text())
    assert svg.tag.endswith("svg")
    text = files[0].read_text()
    for told in ("plain3", "a_b%3", "pass@k after RL", "Mean reward"):
        assert told in text
    assert files[1].read_bytes().startswith(b"\x89PNG\r\n")
    again = tmp_path / "again.svg"
    assert main(["compare", *runs, f"--out={again}"]) == 0
    assert again.read_text() == text


def test_charts_show_each_seed_faintly_and_no_interval_that_is_not_there(tmp_path):
    arms = read_arms(arms_of_seeds(tmp_path))
    panels = {p.title: p for p in comparison_panels(compare_arms(arms), arms)}
    (row,) = panels["pass@1 minus plain3"].rows
    assert (row.label, row.value, row.points) == ("a_b%3", 0.0, [0.0, 0.0])
    after = panels["pass@k after RL"].lines
    assert [(line.label, line.faint, len(line.x)) for line in after] == [
        *(("plain3", False, 2), ("plain3", True, 2), ("plain3", True, 2)),
        *(("a_b%3", False, 2), ("a_b%3", True, 2), ("a_b%3", True, 2)),
    ]
    assert [line.y[0] for line in after[:3]] == [0.5, 3 / 8, 5 / 8]
    assert all(line.interval is None for line in after)
    reward = panels["Mean reward"].lines
    assert [line.faint for line in reward] == [False, True, True] * 2
    assert all(line.interval is None for line in reward)  # two seeds
    both = zip(*(line.y for line in reward[1:3]), strict=True)
    assert reward[0].y == pytest.approx([sum(pair) / 2 for pair in both])
    assert "Held-out pass@1 while training" not in panels
    three = read_arms(arms_of_seeds(tmp_path / "three", (1, 3, 5)))
    _, after, *_ = comparison_panels(compare_arms(three), three)
    assert [line.interval is None for line in after.lines[:4]] == [False, *[True] * 3]
    lone = read_arms([str(tmp_path / "plain3"), str(tmp_path / "a_b%3")])
    forest, after, *_ = comparison_panels(compare_arms(lone), lone)
    assert [row.points for row in forest.rows] == [[]]
    assert [line.faint for line in after.lines] == [False, False]


def test_of_each_type_the_strategy_that_works_is_drawn_if_there_was_a_choice(tmp_path):
    path = contender(tmp_path / "run", BEFORE)
    other = contender(tmp_path / "other", BEFORE, num_epochs=2)
    with MetricsWriter(pathlib.Path(path)) as writer:
        for step, share in ((20, 0.5), (21, 0.75)):
            writer.write(
                "train",
                step,
                {
                    "strategy_division/backward": share,
                    "strategy_division/backward_pass": 0.9,
                    "strategy_division/forward": 1 - share,
                    "strategy_division/forward_pass": 0.1,
                    "strategy_addition/backward": 0.02,  # no choice: one is rare
                    "strategy_addition/backward_pass": 0.1,
                    "strategy_addition/forward": 0.98,
                    "strategy_addition/forward_pass": 0.9,
                },
            )
    arms = read_arms([path, other])
    panels = {p.title: p for p in comparison_panels(compare_arms(arms), arms)}
    (chosen,) = panels["division: backward chosen"].lines
    assert (chosen.label, chosen.x, chosen.y) == ("run", [20, 21], [0.5, 0.75])
    (right,) = panels["division: backward correct if chosen"].lines
    assert right.y == [0.9, 0.9]
    assert "division: forward chosen" not in panels
    assert not any(title.startswith("addition") for title in panels)


def test_calibration_over_the_steps_is_drawn_where_it_is_known(tmp_path):
    path = contender(tmp_path / "run", BEFORE)
    other = contender(tmp_path / "other", BEFORE, num_epochs=2)
    with MetricsWriter(pathlib.Path(path)) as writer:
        for step, error in ((20, 0.3), (21, 0.2)):
            writer.write("train", step, {"confidence/ece": error})
    arms = read_arms([path, other])
    panels = {p.title: p for p in comparison_panels(compare_arms(arms), arms)}
    panel = panels["Calibration error (ECE)"]
    (line,) = panel.lines
    assert (line.label, line.y, panel.percent) == ("run", [0.3, 0.2], True)


def test_curves_of_several_seeds_are_their_mean_with_an_interval_a_step(tmp_path):
    runs = [contender(tmp_path / f"run{seed}", BEFORE, seed=seed) for seed in (0, 1, 2)]
    other = contender(tmp_path / "other", BEFORE, num_epochs=2)
    for level, run in enumerate(runs):
        with MetricsWriter(pathlib.Path(run)) as writer:
            for step in (20, 21):
                writer.write("train", step, {"eval/pass@1": 0.1 * level + step - 20})
    arms = read_arms([*runs, other])
    panels = {p.title: p for p in comparison_panels(compare_arms(arms), arms)}
    mean, *seeds = panels["Held-out pass@1 while training"].lines
    assert mean.y == pytest.approx([0.1, 1.1])
    # Student's t of 2 degrees of freedom is 4.303; the standard deviation is 0.1.
    reach = 4.303 * 0.1 / 3**0.5
    assert mean.interval[0] == pytest.approx([0.1 - reach, 1.1 - reach], abs=1e-4)
    assert mean.interval[1] == pytest.approx([0.1 + reach, 1.1 + reach], abs=1e-4)
    assert [line.y[0] for line in seeds] == pytest.approx([0.0, 0.1, 0.2])
    assert all(line.faint for line in seeds)


def test_arms_of_other_seeds_are_not_paired(tmp_path):
    def arm(name, seeds, **changed):
        return [
            contender(tmp_path / f"{name}{s}", {"a": "rw"}, seed=s, **changed)
            for s in seeds
        ]

    comparison = compare_runs(
        [*arm("plain", (0, 1, 2)), *arm("other", (2, 4, 6), num_epochs=2)]
    )
    seconds = found(comparison, "seconds")["differences"]["other2"]
    # 62, 64, 66 minus 60, 61, 62: variances 4 and 1 over 3 runs each.
    assert seconds["method"] == "welch"
    assert seconds["mean"] == pytest.approx(3)
    assert "seeds" not in seconds
    freedom = (5 / 3) ** 2 / ((4 / 3) ** 2 / 2 + (1 / 3) ** 2 / 2)
    assert freedom == pytest.approx(2.9412, abs=1e-4)
    # Wider than with three degrees, narrower than with two.
    assert 3.1824 < (seconds["high"] - 3) / (5 / 3) ** 0.5 < 4.3027
    assert comparison["notes"][-1] == (
        "other2 and plain0 have different seeds: their differences are unpaired"
    )
    lone = contender(tmp_path / "lone", {"a": "rw"}, num_epochs=3)
    comparison = compare_runs([lone, f"{tmp_path}/plain0", f"{tmp_path}/plain1"])
    assert found(comparison, k=1)["differences"]["plain0"]["method"] == "none"
    assert "lone is one run and plain0 has several seeds" in comparison["notes"][-1]


def test_a_second_run_of_one_config_and_seed_is_no_second_seed(tmp_path):
    twins = [contender(tmp_path / name, {"a": "rw", "b": "ww"}) for name in "xy"]
    comparison = compare_runs(twins)
    assert [arm["label"] for arm in comparison["arms"]] == ["x", "y"]
    assert "the same config as the baseline" in format_comparison(comparison)
    # Two problems without a difference prove little: 1 - 0.025^(1/2) = 0.84.
    twin = found(comparison, k=1)["differences"]["y"]
    assert (twin["mean"], twin["method"]) == (0, "problem")
    assert (twin["low"], twin["high"]) == pytest.approx((-0.84, 0.84), abs=0.03)


def test_runs_on_other_problems_are_unpaired_and_it_is_said(tmp_path):
    plain = contender(tmp_path / "plain", {"a": "rr", "b": "ww"})
    other = contender(
        tmp_path / "other", {"b": "rr", "e": "rr", "f": "rr"}, num_epochs=2
    )
    comparison = compare_runs([plain, other])
    one = found(comparison, k=1)["differences"]["other"]
    assert (one["method"], one["mean"]) == ("unpaired", 0.5)
    assert -0.7 < one["low"] < 0
    assert 0.9 < one["high"] <= 1.0
    assert comparison["notes"] == [
        "other and plain were evaluated on different problems (1 of 3 are the same): "
        "their differences are unpaired"
    ]


def test_one_problem_has_no_interval_and_no_verdict(tmp_path):
    """None right before or after: one problem says nothing about others."""
    runs = [
        contender(tmp_path / name, {"a": "wwww"}, before={"a": "wwww"}, **changed)
        for name, changed in (("plain", {}), ("other", {"num_epochs": 2}))
    ]
    comparison = compare_runs(runs)
    for metric in comparison["metrics"]:
        assert all(value["low"] is None for value in metric["values"].values())
        assert metric["differences"]["other"]["low"] is None
    printed = format_comparison(comparison)
    (row,) = (line for line in printed.splitlines() if line.startswith("pass@1, %"))
    assert row.split() == ["pass@1,", "%", "0.0", "0.0", "+0.0"]
    assert [found["crossing"] for found in comparison["crossings"]] == [None] * 3


def test_problems_with_no_right_answer_have_an_upper_bound(tmp_path):
    """0 of 30 problems, 4 samples each: up to 1 - 0.025^(1/30) = 11.6 %."""
    answers = {str(i): "wwww" for i in range(30)}
    runs = [contender(tmp_path / name, answers, before=answers) for name in "xy"]
    one = found(compare_runs(runs), k=1)
    assert one["values"]["x"]["low"] == 0
    assert one["values"]["x"]["high"] == pytest.approx(0.116, abs=0.01)
    gain = one["differences"]["y"]
    assert (gain["low"], gain["high"]) == pytest.approx((-0.116, 0.116), abs=0.01)


def test_crossings_of_pass_at_k_are_told_between_arms_and_before_rl(tmp_path):
    """One of two problems always right (1/2), or each once in four (1/4, then 1/2)."""
    before = {"a": "rwww", "b": "rwww"}
    plain = contender(tmp_path / "plain", before, before=before)
    sharp = {"a": "rrrr", "b": "wwww"}
    other = contender(tmp_path / "other", sharp, before=before, num_epochs=2)
    comparison = compare_runs([plain, other])
    curves = {
        tuple(each["curves"]): each["crossing"] for each in comparison["crossings"]
    }
    assert curves["plain", "plain before RL"] is None  # level everywhere
    crossing = {"leads": True, "k": 2, "low": 1, "high": 4, "max_k": 4}
    assert curves["other", "plain"] == curves["other", "other before RL"] == crossing
    printed = format_comparison(comparison)
    assert (
        "pass@k: other leads plain below k = 2 (95 % interval 1 to 4, boot" in printed
    )
    assert "plain, plain before RL: no crossing (a tie at k = 1, or" in printed


def test_the_gain_of_rl_is_paired_by_problem_and_not_split_by_band(tmp_path):
    """The band is set by answers before RL, so new draws alone change its score."""
    before = {"a": "rrrr", "b": "rrww", "c": "rwww", "d": "wwww"}
    after = {"a": "rrrw", "b": "rrrr", "c": "rrww", "d": "wwww"}
    types = ("s", "t")
    runs = [
        contender(tmp_path / "one", after, before=before, types=types),
        contender(tmp_path / "two", before, before=before, types=types, num_epochs=2),
    ]
    comparison = compare_runs(runs)
    gained = found(comparison, "pass@k gained", k=1)["values"]["one"]
    assert gained["mean"] == pytest.approx((-1 + 2 + 1 + 0) / 16)
    assert -1 < gained["low"] < 0 < gained["mean"] < gained["high"] < 1
    of_type = found(comparison, "pass@k gained", "type", "t", k=1)  # b and d
    assert of_type["values"]["one"]["mean"] == pytest.approx(2 / 8)
    cuts = {m["grouping"] for m in comparison["metrics"] if "gained" in m["name"]}
    assert cuts == {"all", "band_fresh", "type"}
    # No column for the gain: the difference from 0 gained is the gain.
    less = found(comparison, "pass@k gained", k=1)["differences"]["two"]
    assert less["mean"] == pytest.approx(-gained["mean"])


def test_lenient_accuracy_counts_what_is_stated_and_is_of_numbers_alone(tmp_path):
    after = {"a": "rrru", "b": "uuww", "c": "rrww", "d": "wwww"}
    runs = [
        contender(tmp_path / "one", after),
        contender(tmp_path / "two", BEFORE, num_epochs=2),
    ]
    comparison = compare_runs(runs)
    lenient = found(comparison, "lenient accuracy")["values"]
    assert lenient["one"]["mean"] == pytest.approx((4 + 2 + 2 + 0) / 16)
    assert lenient["two"]["mean"] == pytest.approx((4 + 2 + 0 + 0) / 16)
    gained = found(comparison, "lenient accuracy gained")["values"]
    assert gained["one"]["mean"] == pytest.approx(2 / 16)
    assert gained["two"]["mean"] == 0.0
    words = compare_runs(
        [
            contender(tmp_path / "words", after, gold="e3"),
            contender(tmp_path / "more", after, gold="e3", num_epochs=2),
        ]
    )
    assert not [m for m in words["metrics"] if "lenient" in m["name"]]


def test_problems_not_sampled_before_have_no_gain(tmp_path):
    other = contender(tmp_path / "other", {"z": "rrww", "a": "rrrw"})
    pair = [other, contender(tmp_path / "run", {"z": "rrww"}, num_epochs=2)]
    comparison = compare_runs(pair)
    gained = found(comparison, "pass@k gained", k=1)["values"]
    assert gained["other"]["mean"] == 0.75 - 1  # of the problem that both have
    assert gained["run"] is None


def test_strategies_and_luck_are_compared(tmp_path):
    runs = [
        contender(tmp_path / "one", BEFORE),
        contender(tmp_path / "two", BEFORE, num_epochs=2),
    ]
    for path, share, mass in zip(runs, (0.5, 0.75), (0.25, 0.5), strict=True):
        file = pathlib.Path(path, "summary.json")
        summary = json.loads(file.read_text())
        known = {"low": share - 0.1, "high": share + 0.1}
        summary["eval"]["after"]["strategies"] = {
            "inversion": {
                "backward": {
                    "share": {"mean": share, **known},
                    "pass": {"mean": 1.0, "low": None, "high": None},
                }
            }
        }
        if path == runs[1]:
            then = {"share": {"mean": 0.5}, "pass": {"mean": 0.75}}
            of_type = {"inversion": {"backward": then}}
            summary["eval"]["before"] = {"strategies": of_type}
        file.write_text(json.dumps(summary))
        with MetricsWriter(pathlib.Path(path)) as writer:
            writer.write("train", 20, {"lucky/wrong_steps_mass": mass})
            writer.write("train", 21, {"lucky/wrong_steps_mass": mass + 0.5})
    comparison = compare_runs(runs)
    of = ("strategy", "inversion backward")
    gained = found(comparison, "chosen gained", *of)["values"]
    assert (gained["one"], gained["two"]["mean"]) == (None, 0.25)
    right = found(comparison, "correct if chosen gained", *of)["values"]
    assert right["two"]["mean"] == 0.25
    chosen = found(comparison, "chosen", *of)
    assert chosen["values"]["one"] == {
        "mean": 0.5,
        "low": 0.4,
        "high": 0.6,
        "runs": 1,
    }
    assert chosen["differences"]["two"]["mean"] == 0.25
    assert found(comparison, "correct if chosen", *of)["values"]["two"]["mean"] == 1
    luck = found(comparison, "mass on wrong steps")["values"]
    assert (luck["one"]["mean"], luck["two"]["mean"]) == (0.5, 0.75)


def test_paid_luck_is_a_mean_over_steps_and_entropy_is_the_last_tenth(tmp_path):
    runs = [str(contender(tmp_path / name, BEFORE)) for name in ("one", "two")]
    for path, paid in zip(runs, (0.2, 0.4), strict=True):
        with MetricsWriter(pathlib.Path(path)) as writer:
            for step in range(20):
                row = {
                    "lucky/positive_wrong_steps_mass": paid,
                    "lucky/positive_incorrect_mass": paid * (step % 2),
                    "rollout/entropy": 1.0 if step < 16 else 0.1 + paid * (step % 2),
                }
                writer.write("train", 100 + step, row)
    comparison = compare_runs(runs)
    luck = found(comparison, "positive mass on wrong steps")["values"]
    assert luck["two"]["mean"] == pytest.approx(0.4)
    wrong = found(comparison, "positive mass on wrong answers")
    assert wrong["differences"]["two"]["mean"] == pytest.approx(0.1)
    # The last four of forty steps: 0.1 twice, and twice 0.1 + what is paid.
    entropy = found(comparison, "entropy")["values"]
    assert entropy["one"]["mean"] == pytest.approx(0.2)
    assert entropy["two"]["mean"] == pytest.approx(0.3)


def test_calibration_is_compared_before_and_after(tmp_path):
    run = contender(tmp_path / "run", BEFORE)
    silent = contender(tmp_path / "silent", BEFORE, num_epochs=2)
    file = pathlib.Path(run, "summary.json")
    summary = json.loads(file.read_text())
    brier = {"mean": 0.2, "low": 0.1, "high": 0.3}
    after = {"brier": brier, "ece": 0.25, "auroc": None}
    summary["eval"]["after"]["calibration"] = after
    summary["eval"]["before"] = {"calibration": {"ece": 0.5, "auroc": 0.75}}
    file.write_text(json.dumps(summary))
    comparison = compare_runs([run, silent])
    assert found(comparison, "Brier score")["values"]["run"] == brier | {"runs": 1}
    for name, value in (
        ("ECE", 0.25),
        ("ECE before RL", 0.5),
        ("AUROC before RL", 0.75),
    ):
        assert found(comparison, name)["values"]["run"]["mean"] == value
    told = {metric["name"] for metric in comparison["metrics"]}
    assert not told & {"AUROC", "Brier score before RL"}


def test_features_that_rl_changed_are_compared_where_they_have_been_counted(tmp_path):
    runs = [contender(tmp_path / f"run{seed}", BEFORE, seed=seed) for seed in (0, 1)]
    runs.append(contender(tmp_path / "bare", BEFORE, num_epochs=2))
    for run, count in zip(runs, (3, 6), strict=False):
        path = pathlib.Path(run, "features/dynamics.json")
        path.parent.mkdir()
        counts = {
            "hard": {"strengthened": count, "moved": 50, "claimed": 9},
            "all": {"strengthened": 1, "moved": 60, "claimed": 2},
        }
        draws = [{band: {"claimed": n} for band in counts} for n in (0, 1)]
        noise = {"label": "noise of equal drift", "draws": draws}
        path.write_text(json.dumps({"counts": counts, "nulls": [noise]}))
    comparison = compare_runs(runs)
    hard = found(comparison, "features strengthened", "band", "hard")
    assert hard["seeds"]["run0"] == {"0": 3.0, "1": 6.0}
    assert hard["values"]["run0"]["mean"] == 4.5
    assert hard["values"]["bare"] is None
    assert found(comparison, "features claimed")["values"]["run0"]["mean"] == 2
    noise = found(comparison, "features that noise claims", "band", "hard")
    assert noise["values"]["run0"]["mean"] == 0.5
    assert "moved" not in json.dumps(comparison["metrics"])
    assert "features strengthened, hard" in format_comparison(comparison)


def test_unfinished_runs_are_compared_by_their_existing_metrics(tmp_path, pair):
    young = make_workdir(tmp_path / "young", steps=7, evals=None)
    comparison = compare_runs([*pair, str(young)])
    assert comparison["notes"] == [
        f"{young}: 7 of 120 training steps done",
        f"{young}: no evaluation after RL",
    ]
    assert found(comparison, k=1)["differences"]["young"] is None
    assert found(comparison, "reward")["differences"]["young"] is not None
    assert found(comparison, "seconds")["values"]["young"] is None


def test_without_rollouts_the_summary_is_quoted_and_no_difference_claimed(tmp_path):
    plain, other = (
        contender(tmp_path / name, {"a": "rw", "b": "ww"}, **changed)
        for name, changed in (("plain", {}), ("other", {"num_epochs": 2}))
    )
    (tmp_path / "other/rollouts/eval_after_000000.jsonl.gz").unlink()
    comparison = compare_runs([plain, other])
    one = found(comparison, k=1)
    assert one["values"]["other"] == {"mean": 0.5, "low": 0.25, "high": 0.75, "runs": 1}
    assert one["differences"]["other"]["low"] is None
    assert "no rollouts of its evaluation" in comparison["notes"][0]


def test_the_baseline_is_chosen_and_how_a_run_is_executed_is_no_difference(
    tmp_path, pair
):
    comparison = compare_runs(pair, baseline=pair[1])
    assert comparison["baseline"] == "other"
    assert found(comparison, k=1)["differences"]["plain"]["mean"] == -3 / 16
    again = tmp_path / "plain/config.json"
    record = json.loads(again.read_text())
    record["config"] |= {"seed": 5, "name": "x", "mesh": {"data": 8}}
    again.write_text(json.dumps(record))
    first = contender(tmp_path / "first", {"a": "rw"}, seed=0)
    assert len(compare_runs([pair[0], first])["arms"]) == 1


def test_command_prints_a_table_and_writes_json(pair, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert main(["compare", *pair, f"--out={out}"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(out.read_text()) == compare_runs(pair)
    assert printed.startswith(f"plain (seed 0, baseline): {pair[0]}\nother (seed 0): ")
    (row,) = (line for line in printed.splitlines() if line.startswith("pass@1, %"))
    assert row.split()[2] == "43.8"
    assert "+18.8 [" in row
    assert row.endswith("] p")
    assert "pass@4, hard, %" in printed
    assert "\nEach held-out number is the mean over the 4 problems of one" in printed


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["{0}"], "compare needs at least two workdirs; got "),
        (["{0}", "{0}/../plain"], "is given twice; give each one once"),
        (["{0}", "{tmp}/nowhere"], "nowhere is not a directory"),
        (["{0}", "{tmp}"], "holds no config.json: no run started there"),
        (["{0}", "{1}", "--baseline={tmp}"], "is not one of the workdirs"),
        (
            ["{0}", "{tmp}/sae"],
            "is not from a run of rlvr_jax: its config has no log, task",
        ),
        (
            ["{0}", "{1}", "--out={tmp}/a.pgn"],
            "has the ending '.pgn'; it may be one of .json, .csv, .tex, .md, .svg, "
            ".png; "
            "did you mean '.png'?",
        ),
        (["{0}", "{1}", "--out={tmp}/no/a.csv"], "/no' does not exist; make it"),
        (
            ["{0}", "{1}", "--rows=pass@1,rewards"],
            "no row is named 'rewards'; did you mean 'reward'?",
        ),
        (
            ["{0}", "{1}", "--rows=reward, pass@1"],
            "no row is named 'reward, pass@1'; did you mean 'reward'?; names are "
            "separated by a comma without a space",
        ),
        (["{0}", "{1}", "--rows=pass@9*"], "no row is named 'pass@9*'; did you mean"),
        (["{0}", "{1}", "--rows=reward,"], "no row is named ''; did you mean"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(
    pair, tmp_path, capsys, more, says
):
    (tmp_path / "sae").mkdir()
    sae = {"config": {"seed": 0, "train": {}}}
    (tmp_path / "sae/config.json").write_text(json.dumps(sae))
    arguments = [each.format(*pair, tmp=tmp_path) for each in more]
    assert main(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
