"""Pairs are formed by name, by seed or by problem id, and never by position.

Each test has the same data in another order, or with something missing. The expected
numbers are SciPy's, from pairs that were formed by hand.
"""

import itertools
import json
import pathlib

import pytest
from scipy import stats

from rlvr_jax.analysis.compare.arms import compare_arms, compare_runs, read_arms
from rlvr_jax.analysis.compare.figure import comparison_panels
from rlvr_jax.analysis.compare.text import comparison_table
from tests.support.run_workdirs import BEFORE, contender

# Correct answers out of 8, by seed. Each seed of the other arm has one or two more than
# the same seed of the baseline. Seeds differ by far more.
PLAIN = {0: 1, 1: 6, 2: 3, 3: 2}
OTHER = {0: 2, 1: 7, 2: 5, 3: 3}


def metric(comparison, name="pass@k", k=1):
    """Returns the one metric of all problems with this name."""
    (one,) = (
        each
        for each in comparison["metrics"]
        if (each["name"], each["grouping"], each["k"]) == (name, "all", k)
    )
    return one


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Returns the workdirs of both arms by seed."""
    folder = tmp_path_factory.mktemp("runs")
    arms = {}
    for name, rights, changed in (
        ("plain", PLAIN, {}),
        ("other", OTHER, {"num_epochs": 2}),
    ):
        arms[name] = {}
        for seed, right in rights.items():
            letters = "r" * right + "w" * (8 - right)
            path = folder / f"{name}{seed}"
            answers = {"a": letters[:4], "b": letters[4:]}
            arms[name][seed] = contender(path, answers, seed=seed, **changed)
    return arms


def paired(seeds):
    """Returns the mean difference of these seeds, and SciPy's paired 95 % interval."""
    ours, theirs = ([side[seed] / 8 for seed in seeds] for side in (OTHER, PLAIN))
    found = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    mean = sum(a - b for a, b in zip(ours, theirs, strict=True)) / len(seeds)
    return {"mean": mean, "low": found.low, "high": found.high}


def difference(comparison):
    """Returns how the only other arm differs from the baseline in pass@1."""
    (found,) = metric(comparison)["differences"].values()
    return found


def test_seeds_are_paired_in_any_order_of_the_runs(runs):
    """Six orders of the other arm's runs, and the baseline's turned around."""
    expected = paired((0, 1, 2)) | {"method": "seed"}
    assert expected["high"] - expected["low"] < 0.4  # by position it is 3 times as wide
    for order in itertools.permutations((0, 1, 2)):
        others = [runs["other"][seed] for seed in order]
        for base in ((0, 1, 2), (2, 1, 0)):
            arms = read_arms([*(runs["plain"][seed] for seed in base), *others])
            comparison = compare_arms(arms)
            found = {**difference(comparison)}
            assert found.pop("seeds") == {"0": 1 / 8, "1": 1 / 8, "2": 2 / 8}
            assert found == pytest.approx(expected)
            forest, *_ = comparison_panels(comparison, arms)
            (row,) = forest.rows
            assert sorted(row.points) == pytest.approx([1 / 8, 1 / 8, 2 / 8])
            # A seed's column shows the run of that seed.
            (label,) = metric(comparison)["differences"]
            table = comparison_table(comparison)
            at = table.head.index(label)
            assert table.head[at + 1 : at + 4] == [f"seed {seed}" for seed in order]
            (cells,) = (row for row in table.rows if row[0] == "pass@1, %")
            shown = [f"{100 * OTHER[seed] / 8:.1f}" for seed in order]
            assert cells[at + 1 : at + 4] == shown


@pytest.mark.parametrize("lacking", ["plain", "other"])
def test_a_seed_without_a_score_does_not_change_the_other_pairs(runs, lacking):
    """The first seed has not ended in one arm: the others are still pairs."""
    summary = pathlib.Path(runs[lacking][0], "summary.json")
    written = summary.read_text()
    summary.write_text(json.dumps({"stages": {}}))
    paths = [path for arm in runs.values() for path in arm.values()]
    found = difference(compare_runs(paths))
    summary.write_text(written)
    by_seed = {seed: found["seeds"][str(seed)] for seed in (1, 2, 3)}
    assert found.pop("seeds").keys() == {"1", "2", "3"}
    assert by_seed == {1: 1 / 8, 2: 2 / 8, 3: 1 / 8}
    assert found == pytest.approx(paired((1, 2, 3)) | {"method": "seed"})


@pytest.mark.parametrize("lacking", ["plain", "other"])
def test_arms_are_unpaired_if_one_lacks_a_seed(runs, lacking):
    """Three of four seeds are shared: all seven runs count, unpaired, by Welch."""
    every = (0, 1, 2, 3)
    kept = {"plain": every, "other": every, lacking: (1, 2, 3)}
    comparison = compare_runs(
        [runs[name][seed] for name in ("plain", "other") for seed in kept[name]]
    )
    found = difference(comparison)
    ours, theirs = (
        [side[seed] / 8 for seed in kept[name]]
        for name, side in (("other", OTHER), ("plain", PLAIN))
    )
    welch = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert found == {
        "mean": pytest.approx(sum(ours) / len(ours) - sum(theirs) / len(theirs)),
        "low": pytest.approx(max(-1, welch.low)),
        "high": pytest.approx(min(1, welch.high)),
        "method": "welch",
    }
    assert "have different seeds" in comparison["notes"][-1]


ANSWERS = {"a": "rrrr", "b": "rrww", "c": "rwww", "d": "wwww"}
BETTER = {"a": "rrrr", "b": "rrrw", "c": "rrww", "d": "rwww"}


def turned(answers):
    return dict(reversed(answers.items()))


def test_problems_are_paired_in_any_order(tmp_path):
    """Each problem gains 0 or 1/4; by position the gains lie between -3/4 and 1."""
    other = contender(tmp_path / "other", BETTER, num_epochs=2)
    same, again = (
        compare_runs([contender(tmp_path / name, answers), other])
        for name, answers in (("same", ANSWERS), ("turned", turned(ANSWERS)))
    )
    for k in (1, 4):
        found = metric(same, k=k)["differences"]["other"]
        assert found["method"] == "problem"
        assert metric(again, k=k)["differences"]["other"] == found
    gain = metric(same)["differences"]["other"]
    assert gain["mean"] == pytest.approx(3 / 16)
    # No problem is worse. A fifth, never seen, weighs at most 1 - 0.025^(1/4) = 0.602.
    assert gain["low"] > -0.602


def test_gains_are_paired_in_any_order_of_the_problems_before_rl(tmp_path):
    """Problems were answered in another order before RL than after it."""
    after = {name: BETTER[name] for name in BEFORE}
    other = contender(tmp_path / "other", after, num_epochs=2)
    found = [
        compare_runs([contender(tmp_path / name, after, before=before), other])
        for name, before in (("same", ANSWERS), ("turned", turned(ANSWERS)))
    ]
    for name, k in (
        ("pass@k gained", 1),
        ("pass@k gained", 4),
        ("lenient accuracy gained", None),
        ("pass@k before RL", 1),
    ):
        same, again = (metric(each, name, k)["values"] for each in found)
        assert again["turned"] == same["same"]
    gain = metric(found[0], "pass@k gained")["values"]["same"]
    assert gain["mean"] == pytest.approx(3 / 16)
    assert gain["low"] > -0.602  # by position two problems lose, one of them 3/4
    assert [each["crossings"][0]["crossing"] for each in found] == [
        found[0]["crossings"][0]["crossing"]
    ] * 2
