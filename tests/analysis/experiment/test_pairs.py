"""Two outcomes of the same runs: rank correlations over arms, and a dot a run."""

import dataclasses
import json
import math

import numpy as np
import pytest

from rlvr_jax.analysis.experiment.page import (
    render_markdown,
    render_page,
    write_results,
)
from rlvr_jax.analysis.experiment.pairs import measure_pairs, pair_panels, pair_table
from rlvr_jax.analysis.experiment.record import make_record, write_record
from rlvr_jax.analysis.experiment.results import read_results
from rlvr_jax.config import Arm, Config, Experiment
from rlvr_jax.report.charts import Panel, draw_panel
from tests.support.run_workdirs import contender

ARMS = ("none", "some", "more", "all")


def experiment(**changed):
    return Experiment(
        **{
            "question": "Does pay for luck cost what RL gains?",
            "reference": "ours",
            "arms": {name: Arm() for name in ARMS},
            "baseline": "none",
            "outcomes": ("pass@1", "completion length"),
            "seed_sd": 0.1,
            "seed_sd_source": "a guess",
            "seeds": (0, 1, 2),
            "pairs": (("completion length", "pass@1"),),
            **changed,
        }
    )


def metric(name, values):
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


def both(lengths, passes):
    """The two metrics of arms that have these rows of values, a column a seed."""
    return [
        metric("pass@k", dict(zip(ARMS, passes, strict=False))),
        metric("completion length", dict(zip(ARMS, lengths, strict=False))),
    ]


LENGTHS = [(10, 10, 10), (20, 20, 20), (30, 30, 30), (40, 40, 40)]
# Ranks of pass@1 by seed: the same order, the opposite, and 1 2 4 3 (rho 0.8).
PASSES = [(0.1, 0.9, 0.1), (0.2, 0.5, 0.2), (0.3, 0.4, 0.9), (0.9, 0.1, 0.3)]


def test_the_correlation_is_of_ranks_over_the_arms_of_a_seed():
    (found,) = measure_pairs(experiment(), both(LENGTHS, PASSES))
    assert found["outcomes"] == ["completion length", "pass@1"]
    assert found["seeds"] == pytest.approx({"0": 1.0, "1": -1.0, "2": 0.8})
    assert found["mean"] == pytest.approx(0.8 / 3)
    half = 4.3027 * np.std([1.0, -1.0, 0.8], ddof=1) / math.sqrt(3)
    assert half > 1 + 0.8 / 3  # so both ends are cut
    assert (found["low"], found["high"]) == (-1.0, 1.0)
    (row,) = pair_table([found]).rows
    assert row == [
        *("completion length", "pass@1", "+0.27 [-1.00, +1.00]"),
        "+1.00 -1.00 +0.80",
    ]


def test_an_interval_that_is_not_cut_is_students():
    passes = [(0.1, 0.1, 0.1), (0.2, 0.2, 0.3), (0.3, 0.9, 0.2), (0.9, 0.3, 0.9)]
    (found,) = measure_pairs(experiment(), both(LENGTHS, passes))
    values = [1.0, 0.8, 0.8]
    assert [*found["seeds"].values()] == pytest.approx(values)
    half = 4.3027 * np.std(values, ddof=1) / math.sqrt(3)
    assert found["low"] == pytest.approx(np.mean(values) - half, abs=1e-4)
    assert found["high"] == 1.0


def test_seeds_without_three_arms_or_without_a_difference_are_left_out():
    passes = [(0.1, 0.5, 0.1), (0.2, 0.5, None), (0.3, 0.5, None), (0.9, 0.5, 0.3)]
    (found,) = measure_pairs(experiment(), both(LENGTHS, passes))
    assert found["seeds"] == pytest.approx({"0": 1.0})
    assert (found["low"], found["high"]) == (None, None)
    assert pair_table([found]).rows[0][2] == "+1.00"
    assert measure_pairs(experiment(), both(LENGTHS[:2], PASSES[:2])) == []
    assert measure_pairs(experiment(), both(LENGTHS, PASSES)[:1]) == []
    assert measure_pairs(experiment(pairs=()), both(LENGTHS, PASSES)) == []


