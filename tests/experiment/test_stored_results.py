"""Recomputes the tables of docs/results/ from their columns of values by seed.

This reads the tables, not the code that wrote them. It checks each mean and its
Student's interval over seeds, each difference paired by seed, and the policy before RL.
That policy differs by seed and is the same in every arm that starts from it.
"""

import re

import numpy as np
import pytest
from scipy import stats

from tests.support.result_tables import TABLES, read_rows, read_values

_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_ESTIMATE = re.compile(rf"({_NUMBER})(?: \[({_NUMBER}), ({_NUMBER})\])?(?: .*)?")


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
    finals = [
        tuple(read_values(row)) for row in read_rows(table) if row[""] == "pass@1, %"
    ]
    assert finals
    for values in finals:
        assert len(set(values)) > 1
