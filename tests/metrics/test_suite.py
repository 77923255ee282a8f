"""Scores of a suite, checked against values counted by hand; averages and tables."""

import numpy as np
import pytest

from rlvr_jax.metrics.bootstrap import average_interval, mean_interval
from rlvr_jax.metrics.suite import (
    format_table,
    results_from_rows,
    summarize_average,
    summarize_benchmark,
)

STATUS = {"r": "correct", "w": "incorrect", "u": "unverified"}
OPTIONS = {"k": (1, 2, 4), "resamples": 200, "seed": 0}


def rows(level=0, **letters):
    """Returns lines of rollouts/ of problems a="rrww"; equal letters, equal answers."""
    return [
        {
            "id": name,
            "level": level,
            "type": "",
            "verdict": STATUS[letter],
            "answer": letter,
            "length": 10,
            "finished": letter != "u",
        }
        for name, each in letters.items()
        for letter in each
    ]


def results(**letters):
    return results_from_rows(rows(**letters))


def test_a_benchmarks_scores_are_those_counted_by_hand():
    scores = summarize_benchmark(results(a="rrrw", b="rwww", c="wwwu"), **OPTIONS)
    # mean@4: 3/4, 1/4, 0. pass@2: 1, 1/2, 0. pass@4: 1, 1, 0.
    assert scores["mean@4"]["mean"] == pytest.approx((3 + 1 + 0) / 12)
    assert scores["mean@4"] == scores["pass@k"]["1"]
    assert scores["pass@k"]["2"]["mean"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert scores["pass@k"]["4"]["mean"] == pytest.approx(2 / 3)
    assert scores["maj@k"]["4"]["mean"] == pytest.approx(1 / 3)
    assert (scores["problems"], scores["unverified"]) == (3, pytest.approx(1 / 12))
    assert scores["truncated"] == pytest.approx(1 / 12)
    assert "by_level" not in scores  # there is only one level


def test_levels_are_reported_if_there_are_several():
    found = results_from_rows([*rows(level=1, a="rr"), *rows(level=2, b="ww")])
    scores = summarize_benchmark(found, k=(1, 2), resamples=20, seed=0)
    assert scores["by_level"]["1"]["pass@k"]["1"]["mean"] == 1
    assert scores["by_level"]["2"]["pass@k"]["1"]["mean"] == 0


def test_mean_at_n_is_there_though_k_leaves_one_out():
    scores = summarize_benchmark(results(a="rw", b="ww"), k=(2,), resamples=9, seed=0)
    assert scores["mean@2"]["mean"] == 0.25
    assert [*scores["pass@k"]] == ["2"]


def test_in_the_average_each_benchmark_has_the_same_weight():
    small, large = results(a="rrrr", b="wwww"), results(**dict.fromkeys("cdef", "wwww"))
    average = summarize_average([small, large], **OPTIONS)
    assert average["benchmarks"] == 2
    assert average["mean@4"]["mean"] == pytest.approx((1 / 2 + 0) / 2)  # not 1 of 6
    assert average["pass@k"]["2"]["mean"] == pytest.approx(0.25)
    assert average["maj@k"]["1"]["mean"] == pytest.approx(0.25)


def test_the_average_of_one_group_has_its_mean_interval():
    values = np.array([0.0, 0.25, 1.0, 0.5, 0.75, 0.0])
    alone = average_interval([values], resamples=4000, seed=0)
    assert alone == pytest.approx(mean_interval(values, resamples=4000, seed=0))


def test_the_average_of_two_like_groups_is_surer_by_the_root_of_two():
    values = np.linspace(0, 1, 400)
    one = average_interval([values], resamples=4000, seed=0)
    two = average_interval([values, values], resamples=4000, seed=0)
    assert two.value == pytest.approx(one.value)
    ratio = (one.high - one.low) / (two.high - two.low)
    assert ratio == pytest.approx(2**0.5, rel=0.05)


def test_the_average_covers_the_truth_about_as_often_as_it_says():
    """Two groups of 30 problems, with rates 0.2 and 0.9: about 95 % are covered."""
    rng, covered = np.random.default_rng(0), 0
    for _ in range(300):
        groups = [rng.random(30) < rate for rate in (0.2, 0.9)]
        interval = average_interval(groups, resamples=200, seed=rng.integers(2**31))
        covered += interval.low <= 0.55 <= interval.high
    assert 0.93 <= covered / 300 <= 1.0


def test_an_average_with_a_single_problem_in_it_has_no_interval():
    interval = average_interval([[0.5, 0.25], [1.0]], resamples=20, seed=0)
    assert interval.value == pytest.approx(0.6875)
    assert np.isnan(interval.low)
    assert np.isnan(interval.high)
    with pytest.raises(ValueError, match="no groups"):
        average_interval([], resamples=20, seed=0)
    with pytest.raises(ValueError, match="leave the bounds"):
        average_interval([[0.5, 2.0]], resamples=20, seed=0)


def summary(num_samples=4, average=True):
    scores = {
        f"mean@{num_samples}": {"mean": 0.412, "low": 0.3704, "high": 0.4549},
        "pass@k": {"1": {"mean": 0.412}, str(num_samples): {"mean": 0.75}},
        "maj@k": {"1": {"mean": 0.412}, str(num_samples): {"mean": 0.5}},
    }
    single = scores | {f"mean@{num_samples}": {"mean": 1.0, "low": None, "high": None}}
    return {
        "num_samples": num_samples,
        "k": sorted({1, num_samples}),
        "benchmarks": {
            "math500": {"title": "MATH-500", "count": "498 of 500", **scores},
            "mine": {"title": "A_1 & B", "count": "1", **single},
        },
        **({"average": {"benchmarks": 2, **scores}} if average else {}),
    }


def test_a_table_of_markdown():
    assert format_table(summary(), "md").splitlines() == [
        "| Benchmark | Problems | mean@4 | 95 % interval | pass@4 | maj@4 |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| MATH-500 | 498 of 500 | 41.2 | 37.0\u201345.5 | 75.0 | 50.0 |",
        "| A_1 & B | 1 | 100.0 |  | 75.0 | 50.0 |",
        "| Average |  | 41.2 | 37.0\u201345.5 | 75.0 | 50.0 |",
    ]


def test_a_table_of_latex():
    assert format_table(summary(), "tex").splitlines()[1:] == [
        r"\begin{tabular}{lrrrrr}",
        r"\toprule",
        r"Benchmark & Problems & mean@4 & 95 \% interval & pass@4 & maj@4 \\",
        r"\midrule",
        r"MATH-500 & 498 of 500 & 41.2 & 37.0--45.5 & 75.0 & 50.0 \\",
        r"A\_1 \& B & 1 & 100.0 &  & 75.0 & 50.0 \\",
        r"\midrule",
        r"Average &  & 41.2 & 37.0--45.5 & 75.0 & 50.0 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]


def test_one_sample_has_only_a_mean():
    table = format_table(summary(num_samples=1, average=False), "md")
    assert table.splitlines()[0] == "| Benchmark | Problems | mean@1 | 95 % interval |"
    assert len(table.splitlines()) == 4
