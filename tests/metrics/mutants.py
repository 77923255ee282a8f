"""One-line mutants of rlvr_jax/metrics/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/metrics/rollouts.py",
        ("tests/metrics/test_rollouts.py",),
        rewards_of_what_nobody_judged=(
            "rewards_PG[np.asarray(judged_PG.any(axis=1))]",
            "rewards_PG",
        ),
        rewards_of_whole_groups_alone=(
            "judged_PG.any(axis=1)",
            "judged_PG.all(axis=1)",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/scores.py",
        ("tests/test_evaluate.py",),
        a_missing_strategy_is_left_out=(
            'one.strategy or "none"',
            'one.strategy or "f"',
        ),
    ),
    *rows(
        "rlvr_jax/metrics/doctor.py",
        ("tests/metrics/test_doctor.py",),
        nan_is_a_number=("and math.isfinite(value) and", "and"),
    ),
    *rows(
        "rlvr_jax/metrics/luck.py",
        ("tests/metrics/test_rollouts.py",),
        punishment_is_positive=(
            "positive_B = np.maximum(advantages_B, 0.0)",
            "positive_B = np.abs(advantages_B)",
        ),
        the_right_are_incorrect=(
            'verdict.status != "correct"',
            'verdict.status == "correct"',
        ),
    ),
    *rows(
        "rlvr_jax/metrics/ranks.py",
        ("tests/metrics/test_ranks.py",),
        correlates_values=("stats.rankdata(pairs_2RN, axis=-1)", "pairs_2RN"),
        ranks_rounding=(
            "np.round(np.array([x, y], np.float64), DIGITS)",
            "np.array([x, y], np.float64)",
        ),
        beyond_1=("np.clip([low, high], -1, 1)", "[low, high]"),
    ),
    *rows(
        "rlvr_jax/metrics/multiple.py",
        ("tests/metrics/test_multiple.py",),
        bonferroni=("num_known - np.arange(len(p_N))", "num_known + 0 * order_N"),
        no_correction=("p_N[order_N] * factor_N", "p_N[order_N]"),
        a_larger_p_is_smaller=(
            "np.maximum.accumulate(p_N[order_N] * factor_N)",
            "p_N[order_N] * factor_N",
        ),
        rounding_is_certain=("is_constant(values)", "np.ptp(values) == 0"),
        unknown_ones_count=("int((~np.isnan(p_N)).sum())", "len(p_N)"),
        above_1=("np.minimum(corrected_N, 1.0)", "corrected_N"),
    ),
    *rows(
        "rlvr_jax/metrics/lenient.py",
        ("tests/metrics/test_lenient.py",),
        counts_parts_of_numbers=(r"(?!\w|[.,]\d)", ""),
        any_gold=("return all(", "return any("),
    ),
    *rows(
        "rlvr_jax/metrics/power.py",
        ("tests/metrics/test_power.py",),
        one_seed_too_many=("num_seeds * effect**2", "(num_seeds + 1) * effect**2"),
        one_sided=("(1 + CONFIDENCE) / 2", "CONFIDENCE"),
    ),
    *rows(
        "rlvr_jax/metrics/progress_symptoms.py",
        ("tests/metrics/test_progress_symptoms.py",),
        positions_from_one=("self.count * value", "(self.count + 1) * value"),
        the_scatter_of_a_constant=("/ (n - 2)", "/ n"),
        half_is_not_most=("wrong < _MIN_ALL_WRONG or", "wrong <= _MIN_ALL_WRONG or"),
        reports_no_signal_twice=("or split < min_signal", ""),
        alarmed_at_once=("_MIN_PART * total_steps, 3)", "3)"),
        certain_too_early=("upper >= enough or", ""),
        any_rise_is_none=("rise > _NO_RISE_Z * error or", ""),
        forgets_an_early_rise=("or now - before >= enough", ""),
        high_must_rise=("or now >= _HIGH_PASS", ""),
        repeats_the_cause=("or _CAUSES & {*codes}", ""),
        adaptive_steps_compare=('source == "initial"', "source"),
        refills_compare=("max_rounds == 0 and", ""),
    ),
    *rows(
        "rlvr_jax/metrics/progress_symptoms.py",
        ("tests/metrics/test_doctor.py",),
        endless_without_a_start=("min(before, now) < _MIN", "now < _MIN"),
        endless_now_is_nothing=("min(before, now) < _MIN", "before < _MIN"),
        endless_whatever_it_earns=("earned > _MAX_REWARD", "earned > 1 + _MAX_REWARD"),
        endless_by_reward=(
            "if earned is None:  # a log",
            "if True:  # a log",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/reward_symptoms.py",
        ("tests/metrics/test_doctor.py",),
        a_lucky_coin_sees=("if low > 0:", "if mean > 0:"),
        blind_by_too_few=("if len(gaps) < _MIN_GAP_STEPS", "if len(gaps) < 0.0"),
        what_does_not_vary_sees=("low = high = mean", "return"),
    ),
    *rows(
        "rlvr_jax/metrics/rollouts.py",
        ("tests/metrics/test_rollouts.py",),
        formats_of_the_unverified=(
            'if c.verdict.status != "unverified"]',
            "if c.verdict.status]",
        ),
        one_zero_is_a_group_of_zeros=(
            "(advantages_PG == 0).all(axis=1)",
            "(advantages_PG == 0).any(axis=1)",
        ),
        verdicts_are_advantages=("(advantages_PG == 0).all(axis=1)", "(~has_signal_P)"),
        unjudged_are_incorrect=(
            "rewards_G[status_G == status]",
            'rewards_G[(status_G == "correct") == (status == "correct")]',
        ),
        one_verdict_is_a_gap=(
            "if len(correct) and len(incorrect):",
            "if len(correct) or len(incorrect):",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/symptoms.py",
        ("tests/metrics/test_doctor.py",),
        waits_for_the_window=("min(FEW_STEPS, total_steps)", "window"),
        alarmed_by_one_correct=(
            'return step_mean(rows, "verdict/correct") == 0.0',
            "return True",
        ),
        silence_is_rare=("if not 0 < with_gradient <", "if not with_gradient <"),
        half_is_rare=("< _MIN_GRADIENT_STEPS *", "<= _MIN_GRADIENT_STEPS *"),
        harder_levels_are_a_collapse=(
            "or not _collapsed_within(levels, first, latest)",
            "",
        ),
        harder_bands_are_a_collapse=(
            "or not _collapsed_within(bands, first, latest)",
            "",
        ),
        half_is_a_collapse=("now >= _ACCURACY", "now > _ACCURACY"),
        what_was_not_asked_fell=(
            "if b is not None and n is not None]\n    before, now",
            "if b is not None or n is not None]\n    before, now",
        ),
        little_collapses=("_MIN_ACCURACY_FALL = 0.1", "_MIN_ACCURACY_FALL = 0.0"),
        endless_at_once=("if num_steps >= few else []", "if num_steps else []"),
        endless_and_truncated=('if not endless or s[0] != "truncation"]', "]"),
    ),
    *rows(
        "rlvr_jax/metrics/bootstrap.py",
        ("tests/metrics/test_bootstrap.py",),
        more_than_certain=("min(1.0, 2 * fewer)", "2 * fewer"),
        the_more_frequent_side=("bdtr(min(gained, lost)", "bdtr(max(gained, lost)"),
        one_problem_is_proof=("2.0 ** (1 - max(1, num_problems))", "0.0"),
    ),
    *rows(
        "rlvr_jax/metrics/doctor.py",
        ("tests/metrics/test_run_summary.py",),
        a_splice_may_cost_as_much_as_growth=(
            "config.probe.max_splice_cost",
            "config.probe.max_unexplained_growth",
        ),
        growth_may_be_a_mismatch=(
            "config.probe.max_unexplained_growth",
            "config.train.max_logprob_mismatch",
        ),
        alarms_over_another_window=("config.log.alarm_window", "20"),
        draws_are_always_alike=("config.dynamic_sampling.max_rounds", "0"),
    ),
    *rows(
        "rlvr_jax/report/run_files.py",
        ("tests/metrics/test_run_summary.py",),
        a_report_lets_a_splice_cost_as_much_as_growth=(
            'self.config["probe"]["max_splice_cost"]',
            'self.config["probe"]["max_unexplained_growth"]',
        ),
        a_report_has_another_window=('self.config["log"]["alarm_window"]', "20"),
        a_report_thinks_that_draws_are_alike=('.get("max_rounds", 0)', '.get("", 0)'),
    ),
    *rows(
        "rlvr_jax/metrics/rollouts.py",
        ("tests/metrics/test_run_summary.py",),
        tells_of_no_alarm=(
            "dataclasses.asdict(alarm) for alarm in alarms",
            "dataclasses.asdict(alarm) for alarm in alarms[:0]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/run_metrics.py",
        ("tests/analysis/compare/test_compare.py",),
        entropy_before_training=(
            "first_and_last_tenth(entropies)[1]",
            "first_and_last_tenth(entropies)[0]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/run_metrics.py",
        ("tests/analysis/compare/test_run_metrics.py",),
        counts_an_evaluation_of_fewer_steps=("after = {}  #", "pass  #"),
    ),
    *rows(
        "rlvr_jax/metrics/crossed.py",
        ("tests/metrics/test_crossed.py",),
        counts_the_rest_twice=(
            "of_seeds + of_problems - of_rest,",
            "of_seeds + of_problems + of_rest,",
        ),
        other_problems_are_ignored=(
            "max(of_seeds + of_problems - of_rest, of_seeds, of_problems)",
            "of_seeds",
        ),
        variance_may_be_negative=(", of_seeds, of_problems)", ", 0.0)"),
        freedom_of_seeds_alone=("variance**2 / below", "0.0"),
    ),
]
