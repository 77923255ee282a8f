"""Arms over seeds: which runs count or wait, and the tables and the page."""

import dataclasses
import json
import math
import pathlib
import re
import shutil

import pytest

from job_jax.config_io import override
from job_jax.flags import UsageError
from job_jax.metrics import MetricsWriter
from rlvr_jax.analysis.__main__ import main
from rlvr_jax.analysis.experiment.page import render_markdown, render_page
from rlvr_jax.analysis.experiment.record import (
    check_record,
    make_record,
    write_record,
)
from rlvr_jax.analysis.experiment.results import (
    NoResultsError,
    describe_results,
    outcome_table,
    read_results,
)
from rlvr_jax.config import Arm, Config, Experiment
from tests.support.run_workdirs import contender

BASE, OTHER = (2, 4, 3), (1, 2, 2)  # of 8 right, by seed


def experiment(**changed):
    return Experiment(
        **{
            "question": "Does <it> work?",
            "reference": "a paper",
            "arms": {
                "hard": Arm(published="-5.75"),
                "plain": Arm(published="38.08"),
                "never": Arm(),
            },
            "baseline": "plain",
            "outcomes": ("pass@1", "completion length", "pass@99"),
            "seed_sd": 0.1,
            "seed_sd_source": "a guess",
            "seeds": (0, 1, 2),
            **changed,
        }
    )


@pytest.fixture
def folder(tmp_path):
    """Three seeds of two arms, and one of them without its last seed."""
    write_record(tmp_path, make_record(experiment(), Config(), is_reduced=False))
    for name, rights in (("plain", BASE), ("hard", OTHER)):
        for seed, right in enumerate(rights):
            path = tmp_path / name / f"seed_{seed}"
            letters = "r" * right + "w" * (8 - right)
            contender(path, {"a": letters[:4], "b": letters[4:]}, seed=seed)
    return tmp_path


def drop(folder, name, seed):
    """Makes a run look as if it had not been evaluated yet."""
    (folder / name / f"seed_{seed}" / "summary.json").write_text("{}")


def test_differences_are_computed_by_seed(folder):
    results = read_results(folder)
    assert [arm.label for arm in results.arms] == ["plain", "hard"]
    found = results.metric("pass@1")
    assert found["values"]["plain"]["mean"] == pytest.approx(3 / 8)
    less = found["differences"]["hard"]
    # -1/8, -2/8, -1/8: mean -1/6, standard deviation 0.0722; t of 2 is 4.303.
    assert less["mean"] == pytest.approx(-1 / 6)
    assert less["low"] == pytest.approx(-1 / 6 - 4.303 * 0.07217 / math.sqrt(3), 1e-3)
    assert less["method"] == "seed"


def test_the_table_has_every_outcome_and_arm_and_published_numbers(folder):
    table = outcome_table(read_results(folder))
    assert [row[:2] for row in table.rows] == [
        ["pass@1, %", "plain"],
        ["pass@1, %", "hard"],
        ["completion length", "plain, hard"],  # equal
    ]
    plain, hard, lengths = table.rows
    assert plain[3:] == ["", "", "", "25.0 50.0 37.5", "38.08"]
    assert hard[3] == "-16.7 [-34.6, +1.3]"
    # 3.264 standard deviations of 7.2 points: three pairs find it 4 times of 5.
    assert hard[4:] == ["7.2", "23.6", "12.5 25.0 25.0", "-5.75"]
    assert lengths[-1] == ""  # `published` belongs to the first outcome


@pytest.mark.parametrize("twin", ["plain", "hard"])
def test_arms_with_the_same_numbers_share_a_row(folder, twin):
    for seed in range(3):
        shutil.copytree(folder / f"{twin}/seed_{seed}", folder / f"never/seed_{seed}")
    unpublished = {"hard": Arm(), "plain": Arm(), "never": Arm()}
    told = experiment(arms=unpublished)
    write_record(folder, make_record(told, Config(), is_reduced=False))
    rows = outcome_table(read_results(folder)).rows
    shared = {"plain": ["plain, never", "hard"], "hard": ["plain", "hard, never"]}
    assert [row[1] for row in rows if row[0] == "pass@1, %"] == shared[twin]


