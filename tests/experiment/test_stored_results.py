"""Recomputes the tables of docs/results/ from their columns of values by seed.

This reads the tables, not the code that wrote them. It checks each mean and its
Student's interval over seeds, each difference paired by seed, and the policy before RL.
That policy differs by seed and is the same in every arm that starts from it.
"""

import json
import re

import numpy as np
import pytest
from scipy import stats

from tests.support.result_tables import (
    DOCS,
    TABLES,
    read_rows,
    read_tables,
    read_values,
)

_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_ESTIMATE = re.compile(rf"({_NUMBER})(?: \[({_NUMBER}), ({_NUMBER})\])?(?: .*)?")

_FINAL = ("pass@1, %", "pass@1 gained, %")
_RECORDS = sorted((DOCS / "results").glob("*.json"))


def _check(values, text, *, bounds):
    """Asserts that a mean and its interval fit the values, up to rounding.

    Each written number and each value is off by at most half its last digit. Returns
    the number of compared cells.
    """
    mean, low, high = _ESTIMATE.fullmatch(text).groups()
    digit = 10.0 ** -len(mean.partition(".")[2])
    assert abs(values.mean() - float(mean)) <= 1.01 * digit, (text, values)
    if low is None:
        return 1
    quantile = stats.t.ppf(0.975, len(values) - 1)
    width = quantile * values.std(ddof=1) / np.sqrt(len(values))
    expected = np.clip([values.mean() - width, values.mean() + width], *bounds)
    np.testing.assert_allclose(
        [float(low), float(high)],
        expected,
        atol=(1.01 + quantile) * digit,
        rtol=0,
        err_msg=f"{text} of {values}",
    )
    return 3


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_each_estimate_is_that_of_its_values_by_seed(table):
    rows, count = read_rows(table), 0
    (minus,) = [name for name in rows[0] if name.startswith("minus ")]
    base = {
        row[""]: read_values(row)
        for row in rows
        if minus.removeprefix("minus ") in row["arm"].split(", ")
    }
    for row in rows:
        values, is_share = read_values(row), row[""].endswith("%")
        known = values[~np.isnan(values)]
        if len(known) < 2:
            continue
        bounds = (0, 100) if is_share and "gained" not in row[""] else (-100, 100)
        if not is_share:
            bounds = (-np.inf, np.inf)
        count += _check(known, row["mean [95 %]"], bounds=bounds)
        if row[minus]:
            pairs = values - base[row[""]]
            width = 200 if "gained" in row[""] else 100
            bounds = (-width, width) if is_share else bounds
            count += _check(pairs[~np.isnan(pairs)], row[minus], bounds=bounds)
    assert count > 20


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.stem)
def test_each_seed_has_its_own_start_shared_by_its_arms(table):
    """Equal scores to the last digit at all seeds would mean one shared start."""
    starts = {}
    for row in read_rows(table):
        if "before RL" in row[""]:
            starts.setdefault(row[""], []).append(read_values(row).tolist())
    for name, by_arm in starts.items():
        for values in by_arm:
            assert len(set(values)) >= len(values) - 1, (name, values)
    finals = [tuple(read_values(row)) for row in read_rows(table) if row[""] in _FINAL]
    assert finals
    for values in finals:
        assert len(set(values)) > 1


def _gains(record, arm):
    """Returns the gain in pass@1 in percent, [seeds, problems]."""
    runs = record["correct"][arm].values()
    more = np.array([np.subtract(run["after"], run["before"]) for run in runs])
    return 100 * more / record["samples"]


@pytest.mark.parametrize("path", _RECORDS, ids=lambda path: path.stem)
def test_right_answers_by_problem_give_the_gains_of_the_table(path):
    record = json.loads(path.read_text())
    rows = [
        row
        for row in read_rows(path.with_suffix(".md"))
        if row[""] == "pass@1 gained, %"
    ]
    assert {row["arm"] for row in rows} == set(record["correct"])
    for row in rows:
        gained = _gains(record, row["arm"])
        assert gained.shape[1] == len(record["problems"])
        np.testing.assert_allclose(gained.mean(axis=1), read_values(row), atol=0.051)


def test_the_slopes_of_luck_follow_from_right_answers_by_problem():
    """Fitted by `np.polyfit`; SciPy tests their mean."""
    path = DOCS / "results" / "luck_dose.json"
    record = json.loads(path.read_text())
    _, slopes, *_ = read_tables(path.with_suffix(".md"))
    dose_of = {"0": 0.0, "25": 0.25, "50": 0.5, "100": 1.0}
    found = {}
    for kind in ("wrong", "luck"):
        arms = ["luck_0", *(f"{kind}_{dose}" for dose in [*dose_of][1:])]
        gained = np.array([_gains(record, arm).mean(axis=1) for arm in arms])
        found[kind] = np.polyfit([*dose_of.values()], gained, deg=1)[0]
    found["luck minus wrong"] = found["luck"] - found["wrong"]
    for kind, by_seed in found.items():
        (row,) = [
            row
            for row in slopes
            if (row[""], row["slope"]) == ("pass@1 gained, %", kind)
        ]
        np.testing.assert_allclose(by_seed, read_values(row), atol=0.051)
        _check(by_seed, row["per dose [95 %]"], bounds=(-100, 100))
        p_value = stats.ttest_1samp(by_seed, 0).pvalue
        assert float(row["p"]) == pytest.approx(p_value, abs=6e-4)
