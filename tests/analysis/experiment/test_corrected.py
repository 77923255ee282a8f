"""Differences of an experiment's arms, corrected for their number."""

import math

import pytest

from rlvr_jax.analysis.experiment.corrected import (
    correct_differences,
    corrected_table,
)
from rlvr_jax.analysis.experiment.page import render_markdown, render_page
from rlvr_jax.analysis.experiment.record import make_record, write_record
from rlvr_jax.analysis.experiment.results import read_results
from rlvr_jax.config import Arm, Config, Experiment
from tests.support.run_workdirs import contender


def comparison(differences):
    """A comparison of one outcome, from each arm's differences by seed."""
    return {
        "baseline": "grpo",
        "metrics": [
            {
                "name": "pass@k",
                "grouping": "all",
                "group": "",
                "k": 1,
                "differences": {
                    arm: values
                    and {
                        "mean": sum(values) / len(values),
                        "low": None,
                        "high": None,
                        "seeds": {str(s): y for s, y in enumerate(values)},
                    }
                    for arm, values in differences.items()
                },
            }
        ],
    }


def test_each_arms_p_is_paired_and_the_smallest_counts_as_often_as_there_are_arms():
    """T is 2 sqrt 3 and sqrt 3 / 2; the two-sided tail is 1 - t / sqrt(t^2 + 2)."""
    found = correct_differences(
        comparison({"rloo": [0.01, 0.02, 0.03], "none": [-0.01, 0.0, 0.04]}),
        ["pass@1"],
    )
    rloo, none = found
    assert rloo["p"] == pytest.approx(1 - math.sqrt(12 / 14))
    assert rloo["holm"] == pytest.approx(2 * rloo["p"])
    # Mean 0.01 and variance 0.0007: t^2 = 3 / 7.
    assert none["p"] == pytest.approx(1 - math.sqrt((3 / 7) / (3 / 7 + 2)))
    assert none["holm"] == none["p"]


def test_an_arm_without_pairs_or_spread_does_not_count():
    given = {
        "rloo": [0.01, 0.02, 0.03],
        "two_seeds": [0.1, 0.2],
        "same": [0.0, 0.0, 0.0],
        "unknown": None,
    }
    (rloo,) = correct_differences(comparison(given), ["pass@1", "pass@99"])
    assert rloo["holm"] == rloo["p"]
    assert correct_differences(comparison(given), []) == []


def test_the_table_shows_both_p_values():
    found = comparison({"rloo": [0.01, 0.02, 0.03], "none": [-0.01, 0.0, 0.04]})
    found["corrected"] = correct_differences(found, ["pass@1"])
    table = corrected_table(found)
    assert table.head == ("", "arm", "minus grpo", "p", "Holm")
    assert table.rows[0] == ["pass@1, %", "rloo", "+2.0", "0.074", "0.148"]


@pytest.mark.parametrize("corrected", [("pass@1",), ()])
def test_an_experiments_files_have_them_if_it_names_outcomes(tmp_path, corrected):
    given = Experiment(
        question="Which rule?",
        reference="ours",
        arms={name: Arm() for name in ("grpo", "rloo")},
        baseline="grpo",
        outcomes=("pass@1",),
        corrected=corrected,
        seed_sd=0.1,
        seed_sd_source="a guess",
        seeds=(0, 1, 2),
    )
    write_record(tmp_path, make_record(given, Config(), is_reduced=False))
    for name, rights in {"grpo": (2, 4, 3), "rloo": (1, 2, 2)}.items():
        for seed, right in enumerate(rights):
            letters = "r" * right + "w" * (8 - right)
            path = tmp_path / name / f"seed_{seed}"
            contender(path, {"a": letters[:4], "b": letters[4:]}, seed=seed)
    results = read_results(tmp_path)
    # -1/8, -2/8, -1/8: t is -4, and its tail 1 - sqrt(16 / 18).
    row = "| pass@1, % | rloo | -16.7 [-34.6, +1.3] | 0.057 | 0.057 |"
    assert (row in render_markdown(results)) == bool(corrected)
    assert ("Corrected differences" in render_page(results)) == bool(corrected)