def test_missing_results_are_named(folder):
    drop(folder, "hard", 1)
    results = read_results(folder)
    assert results.arms[0].seeds == [0, 2]
    said = "\n".join(describe_results(results))
    assert "not run: never" in said
    assert "seed 1 left out until hard finished" in said
    assert "no run measured pass@99" in said
    assert "sd is" not in said  # two seeds are too few for it
    # Two seeds that both differ by an eighth.
    assert outcome_table(results).rows[1][2:] == [
        *("18.8", "-12.5 (-12.5, -12.5)", "", ""),
        *("12.5 25.0", "-5.75"),
    ]


def test_a_seed_without_the_outcome_that_decides_is_shown_and_not_paired(folder):
    record = json.loads((folder / "experiment.json").read_text())
    record["experiment"]["outcomes"] = ["mass on wrong steps"]
    (folder / "experiment.json").write_text(json.dumps(record))
    for name, masses in (("plain", (0.1, 0.2)), ("hard", (0.2, 0.5, 0.4))):
        for seed, mass in enumerate(masses):
            with MetricsWriter(folder / name / f"seed_{seed}") as writer:
                writer.write("train", 20, {"lucky/wrong_steps_mass": mass})
    results = read_results(folder)
    plain, hard = outcome_table(results).rows
    assert plain[2].endswith("in 2 of 3 runs")
    assert plain[6] == "10.0 20.0 -"
    assert hard[3] == "+20.0 (+10.0, +30.0)"  # of the two shared seeds
    assert hard[4:6] == ["", ""]
    assert results.comparison["decided_by"] == "mass on wrong steps"


@pytest.mark.parametrize("lacking", ["plain", "hard"])
def test_spread_and_interval_are_of_pairs_whichever_seed_is_missing(folder, lacking):
    """The first seed has no mass in one arm: seeds 1, 2 and 3 are the pairs."""
    for name in ("plain", "hard"):
        contender(folder / name / "seed_3", {"a": "rwww", "b": "wwww"}, seed=3)
    masses = {"plain": (0.1, 0.2, 0.1, 0.3), "hard": (0.4, 0.5, 0.3, 0.4)}
    for name, by_seed in masses.items():
        for seed, mass in enumerate(by_seed):
            if (name, seed) != (lacking, 0):
                with MetricsWriter(folder / name / f"seed_{seed}") as writer:
                    writer.write("train", 20, {"lucky/wrong_steps_mass": mass})
    outcomes = ("pass@1", "mass on wrong steps")
    wanted = experiment(outcomes=outcomes, seeds=(0, 1, 2, 3))
    write_record(folder, make_record(wanted, Config(), is_reduced=False))
    results = read_results(folder)
    *_, hard = outcome_table(results).rows
    # 0.3, 0.2 and 0.1: a mean of 0.2 and a deviation of 0.1; t of two is 4.303.
    less = results.metric("mass on wrong steps")["differences"]["hard"]
    assert less["mean"] == pytest.approx(0.2)
    assert less["low"] == pytest.approx(0.2 - 4.3027 * 0.1 / math.sqrt(3), abs=1e-4)
    assert less["method"] == "seed"
    assert hard[4] == "10.0"


def test_seeds_listed_in_another_order_are_the_same_pairs(folder):
    rows = outcome_table(read_results(folder)).rows
    turned = experiment(seeds=(2, 0, 1))
    write_record(folder, make_record(turned, Config(), is_reduced=False))
    again = outcome_table(read_results(folder)).rows
    for row, other in zip(rows, again, strict=True):
        assert row[:6] == other[:6]
        first, second, third = row[6].split()
        assert other[6].split() == [third, first, second]


def test_arms_that_share_no_seed_are_held_against_each_other_unpaired(folder):
    """One arm reports the mass for seed 0, the other for seeds 1 and 2."""
    for name, masses in (("plain", {0: 0.1}), ("hard", {1: 0.2, 2: 0.4})):
        for seed, mass in masses.items():
            with MetricsWriter(folder / name / f"seed_{seed}") as writer:
                writer.write("train", 20, {"lucky/wrong_steps_mass": mass})
    told = experiment(outcomes=("pass@1", "mass on wrong steps"))
    write_record(folder, make_record(told, Config(), is_reduced=False))
    *_, plain, hard = outcome_table(read_results(folder)).rows
    assert plain[6] == "10.0 - -"
    assert hard[3:7] == ["+20.0", "", "", "- 20.0 40.0"]


