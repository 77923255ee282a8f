"""Every interval of docs/findings/ follows from the values by seed in docs/results/.

A page's interval is either written in a table that the page links, or it is Student's
interval of an arm, or of two arms' difference in pass@1 or in claimed features, over
the seeds of one table or of two, or of values by seed that stand next to it. Others are
listed here, with the reason.
"""

import itertools
import re

import numpy as np
import pytest
from scipy import stats

from job_jax.command import call_recipe
from rlvr_jax.config import Experiment
from tests.support.result_tables import DOCS, TABLES, read_rows, read_values

PAGES = sorted((DOCS / "findings").glob("*.md"))
_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_INTERVAL = re.compile(rf"\[({_NUMBER}), ({_NUMBER})\]")
_BY_SEED = re.compile(rf"(?<=\| )({_NUMBER}(?: {_NUMBER}){{2,}})(?= \|)")
_ROUNDING = 0.11  # of values by seed, which have one decimal
_COUNTS = ("features claimed",)
_PAIRED = ("pass@1 gained", "pass@1, ", *_COUNTS)

_FRESH = "by the band before RL, scored on other samples"
_COMPLETIONS = "counted in saved completions"
_METRICS = "other steps or metrics than the table's"
_NOT_KEPT = "runs that were not kept"
_SUBSET = "over some of the table's seeds or problems"
_ELSEWHERE = "in the table of the page that the sentence links"
_COMMAND = "printed by another command"
_TWO_OUTCOMES = "one outcome of the table minus another"
_TWO_DIFFERENCES = "one difference between arms minus another"
_OTHER_OUTCOME = "two arms in an outcome other than pass@1"
NOT_STORED = {
    "README": {
        _FRESH: "3.9, 12.0",
        _SUBSET: "-21.5, -8.1",
        _ELSEWHERE: "+0.24, +0.47; -0.18, +0.21; -0.15, +0.13; -0.23, +0.23; "
        "+0.87, +0.99",
        _TWO_DIFFERENCES: "7.1, 26.3; 10.9, 29.5",
    },
    "advantages": {
        _COMMAND: "-13.7, +9.7; -16.3, +10.9; -0.038, +0.011; -19.1, +7.7; "
        "-15.6, +7.8; "
        "-0.043, +0.036; -13.3, +3.4; -9.1, +11.8; -0.010, +0.046; -24.9, +0.4;"
        " -28.0, -1.8; -0.043, +0.068; -18.6, +9.8; -31.3, +12.8; -0.069, "
        "+0.030; -28.8, +4.6; -48.8, +12.4; -0.050, +0.052; -12.8, +6.6; -10.5,"
        " +12.8; +0.010, +0.038; -31.5, -4.6; -55.3, -24.6; -0.133, -0.011; "
        "-0.3, +17.4; -6.3, +12.9; -0.079, -0.013",
    },
    "backward_medium": {
        _NOT_KEPT: "-3.9, +0.1; -2.8, +4.0; -1.3, +7.2; +0.1, +13.0; -2.5, +7.4; "
        "-1.1, +10.7; +0.5, +16.3"
    },
    "composition": {
        _COMPLETIONS: "-5.6, +8.0; -0.5, +4.0; -1.3, +3.0; -4.7, +3.9",
        _METRICS: "-2.1, +6.8; -50.0, -31.4",
        _NOT_KEPT: "-2.5, +3.9; -1.8, +0.2",
        _OTHER_OUTCOME: "0.5, 12.3",
    },
    "confidence": {_METRICS: "-2.0, +0.3"},
    "curricula": {_SUBSET: "-0.8, +9.0"},
    "features_by_band": {_COMMAND: "-2.6, +8.6"},
    "inverted_u": {
        _ELSEWHERE: "-29.9, -3.1; -25.8, +5.0; 3.6, 23.5",
        _FRESH: "+7.5, +19.8; -1.9, +13.7; -50.9, -8.7; -51.0, -17.7; -0.7, +3.9; "
        "-3.8, +8.6; -2.3, +5.7; -0.9, +18.3; -1.9, +8.4",
        _METRICS: "4.7, 14.5; -5.8, +0.4; -0.2, 2.4",
        _COMPLETIONS: "-3.3, +30.4",
        _NOT_KEPT: "-7.0, -0.7; -26.9, -14.2; -0.5, +12.4; -21.7, -7.5; -1.3, +2.2; "
        "+8.8, +26.8; +17, +43; 2.9, 8.0",
    },
    "lasting_harm": {_TWO_DIFFERENCES: "3.8, 8.1"},
    "luck": {
        _ELSEWHERE: "-1.4, +4.9; 0.8, 6.7",
        _COMMAND: "9.1, 13.6; 2.3, 5.4; 1.6, 2.7; 0.2, 1.9; 0.3, 1.7; 0.1, 2.5; "
        "0.5, 0.7",
        _NOT_KEPT: "-29.9, -3.1",
        _TWO_OUTCOMES: "1.4, 7.9",
    },
    "one_change": {
        _FRESH: "3.9, 12.0; 1.2, 11.2; -6.3, +34.6",
        _TWO_DIFFERENCES: "7.1, 26.3; 10.9, 29.5",
    },
    "random_reward": {_SUBSET: "21.1, 42.7"},
    "rfgo": {
        _SUBSET: "-2.8, +2.8; -3.9, +2.2; -4.5, +3.1; -3.9, +4.3; -3.8, +7.9; "
        "-3.7, +6.4; 0.1, 3.0"
    },
    "rfgo_features": {_COMMAND: "-1.4, +1.4; -1.0, +1.0"},
    "rfgo_weights": {
        _COMMAND: "-0.12, +0.34; -0.008, +0.004; 0.92, 1.37; 1.40, 2.08; "
        "+0.38, +1.05; 0.97, 1.08; 0.069, 0.233; -0.005, +0.013; 0.070, 0.228; "
        "-0.011, +0.014; 0.072, 0.216; -0.021, +0.007; -0.021, +0.015; 0.058, 0.246; "
        "-0.012, +0.015; -0.013, +0.023; 0.064, 0.231; -0.023, -0.002; 0.001, 0.012",
    },
    "selection": {
        _NOT_KEPT: "26.7, 49.3",
        _COMPLETIONS: "-12.1, -0.5; -34.0, -7.3",
        _TWO_OUTCOMES: "7.4, 49.2; -5.0, +42.0",
    },
    "single_problem": {
        _SUBSET: "-21.5, -8.1; -23.9, -2.8; -30.0, -9.4; +0.8, +9.9; -2.9, 11.8; "
        "8.6, 25.9; 10.1, 15.4; 5.5, 29.1; -12.8, +5.1; -1.4, 16.3; -10.9, +0.5",
        _METRICS: "-2.4, +9.9; -0.8, +68.1; +79.1, +89.3; +35, +100",
    },
}


