"""Mutants of pairs, controls and nulls in rlvr_jax/analysis/.

A pair by position, a control equal to its treatment, or an interval of the wrong size
changes the findings, while every number still looks plausible.
"""

from tests.mutants.mutant import rows

_PAIRS = ("tests/analysis/compare/test_pairs.py",)
_INTERVALS = ("tests/analysis/compare/test_intervals.py",)
_CAUSAL = ("tests/analysis/causal/test_controls.py",)
_CREDIT = ("tests/analysis/credit/test_controls.py",)
_GRADIENTS = ("tests/analysis/gradients/test_controls.py",)
_NULLS = ("tests/analysis/features/test_nulls.py",)
_SPLIT = ("tests/analysis/crosscoder/test_split.py",)
_RECORD = ("tests/analysis/crosscoder/test_record.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/analysis/compare/arms.py",
        _PAIRS,
        pairs_seeds_by_position=(
            '_interval_over_seeds([*by_seed["seeds"].values()])',
            "t_interval([a - b for a, b in zip(*means)])",
        ),
        pairs_seeds_by_rank=(
            '_interval_over_seeds([*by_seed["seeds"].values()])',
            "t_interval([a - b for a, b in zip(*map(sorted, means))])",
        ),
        shows_differences_by_position=(
            "str(s): ours[s].mean - theirs[s].mean for s in shared",
            "str(s): a - b for s, a, b in zip(shared, *means)",
        ),
        pairs_arms_of_which_one_lacks_a_seed=(
            "and set(arm.seeds) == set(base.seeds):",
            "and shared:",
        ),
        pairs_problems_by_position=(
            "values = [a[name] - b[name] for name in a]",
            "values = [x - y for x, y in zip(a.values(), b.values())]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/arms.py",
        _INTERVALS,
        forgets_that_seeds_are_pairs=(
            '_interval_over_seeds([*by_seed["seeds"].values()])',
            "welch_interval(*means)",
        ),
        forgets_that_problems_are_pairs=("if a.keys() == b.keys():", "if False:"),
        intervals_of_a_quarter_of_the_problems=(
            "bounds is None:\n        return t_interval(values)",
            "bounds is None:\n        return t_interval(values[: len(values) // 4])",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/text.py",
        _PAIRS,
        columns_by_the_size_of_the_seed=(
            "        for seed in seeds\n    ]",
            "        for seed in sorted(seeds)\n    ]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/run_metrics.py",
        _PAIRS,
        reads_problems_by_position=(
            "np.array([counts[name] for name in names]).T",
            "np.array([*counts.values()][: len(names)]).T",
        ),
        pairs_golds_by_position=(
            "{name: now[name] - then[name] for name in sorted(both)}",
            "{n: a - b for n, a, b in zip(sorted(both), now.values(), then.values())}",
        ),
    ),
    *rows(
        "rlvr_jax/report/parts/gains.py",
        ("tests/report/test_gains.py",),
        reads_problems_by_position=(
            "[_pass_rate(verdicts[name][skip:]) for name in names]",
            "[_pass_rate(v[skip:]) for v in [*verdicts.values()][: len(names)]]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/results.py",
        ("tests/analysis/experiment/test_results.py",),
        spread_by_position=(
            "[ours[seed] - theirs[seed] for seed in ours if seed in theirs]",
            "[a - b for a, b in zip(ours.values(), theirs.values())]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/causal/contrasts.py",
        _CAUSAL,
        both_controls_are_random_latents=(
            "if arm.arm.kind == kind",
            "if arm.arm.kind == CONTROLS[0]",
        ),
        both_controls_are_random_directions=(
            "if arm.arm.kind == kind",
            "if arm.arm.kind == CONTROLS[1]",
        ),
        either_p_will_do=(
            "return max(each.p for each in",
            "return min(each.p for each in",
        ),
        farther_than_either=("return all(\n", "return any(\n"),
        rank_among_either=(
            "np.maximum(rank_p[at], of_kind)",
            "np.minimum(rank_p[at], of_kind)",
        ),
        rank_among_the_last_kind=("np.maximum(rank_p[at], of_kind)", "of_kind"),
        one_target_for_all=(
            "_arms_of_strength(edited_arms, at), counts_RN",
            "_arms_of_strength(edited_arms, 0), counts_RN",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/credit/weights.py",
        _CREDIT,
        controls_read_the_features=(
            "latents=tuple(latents))",
            "latents=self.selection.latents)",
        ),
        one_draw_for_all=(
            "[weigh_by(latents) for latents in self.draws]",
            "[weigh_by(self.draws[0]) for _ in self.draws]",
        ),
        surprise_is_the_features=(
            "SURPRISE: weigh_by_surprise(logprobs, lengths, self.config)",
            "SURPRISE: weigh_by(self.selection.latents)",
        ),
        matched_on_padding_too=(
            "read = residual[has_activation_BT].astype",
            "read = residual.reshape(-1, residual.shape[2]).astype",
        ),
        matched_on_last_tokens_too=(
            "_, has_activation_BT = _masks(np.array(rollouts.lengths[:B]), T)",
            "has_activation_BT, _ = _masks(np.array(rollouts.lengths[:B]), T)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/gradients/command.py",
        _GRADIENTS,
        shuffles_nothing=(
            "_SHUFFLED: shuffle_weights(kinds[FEATURES], batch.lengths, seed=seed)",
            "_SHUFFLED: kinds[FEATURES]",
        ),
        even_weights_are_the_features=(
            "EVEN: np.ones(batch.tokens.shape)",
            "EVEN: kinds[FEATURES]",
        ),
        draws_are_the_features=(
            "(gradient, reference, draws)",
            "(gradient, reference, [kinds[FEATURES]] * len(draws))",
        ),
        held_against_itself=(
            "measure_cosines(gradient, reference, [*kinds.values()])",
            "measure_cosines(gradient, gradient(kinds[EVEN]), [*kinds.values()])",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/features/dynamics.py",
        _NULLS,
        checks_the_null_with_itself=(
            '("check", EQUAL_DRIFT)',
            '("drift", EQUAL_DRIFT)',
        ),
        the_check_twice=('("norm", EQUAL_NORM)', '("check", EQUAL_NORM)'),
        other_noise_twice=('("check", EQUAL_DRIFT)', '("norm", EQUAL_DRIFT)'),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/command.py",
        _SPLIT,
        noise_is_rl=(
            "base = [streams[RL][0], texts[RL].noise]",
            "base = [*streams[RL]]",
        ),
        one_half_twice=("streams[RL], half=half)", "streams[RL], half=0)"),
        random_reward_is_rl=(
            'fit(RANDOM, "rl", streams[RANDOM])',
            'fit(RL, "rl", streams[RL])',
        ),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/command.py",
        _RECORD,
        latents_are_their_own_partners=(
            "others={OTHER_SEED: fitted[OTHER_SEED]},",
            "others={OTHER_SEED: fitted[RL]},",
        ),
        rl_is_replicated_by_itself=(
            "count_replicated(fitted[RL], fitted[OTHER_SEED])",
            "count_replicated(fitted[RL], fitted[RL])",
        ),
        a_half_is_replicated_by_itself=(
            "count_replicated(first, second)",
            "count_replicated(first, first)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/texts.py",
        _RECORD,
        bands_of_answers_after_rl=("if graded.weight_version == 0:", "if True:"),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/fit.py",
        _SPLIT,
        measures_on_a_half_that_trained=(
            'np.isin(shards.column("problem"), problems.measured)',
            'np.isin(shards.column("problem"), problems.halves[0])',
        ),
        halves_that_share_problems=(
            "first, second = np.array_split(trained, 2)",
            "first, second = trained, trained",
        ),
        first_problems_are_measured=(
            "np.random.default_rng(0).permutation(number_P)",
            "np.array(number_P)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/summary.py",
        ("tests/analysis/crosscoder/test_replicated.py",),
        partners_by_position=(
            "same_way & theirs.confirmed[match.nearest]",
            "same_way & theirs.confirmed",
        ),
        ways_by_position=("partner_grown[match.nearest]", "partner_grown"),
        any_partner_will_do=(
            "same = match.mutual & (match.cosine >= _SAME_LATENT)",
            "same = match.mutual",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/features/texts.py",
        _NULLS,
        draws_of_other_texts=("tuple(old.rows[i].prompt", "tuple(new.rows[i].prompt"),
    ),
    *rows(
        "rlvr_jax/analysis/credit/measure.py",
        _CREDIT,
        controls_are_the_weights=(
            "compare(ratio, average)",
            "compare(ratio, ratio)",
        ),
        ratio_without_its_problems=(
            "counts_RN = resample_counts(len(total_B)",
            "counts_RN = 9 + resample_counts(len(total_B)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/geometry/overlap.py",
        ("tests/analysis/geometry/test_geometry.py",),
        chance_of_either=(
            "expected += count * other_count / size",
            "expected += (count + other_count) / 2",
        ),
    ),
]