def test_one_arm_is_not_a_result(folder):
    for seed in range(3):
        drop(folder, "hard", seed)
    message = "only plain has finished; let another arm run"
    with pytest.raises(NoResultsError, match=message):
        read_results(folder)


def test_why_there_are_no_results_is_told(folder):
    message = "only the baseline plain was chosen"
    with pytest.raises(NoResultsError, match=message):
        read_results(folder, only=["plain"])
    for seed in (0, 1):
        drop(folder, "hard", seed)
    drop(folder, "plain", 2)
    message = r"no seed has finished in all arms .*plain: 0, 1; hard: 2.*; let them run"
    with pytest.raises(NoResultsError, match=message):
        read_results(folder)
    for seed in (0, 1):
        drop(folder, "plain", seed)
    with pytest.raises(NoResultsError, match="no run of the baseline plain has"):
        read_results(folder)


def test_a_reduced_experiment_says_so_first(folder):
    record = json.loads((folder / "experiment.json").read_text())
    (folder / "experiment.json").write_text(json.dumps(record | {"is_reduced": True}))
    assert describe_results(read_results(folder))[0].startswith("REDUCED")


def test_page_and_table_hold_the_same_numbers_and_no_markup_of_a_question(folder):
    results = read_results(folder)
    page, table = render_page(results), render_markdown(results)
    assert "<it>" not in page
    assert "Does &lt;it&gt; work?" in page
    for told in ("-16.7 [-34.6, +1.3]", "12.5 25.0 25.0", "not run: never"):
        assert told in page
        assert told in table
    assert "pass@1 minus plain" in page  # the forest plot
    assert len(re.findall("<svg", page)) > 4


def test_the_command_writes_every_file_and_prints_the_table(folder, capsys):
    assert main(["experiment", str(folder)]) == 0
    assert "| pass@1, % | hard |" in capsys.readouterr().out
    assert {path.name for path in (folder / "result").iterdir()} == {
        "index.html",
        "table.md",
        "table.csv",
        "table.tex",
        "figure.svg",
        "figure.png",
        "comparison.json",
        "by_problem.json",
    }


def test_differences_from_another_arm_are_only_printed(folder, capsys):
    assert main(["experiment", str(folder), "--baseline=hard"]) == 0
    told = capsys.readouterr().out
    assert "| pass@1, % | plain | 37.5 [6.4, 68.6] | +16.7 [-1.3, +34.6] |" in told
    assert not (folder / "result").exists()
    assert main(["experiment", str(folder), "--baseline=plane"]) == 2
    assert (
        "baseline='plane' is not an arm; did you mean 'plain'"
        in capsys.readouterr().err
    )


def test_selected_arms_are_reported_as_if_they_were_all(folder, capsys):
    """The third seed of hard is missing; only hard waits for it."""
    drop(folder, "hard", 2)
    write_record(folder, make_record(experiment(), Config(), is_reduced=False))
    contender(folder / "never/seed_2", {"a": "rrww", "b": "wwww"}, seed=2)
    told = {}
    for name, args in {"all": (), "never": ("--arms=never",)}.items():
        assert main(["experiment", str(folder), "--baseline=plain", *args]) == (
            2 if name == "all" else 0
        )
        told[name] = capsys.readouterr()
    assert "has no results yet" in told["all"].err
    assert "| pass@1, % | never |" in told["never"].out
    assert "hard" not in told["never"].out.split("|")[0]
    assert "| hard |" not in told["never"].out
    assert not (folder / "result").exists()
    assert main(["experiment", str(folder), "--arms=nevr"]) == 2
    assert "'nevr' is not an arm of" in capsys.readouterr().err


def test_figures_show_the_chosen_outcome(folder, capsys, tmp_path):
    place = tmp_path / "figures/length"
    asked = ["--outcome=completion length", "--arms=hard", f"--out={place}"]
    assert main(["experiment", str(folder), *asked]) == 0
    told = capsys.readouterr().out
    assert told.index("| completion length | plain, hard |") < told.index(
        "| pass@1, % |"
    )
    # The published number belongs to the deciding outcome, in any position.
    (hard,) = (line for line in told.splitlines() if "| pass@1, % | hard |" in line)
    assert hard.endswith("| -5.75 |")
    figure = (place / "figure.svg").read_text()
    assert "completion length minus plain" in figure
    assert "pass@1 minus plain" not in figure
    assert (place / "index.html").is_file()
    assert not (folder / "result").exists()
    assert main(["experiment", str(folder), "--outcome=completion lenth"]) == 2
    told = capsys.readouterr().err
    assert (
        "no run measured 'completion lenth'; did you mean 'completion length'" in told
    )


