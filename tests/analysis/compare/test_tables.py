"""Tables of a comparison: chosen rows, their explanation, and fresh bands."""

import csv
import json
import pathlib
import random

import pytest

from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.compare.arms import compare_runs
from rlvr_jax.analysis.compare.reading import explain_brackets, explain_numbers
from rlvr_jax.analysis.compare.rows import choose_rows, split_rows
from rlvr_jax.analysis.compare.text import comparison_table, format_comparison
from tests.support.run_workdirs import contender, eval_summary, evaluation

AFTER = {"a": "rrrw", "b": "rrwr", "c": "rwww", "d": "wwrr"}
BEFORE = {"a": "rrrw", "b": "rrwr", "c": "wwrw", "d": "wwww"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two runs on the same four problems; the second is wrong on all of them."""
    folder = tmp_path_factory.mktemp("pair")
    wrong = dict.fromkeys(AFTER, "wwww")
    return [
        contender(folder / "plain", AFTER, before=BEFORE),
        contender(folder / "other", wrong, before=BEFORE, num_epochs=2),
    ]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory):
    """Two arms of three seeds each."""
    folder = tmp_path_factory.mktemp("seeds")
    return [
        contender(folder / f"{name}{seed}", AFTER, before=BEFORE, seed=seed, **changed)
        for name, changed in (("plain", {}), ("other", {"num_epochs": 2}))
        for seed in range(3)
    ]


def labels(comparison):
    return [row[0] for row in comparison_table(comparison).rows]


def metric(comparison, name, grouping, group, k):
    (one,) = (
        each
        for each in comparison["metrics"]
        if (each["name"], each["grouping"], each["group"], each["k"])
        == (name, grouping, group, k)
    )
    return one


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("reward", ["reward"]),
        ("pass@1,reward*", ["pass@1", "reward*"]),
        ("pass@1, hard,reward", ["pass@1, hard", "reward"]),
    ],
)
def test_names_of_rows_are_separated_by_a_comma_without_a_space(text, names):
    assert split_rows(text) == names


@pytest.mark.parametrize(
    ("names", "rows"),
    [
        (["reward"], ["reward"]),
        (["seconds", "pass@1"], ["seconds", "pass@1, %"]),
        (["pass@1, %"], ["pass@1, %"]),
        (["PASS@1"], ["pass@1, %"]),
        (["reward*"], ["reward", "reward gained"]),
        (["*gained", "reward*"], ["pass@1 gained, %", "pass@4 gained, %"]),
        (["pass@?, hard, fresh"], ["pass@1, hard, fresh, %"]),
        (["alarms", "a*s"], ["alarms"]),
    ],
)
def test_rows_are_chosen_by_name_or_pattern_in_their_order(pair, names, rows):
    chosen = labels(choose_rows(compare_runs(pair), names))
    assert chosen[: len(rows)] == rows
    assert len(chosen) == len({*chosen})
    if names != ["*gained", "reward*"]:
        assert len(chosen) == len(rows)
    else:
        assert chosen[-3:] == ["lenient accuracy gained, %", "reward gained", "reward"]


def test_without_names_there_is_every_row_and_of_a_curve_its_ends(tmp_path):
    """A curve of k = 1, 2, 4: a chosen row may be inside of it."""
    runs = [
        contender(tmp_path / "plain", AFTER, before=BEFORE),
        contender(tmp_path / "other", AFTER, before=BEFORE, num_epochs=2),
    ]
    for run in runs:
        file = pathlib.Path(run, "summary.json")
        summary = json.loads(file.read_text())
        passed = summary["eval"]["after"]["pass@k"]
        summary["eval"]["after"]["pass@k"] = dict.fromkeys(("1", "2", "4"), passed["1"])
        file.write_text(json.dumps(summary))
    comparison = compare_runs(runs)
    assert choose_rows(comparison, []) == comparison
    shown = labels(comparison)
    assert [label for label in shown if label.startswith("pass@2,")] == [
        "pass@2, easy, fresh, %",  # the end of a fresh band's curve
        "pass@2, hard, fresh, %",
    ]
    assert labels(choose_rows(comparison, ["pass@2"])) == ["pass@2, %"]


def test_every_table_has_the_chosen_rows_and_json_has_all(pair, tmp_path, capsys):
    files = {kind: tmp_path / f"out.{kind}" for kind in ("csv", "tex", "md", "json")}
    outputs = ",".join(map(str, files.values()))
    rows = "--rows=reward,pass@1, hard, fresh"
    assert main(["compare", *pair, rows, f"--out={outputs}"]) == 0
    printed = capsys.readouterr().out
    assert printed.index("\nreward ") < printed.index("\npass@1, hard, fresh, %")
    for text in (printed, files["tex"].read_text(), files["md"].read_text()):
        assert "completion length" not in text
        assert "alarms" not in text
    assert "pass@k: " not in printed  # where the curves cross
    written = [*csv.DictReader(files["csv"].read_text().splitlines())]
    assert {(row["metric"], row["grouping"]) for row in written} == {
        ("reward", "all"),
        ("pass@k", "band_fresh"),
    }
    record = json.loads(files["json"].read_text())
    assert record["rows"] == ["reward", "pass@1, hard, fresh"]
    assert record["metrics"] == compare_runs(pair)["metrics"]


def test_markdown_is_the_printed_table_with_its_explanation(pair, tmp_path):
    out = tmp_path / "out.md"
    assert main(["compare", *pair, "--rows=alarms", f"--out={out}"]) == 0
    head, rule, row, empty, *said = out.read_text().splitlines()
    assert head == "|  | plain | other | other - plain |"
    assert rule == "| --- | --- | --- | --- |"
    assert row == "| alarms | 0.0 | 0.0 | +0.0 |"
    chosen = choose_rows(compare_runs(pair), ["alarms"])
    assert (empty, said) == ("", explain_numbers(chosen))


def test_one_sentence_says_what_is_averaged_and_over_what_the_brackets_are(pair, seeds):
    single, several = (compare_runs(runs) for runs in (pair, seeds))
    two = compare_runs([*seeds[:2], *seeds[3:5]])
    chance = "Among many such intervals, some exclude 0 by chance."
    assert explain_brackets(single) == [
        "Each held-out number is the mean over the 4 problems of one run, or over as "
        "many as its row says, and [brackets] hold its 95 % interval over problems.",
        chance,
    ]
    by_three = (
        "Each number is the mean of 3 seeds, and [brackets] hold its 95 % interval "
        "over seeds."
    )
    assert explain_brackets(several)[0] == by_three
    by_two = (
        "Each number is the mean of two seeds, and (parentheses) hold the seeds' own "
        "numbers, because two are too few for an interval."
    )
    assert explain_numbers(two) == [by_two]
    mixed = compare_runs([*seeds[:2], *seeds[3:], pair[1]])
    mixed_lines = explain_brackets(mixed)
    assert mixed_lines[:2] == [f"plain0: {by_two}", f"other0: {by_three}"]


def test_marks_are_explained_where_they_are_used(pair):
    printed = format_comparison(compare_runs(pair))
    assert "\np: both runs answered the same problems; the interval is of" in printed
    assert not any(f"\n{mark}: " in printed for mark in "usw")
    chosen = choose_rows(compare_runs(pair), ["reward"])  # without an interval
    assert "p: " not in format_comparison(chosen)


def test_fresh_bands_come_from_half_of_the_samples_and_score_the_others(pair):
    """The first two samples before RL: a and b are easy, c and d hard."""
    comparison = compare_runs(pair)

    def fresh(name, band):
        return metric(comparison, name, "band_fresh", band, 1)["values"]["plain"]

    easy, hard = fresh("pass@k", "easy"), fresh("pass@k", "hard")
    assert (easy["mean"], easy["problems"]) == (2 / 4, 2)  # rw and wr
    assert (hard["mean"], hard["problems"]) == (2 / 4, 2)  # ww and rr
    assert fresh("pass@k before RL", "easy")["mean"] == 2 / 4  # rw and wr
    assert fresh("pass@k before RL", "hard")["mean"] == 1 / 4  # rw and ww
    assert fresh("pass@k gained", "hard")["mean"] == 1 / 4
    # All four samples call only d hard, and no band of theirs has a gain.
    biased = metric(comparison, "pass@k", "band", "hard", 1)["values"]["plain"]
    assert (biased["mean"], biased["problems"]) == (2 / 4, 1)
    groupings = {m["grouping"] for m in comparison["metrics"] if "gained" in m["name"]}
    assert groupings == {"all", "band_fresh", "type"}
    less = metric(comparison, "pass@k", "band_fresh", "hard", 1)["differences"]["other"]
    assert (less["mean"], less["method"]) == (-2 / 4, "problem")


def test_a_curve_of_a_fresh_band_ends_at_half_of_the_samples(pair):
    ks = {
        metric["k"]
        for metric in compare_runs(pair)["metrics"]
        if (metric["name"], metric["grouping"]) == ("pass@k", "band_fresh")
    }
    assert ks == {1}  # two samples are left, and summary.json has k = 1 and 4


def test_one_sample_before_rl_has_no_fresh_bands(tmp_path):
    before = {"a": "r", "b": "w"}
    runs = [
        contender(tmp_path / "plain", {"a": "r", "b": "w"}, before=before),
        contender(tmp_path / "other", before, before=before, num_epochs=2),
    ]
    groupings = {metric["grouping"] for metric in compare_runs(runs)["metrics"]}
    assert groupings == {"all", "band", "type"}


def test_fresh_bands_without_rollouts_come_from_the_summary(tmp_path):
    """As the other scores, with the summary's interval."""
    runs = [
        contender(tmp_path / name, AFTER, **changed)
        for name, changed in (("plain", {}), ("other", {"num_epochs": 2}))
    ]
    rng = random.Random(0)
    scores = eval_summary(evaluation(0.4, rng), evaluation(0.6, rng))
    for run in runs:
        file = pathlib.Path(run, "summary.json")
        summary = json.loads(file.read_text()) | {"eval": scores}
        file.write_text(json.dumps(summary))
        pathlib.Path(run, "rollouts/eval_after_000000.jsonl.gz").unlink()
    found = metric(compare_runs(runs), "pass@k", "band_fresh", "hard", 1)
    written = scores["after"]["by_band_fresh"]["hard"]["pass@k"]["1"]
    assert found["values"]["plain"] == {**written, "runs": 1}
    assert written["low"] is not None
