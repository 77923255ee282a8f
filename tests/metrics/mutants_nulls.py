"""Mutants of intervals, pairs and votes in rlvr_jax/metrics/."""

from tests.mutants.mutant import rows

_METRICS = ("tests/metrics/test_coverage.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/metrics/crossing.py",
        ("tests/metrics/test_crossing.py",),
        reads_problems_by_position=(
            "np.array([counts[name] for name in names]).T",
            "np.array([*counts.values()]).T",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/memorization.py",
        ("tests/metrics/test_memorization_pairs.py",),
        ratio_turned_round=(
            "t_interval(fresh_N - seen_N)",
            "t_interval(seen_N - fresh_N)",
        ),
        pairs_by_surprise=(
            "t_interval(fresh_N - seen_N)",
            "t_interval(np.sort(fresh_N) - np.sort(seen_N))",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/bootstrap.py",
        _METRICS,
        intervals_of_a_half=("CONFIDENCE = 0.95", "CONFIDENCE = 0.5"),
        intervals_of_nearly_all=("CONFIDENCE = 0.95", "CONFIDENCE = 0.999"),
        differences_of_a_half=(
            "np.quantile(difference_R, [0.025, 0.975])",
            "np.quantile(difference_R, [0.25, 0.75])",
        ),
        differences_of_nearly_all=(
            "np.quantile(difference_R, [0.025, 0.975])",
            "np.quantile(difference_R, [0.0005, 0.9995])",
        ),
        a_mean_for_one_more_draw=("* (1 + 1 / len(draw_R))", "* (1 / len(draw_R))"),
        ends_of_one_side_alone=(
            "low_R - other_high_R, high_R - other_low_R",
            "low_R - other_low_R.mean(), high_R - other_high_R.mean()",
        ),
        one_set_of_draws_for_each_arm=(
            "other.resampled(counts_RN)",
            "other.resampled(counts_RN[::-1])",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/crossing.py",
        _METRICS,
        interval_of_a_half=(
            "tail = (1 - CONFIDENCE) / 2",
            "tail = (1 - CONFIDENCE) * 5",
        ),
        interval_of_nearly_all=(
            "tail = (1 - CONFIDENCE) / 2",
            "tail = (1 - CONFIDENCE) / 100",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/statistics.py",
        ("tests/metrics/test_majority.py",),
        last_verdict_of_an_answer=(
            "dict(reversed(list(zip(answers, correct, strict=True))))",
            "dict(zip(answers, correct, strict=True))",
        ),
        a_tie_is_won=(
            "np.sum(ways[:, drawn] / np.arange(1, len(ways) + 1))",
            "np.sum(ways[:, drawn])",
        ),
        a_tie_is_lost=(
            "np.sum(ways[:, drawn] / np.arange(1, len(ways) + 1))",
            "np.sum(ways[:1, drawn])",
        ),
        the_silent_vote=("sizes.pop(None, 0)", "0 * sizes.get(None, 0)"),
        unverified_is_right=(
            'status == "correct" for status in self.statuses',
            'status != "incorrect" for status in self.statuses',
        ),
    ),
]