def test_rows_are_chosen_by_name_and_the_table_says_what_it_averages(
    folder, capsys, tmp_path
):
    out = tmp_path / "view"
    rows = "--rows=reward*,pass@1, easy*"
    assert main(["experiment", str(folder), rows, f"--out={out}"]) == 0
    told = capsys.readouterr().out
    lines = [line.split(" | ")[0] for line in told.splitlines() if line[0:1] == "|"]
    of_easy = [*["| pass@1, easy, %"] * 2, *["| pass@1, easy, fresh, %"] * 2]
    assert lines[2:] == ["| reward", "| reward gained", *of_easy]
    by_seed = (
        "\nEach number is the mean of 3 seeds, and [brackets] hold its 95 % interval"
    )
    assert by_seed in told
    assert (out / "table.md").read_text() in told
    assert by_seed.strip() in (out / "index.html").read_text()
    assert "completion length" not in (out / "table.tex").read_text()
    assert not (folder / "result").exists()
    assert main(["experiment", str(folder), "--rows=rewards"]) == 2
    error = "error: no row is named 'rewards'; did you mean 'reward'?\n"
    assert capsys.readouterr().err == error


def test_a_folder_without_an_experiment_is_refused_in_one_line(tmp_path, capsys):
    assert main(["experiment", str(tmp_path)]) == 2
    assert "holds no experiment.json" in capsys.readouterr().err
    pathlib.Path(tmp_path, "experiment.json").write_text("{}")
    assert main(["experiment", str(tmp_path)]) == 2
    assert "is not an experiment's record" in capsys.readouterr().err


def test_a_directory_keeps_its_experiment(tmp_path):
    def record(recipe=None, *, is_reduced=False, **changed):
        recipe = recipe or Config()
        kind = make_record(experiment(**changed), recipe, is_reduced=is_reduced)
        check_record(tmp_path, kind, recipe)
        write_record(tmp_path, kind)

    record()
    arms = experiment().arms | {"another": Arm()}
    record(arms=arms, seeds=(0, 1, 2, 3))  # arms and seeds may be added
    record(Config(name="by another name"), arms=arms, seeds=(0, 1, 2, 3))
    steps = dataclasses.replace(Config().train, steps=3)
    changed = {
        "hard, another": {"arms": experiment().arms | {"hard": Arm(start="")}},
        "--reduced": {"is_reduced": True},
        "the baseline": {"baseline": "hard"},
        "the first outcome": {"outcomes": ("pass@8", "pass@1")},
        "seeds without 3": {"seeds": (0, 1, 2)},
        "train.steps": {"recipe": Config(train=steps)},
    }
    for differs, how in changed.items():
        with pytest.raises(UsageError, match=f"which differs in {differs}; use anoth"):
            record(**{"arms": arms, "seeds": (0, 1, 2, 3), **how})


def test_an_experiment_goes_on_in_a_version_with_more_fields(tmp_path):
    """A new field at its default is the same recipe; at another value it is not."""
    split = {"mesh.tensor": "2", "model.sequence_parallel": "true"}
    recipe = override(Config(), split)  # the mesh is not recorded
    record = make_record(experiment(), recipe, is_reduced=False)
    write_record(tmp_path, record)
    file = tmp_path / "experiment.json"
    old = json.loads(file.read_text())
    del old["recipe"]["train"]["group_size"], old["recipe"]["judge"]
    file.write_text(json.dumps(old))
    check_record(tmp_path, record, recipe)
    other = override(recipe, {"train.group_size": "4"})
    with pytest.raises(UsageError, match=r"which differs in train\.group_size; use"):
        check_record(
            tmp_path, make_record(experiment(), other, is_reduced=False), other
        )
    old["recipe"]["retired"] = 3
    file.write_text(json.dumps(old))
    told = r"differs in what this version cannot read \(unknown config key 'retired'"
    with pytest.raises(UsageError, match=told):
        check_record(tmp_path, record, recipe)


def test_a_damaged_summary_is_named(folder):
    file = folder / "hard/seed_1/summary.json"
    file.write_text('{"eval": {"aft')
    with pytest.raises(UsageError, match=f"{file} is damaged"):
        read_results(folder)