def _read_values_by_arm(table):
    """Returns {outcome: {arm: values by seed}}, in percent."""
    found = {}
    for row in read_rows(table):
        if row["by seed"]:
            scale = 1 if row[""].endswith("%") else 100
            for arm in row["arm"].split(", "):
                found.setdefault(row[""], {})[arm] = scale * read_values(row)
    return found


def _pool(one, other):
    """Returns the values that two tables have of the same outcome and arm, in a row."""
    return {
        outcome: {
            arm: np.concatenate([values, other[outcome][arm]])
            for arm, values in arms.items()
            if arm in other[outcome]
        }
        for outcome, arms in one.items()
        if outcome in other
    }


def _student(values):
    """Returns Student's interval of the known values, [] of fewer than three."""
    known = values[~np.isnan(values)]
    if len(known) < 3:
        return []
    width = stats.t.ppf(0.975, len(known) - 1) * known.std(ddof=1) / len(known) ** 0.5
    return [(known.mean() - width, known.mean() + width)]


def _derive(values_by_arm):
    """Returns the intervals of each arm and of each pair of arms."""
    found = []
    for outcome, arms in values_by_arm.items():
        for values in arms.values():
            for low, high in _student(values):
                found += [(low, high), (max(0, low), min(100, high))]
                found += [] if outcome.endswith("%") else [(low / 100, high / 100)]
        if outcome.startswith(_PAIRED):
            # `_read_values_by_arm` makes percent of all values; counts are none.
            scale = 100 if outcome.startswith(_COUNTS) else 1
            for one, other in itertools.combinations(arms.values(), 2):
                if len(one) == len(other):
                    found += _student((one - other) / scale)
    return found