def test_seeds_that_agree_have_no_interval():
    """A correlation of five arms is 1 - 1e-16, one of four is 1."""
    arms = {**experiment().arms, "most": Arm()}
    lengths = [(x, x, x) for x in (10, 20, 30, 40, 50)]
    passes = [(x / 100, x / 100, x / 100) for x in (10, 20, 30, 40)]
    passes.append((0.5, 0.5, None))
    metrics = [
        metric(name, dict(zip(arms, values, strict=True)))
        for name, values in (("pass@k", passes), ("completion length", lengths))
    ]
    (found,) = measure_pairs(experiment(arms=arms), metrics)
    assert found["mean"] == pytest.approx(1.0)
    assert (found["low"], found["high"]) == (None, None)


def test_a_dot_is_a_run_and_a_color_an_arm():
    passes = [(0.1, 0.9, None), *PASSES[1:]]
    (panel,) = pair_panels(experiment(), both(LENGTHS, passes))
    assert (panel.xlabel, panel.title) == ("completion length", "pass@1, %")
    assert [line.label for line in panel.lines] == [*ARMS]
    assert len({line.color for line in panel.lines}) == len(ARMS)
    first, second, *_ = panel.lines
    assert (list(first.x), list(first.y)) == ([10, 10], [10, 90])
    assert (list(second.x), list(second.y)) == ([20, 20, 20], [20, 50, 20])
    assert all(line.dots_only for line in panel.lines)
    assert pair_panels(experiment(), both(LENGTHS, PASSES)[1:]) == []


def test_dots_are_not_joined():
    line = pair_panels(experiment(), both(LENGTHS, PASSES))[0].lines[0]
    joined = dataclasses.replace(line, dots_only=False)
    drawn = [
        draw_panel("dots", Panel(title="", lines=[each])) for each in (line, joined)
    ]
    strokes = [text.count(f"stroke: {line.color}; stroke-width: 1.8") for text in drawn]
    assert strokes == [0, 1]
    assert drawn[0].count("<use") > drawn[1].count("<use")


@pytest.fixture
def folder(tmp_path):
    """Two seeds of four arms: the more tokens a completion has, the fewer are right."""
    write_record(tmp_path, make_record(experiment(), Config(), is_reduced=False))
    for arm, right in zip(ARMS, (8, 6, 4, 2), strict=True):
        for seed in (0, 1, 2):
            letters = "r" * (right - seed % 2) + "w" * (8 - right + seed % 2)
            path = tmp_path / arm / f"seed_{seed}"
            contender(path, {"a": letters[:4], "b": letters[4:]}, seed=seed)
    return tmp_path


def test_an_experiments_files_have_its_pairs(folder):
    pairs = (("pass@1", "pass@1"),)
    record = make_record(experiment(pairs=pairs), Config(), is_reduced=False)
    write_record(folder, record)
    results = read_results(folder)
    (pair,) = results.comparison["pairs"]
    assert pair["seeds"] == pytest.approx({"0": 1.0, "1": 1.0, "2": 1.0})
    assert "| pass@1 | pass@1 | +1.00 | +1.00 +1.00 +1.00 |" in render_markdown(results)
    assert "Pairs of outcomes" in render_page(results)
    write_results(folder / "result", results)
    assert (folder / "result/pairs.png").read_bytes().startswith(b"\x89PNG")
    assert ">some</text>" in (folder / "result/pairs.svg").read_text()


def test_an_experiment_without_pairs_shows_none(folder):
    record = json.loads((folder / "experiment.json").read_text())
    del record["experiment"]["pairs"]  # as before there were any
    (folder / "experiment.json").write_text(json.dumps(record))
    results = read_results(folder)
    assert results.comparison["pairs"] == []
    assert "rank correlation" not in render_markdown(results)
    assert "Pairs of outcomes" not in render_page(results)
    write_results(folder / "result", results)
    assert not (folder / "result/pairs.png").exists()