def _written(table):
    """Returns the intervals that a table states, also as percent."""
    bounds = [(float(a), float(b)) for a, b in _INTERVAL.findall(table.read_text())]
    return bounds + [(100 * low, 100 * high) for low, high in bounds]


def _candidates(page):
    """Returns all intervals [N, 2] that a page may state, with their negatives."""
    text = page.read_text()
    tables = [table for table in TABLES if f"results/{table.name}" in text]
    by_arm = [_read_values_by_arm(table) for table in tables]
    pooled = itertools.starmap(_pool, itertools.combinations(by_arm, 2))
    found = [interval for table in tables for interval in _written(table)]
    exact = len(found)
    found += [interval for each in (*by_arm, *pooled) for interval in _derive(each)]
    tolerances = [1e-6] * exact + [_ROUNDING] * (len(found) - exact)
    for cell in _BY_SEED.findall(text):
        decimals = len(cell.split()[-1].partition(".")[2])
        found += _student(np.array(cell.split(), float))
        tolerances += [1.1 * 10.0**-decimals] * (len(found) - len(tolerances))
    bounds, tolerance = np.array(found).reshape(-1, 2), np.array(tolerances)
    return np.concatenate([bounds, -bounds[:, ::-1]]), np.tile(tolerance, 2)


def _follows(interval, candidates):
    bounds, tolerance = candidates
    return bool((np.abs(bounds - interval).max(axis=1) <= tolerance).any())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_interval_follows_from_stored_values_or_is_known_not_to(page):
    candidates = _candidates(page)
    stated = _INTERVAL.findall(page.read_text())
    missing = {
        f"{low}, {high}"
        for low, high in stated
        if not _follows((float(low), float(high)), candidates)
    }
    reasons = NOT_STORED.get(page.stem, {}).values()
    listed = {each for reason in reasons for each in reason.split("; ")}
    assert missing <= listed
    assert listed <= {f"{low}, {high}" for low, high in stated}


def test_altered_intervals_are_noticed():
    """Of intervals moved by 0.5 to 3 points, some nine in ten follow from nothing."""
    random, noticed = np.random.default_rng(0), []
    for page in PAGES:
        candidates = _candidates(page)
        for interval in _INTERVAL.findall(page.read_text()):
            moved = random.choice([-1, 1], 2) * random.uniform(0.5, 3, 2)
            noticed.append(not _follows(np.float64(interval) + moved, candidates))
    assert len(noticed) > 300
    assert np.mean(noticed) > 0.87


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_command_of_a_page_plans_the_arms_of_its_tables(page):
    """Every arm that it plans is in a table of the experiment, so none is in vain."""
    commands = re.findall(
        r"^    bash launch/reproduce\.sh (.+)$", page.read_text(), re.MULTILINE
    )
    for command in commands:
        names = [word for word in command.split() if not word.startswith("--")]
        only = re.findall(r"--arms=(\S+)", command)
        for name in names:
            experiment = call_recipe(
                DOCS.parent / "configs/paper" / f"{name}.py",
                "get_experiment",
                Experiment,
            )
            planned = {*only[0].split(",")} if only else {*experiment.arms}
            stored = {
                arm
                for table in TABLES
                if table.stem.startswith(name)
                for row in read_rows(table)
                for arm in row["arm"].split(", ")
            }
            assert planned <= stored
