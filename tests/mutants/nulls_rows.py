"""Mutants of nulls, controls, pairs, held-out scores, intervals, traces and groups.

What the findings rest on: a control that is the treatment, a pair by position, a score
on the half that was fitted, or an interval of another size would change what is
claimed, and no number would look wrong.
"""

from tests.mutants.table import _of

_PAIRS = ("tests/analysis/compare/test_pairs.py",)
_INTERVALS = ("tests/analysis/compare/test_intervals.py",)
_CAUSAL = ("tests/analysis/causal/test_controls.py",)
_CREDIT = ("tests/analysis/credit/test_controls.py",)
_GRADIENTS = ("tests/analysis/gradients/test_controls.py",)
_DRAWS = ("tests/probe/test_noise_draws.py",)
_NULLS = ("tests/analysis/features/test_nulls.py",)
_ARMS = ("tests/probe/test_control_arms.py",)
_CHANCE = ("tests/sae_jax/stats/test_chance.py",)
_MEAN_AND_RATE = ("tests/sae_jax/stats/test_mean_and_rate.py",)
_COVERAGE = ("tests/sae_jax/stats/test_coverage.py",)
_METRICS = ("tests/metrics/test_coverage.py",)
_TRACES = ("tests/rollouts/test_external_traces.py",)
_GROUPS = ("tests/rollouts/test_groups.py",)
_SPLIT = ("tests/analysis/crosscoder/test_split.py",)

MUTANTS = [
    # Pairs: of runs by seed, of problems by name.
    *_of(
        "rlvr_jax/analysis/compare/arms.py",
        _PAIRS,
        pairs_seeds_by_position=(
            "t_interval([ours[s].mean - theirs[s].mean for s in shared])",
            "t_interval([a - b for a, b in zip(*means)])",
        ),
        pairs_seeds_by_rank=(
            "t_interval([ours[s].mean - theirs[s].mean for s in shared])",
            "t_interval([a - b for a, b in zip(*map(sorted, means))])",
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
    *_of(
        "rlvr_jax/analysis/compare/arms.py",
        _INTERVALS,
        forgets_that_seeds_are_pairs=(
            "t_interval([ours[s].mean - theirs[s].mean for s in shared])",
            "welch_interval(*means)",
        ),
        forgets_that_problems_are_pairs=("if a.keys() == b.keys():", "if False:"),
        intervals_of_one_problem_less=(
            "return t_interval(values)\n",
            "return t_interval(values[: len(values) // 4])\n",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/compare/figure.py",
        _PAIRS,
        dots_by_position=(
            "return [ours[seed] - theirs[seed] for seed in shared]",
            "return [a - b for a, b in zip(ours.values(), theirs.values())]",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/compare/text.py",
        _PAIRS,
        columns_by_the_size_of_the_seed=(
            "        for seed in seeds\n    ]",
            "        for seed in sorted(seeds)\n    ]",
        ),
    ),
    *_of(
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
    *_of(
        "rlvr_jax/metrics/crossing.py",
        ("tests/metrics/test_crossing.py",),
        reads_problems_by_position=(
            "np.array([counts[name] for name in names]).T",
            "np.array([*counts.values()]).T",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/report/gains.py",
        ("tests/analysis/report/test_gains.py",),
        reads_problems_by_position=(
            "[_pass_rate(verdicts[name][skip:]) for name in names]",
            "[_pass_rate(v[skip:]) for v in [*verdicts.values()][: len(names)]]",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/experiment/results.py",
        ("tests/analysis/experiment/test_results.py",),
        spread_by_position=(
            "[ours[seed] - theirs[seed] for seed in ours if seed in theirs]",
            "[a - b for a, b in zip(ours.values(), theirs.values())]",
        ),
    ),
    *_of(
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
    # Controls: each is another thing than the treatment, and than the other controls.
    *_of(
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
            "return sorted(each.p for each in",
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
    *_of(
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
    *_of(
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
            "draws=measure_cosines(gradient, reference, draws)",
            "draws=measure_cosines(gradient, reference, [kinds[FEATURES]] * len(draws))",
        ),
        held_against_itself=(
            "measure_cosines(gradient, reference, [*kinds.values()])",
            "measure_cosines(gradient, gradient(kinds[EVEN]), [*kinds.values()])",
        ),
    ),
    *_of(
        "sae_jax/edits.py",
        _ARMS,
        random_latents_may_be_the_targets=(
            "alive = alive[~np.isin(alive, latents)]",
            "alive = alive[np.isin(alive, alive)]",
        ),
    ),
    *_of(
        "rlvr_jax/probe/intervene.py",
        _ARMS,
        random_latents_are_the_targets=(
            "match_shift(make_edit(latents, strength)",
            "match_shift(make_edit(spec.latents, strength)",
        ),
        one_direction_for_all=(
            "target.toward(direction))",
            "target.toward(directions[0]))",
        ),
        directions_are_the_target=("target.toward(direction))", "target)"),
        directions_of_one_seed=(
            "np.random.default_rng(seed).normal(",
            "np.random.default_rng(0).normal(",
        ),
        latents_of_one_seed=(
            "num_draws=spec.num_controls, seed=seed",
            "num_draws=spec.num_controls, seed=0",
        ),
        the_null_edits=("target.with_scale(0.0)", "target.with_scale(0.1)"),
    ),
    *_of(
        "rlvr_jax/probe/weight_noise.py",
        _DRAWS,
        check_has_the_nulls_keys=(
            "jax.random.fold_in(key, next(numbers))",
            "jax.random.fold_in(key, i)",
        ),
        other_noise_has_the_nulls_keys=(
            "jax.random.fold_in(key, next(numbers))",
            "jax.random.fold_in(key, next(numbers) % 25)",
        ),
        one_key_for_all_draws=("jax.random.fold_in(key, next(numbers))", "key"),
        one_key_for_all_seeds=(
            "jax.random.fold_in(key, next(numbers))",
            "jax.random.fold_in(jax.random.key(0), next(numbers))",
        ),
        one_noise_for_all_tensors=(
            "jax.random.normal(jax.random.fold_in(key, i), leaf.shape",
            "jax.random.normal(key, leaf.shape",
        ),
        every_kind_is_the_null=(
            'name = f"{kind}{i}"\n            yield',
            'name = f"drift{i % 5}"\n            yield',
        ),
        texts_by_position=(
            "rows = [row_of[name] for name in problem_ids]",
            "rows = [*range(len(problem_ids))]",
        ),
        keys_of_the_completions=('stream_key("noise")', 'stream_key("train")'),
        matched_noise_of_one_key=(
            "jax.jit(_move)(params, lengths, key)",
            "jax.jit(_move)(params, lengths, jax.random.key(0))",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/features/dynamics.py",
        _NULLS,
        checks_the_null_with_itself=('("check", EQUAL_DRIFT)', '("drift", EQUAL_DRIFT)'),
        the_check_twice=('("norm", EQUAL_NORM)', '("check", EQUAL_NORM)'),
        other_noise_twice=('("check", EQUAL_DRIFT)', '("norm", EQUAL_DRIFT)'),
    ),
    *_of(
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
    # Held-out scores: at chance where nothing can be learned.
    *_of(
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
    *_of(
        "sae_jax/stats/sparse_probing.py",
        _CHANCE,
        scores_where_it_was_fitted=(
            "probe.mean_auroc(f_test, test.label)",
            "probe.mean_auroc(f_learn, learn.label)",
        ),
        scores_activations_where_they_were_fitted=(
            "dense.mean_auroc(test.x, test.label)",
            "dense.mean_auroc(learn.x, learn.label)",
        ),
        halves_of_tokens=(
            "is_train = np.isin(tokens.problem, train)",
            "is_train = rng.random(len(tokens.problem)) < 0.5",
        ),
    ),
    *_of(
        "sae_jax/stats/factors.py",
        _CHANCE,
        probe_is_right_where_it_was_fitted=(
            "probe.accuracy(inputs[is_odd], classes[is_odd])",
            "probe.accuracy(inputs[~is_odd], classes[~is_odd])",
        ),
        scores_the_half_that_chose=(
            "auroc(sign[c] * f[is_odd, column_of[c]], classes[is_odd] == c)",
            "auroc(sign[c] * f[~is_odd, column_of[c]], classes[~is_odd] == c)",
        ),
        correlates_on_the_half_that_chose=(
            "np.abs(odd_correlation[assigned.latents",
            "np.abs(even_correlation[assigned.latents",
        ),
        chooses_on_the_half_that_scores=(
            "best = np.abs(even_correlation)",
            "best = np.abs(odd_correlation)",
        ),
    ),
    *_of(
        "sae_jax/stats/confirmation.py",
        _CHANCE,
        tells_of_the_half_that_chose=(
            "second=WithinPromptEffect(second_Z[latents_K]",
            "second=WithinPromptEffect(first_Z[latents_K]",
        ),
    ),
    # Two tests of a feature, each for its own claims.
    *_of(
        "sae_jax/stats/dynamics.py",
        _MEAN_AND_RATE,
        emerging_by_the_mean=(
            'emerging=passed["emerging"] & (q_rate <=',
            'emerging=passed["emerging"] & (q_mean <=',
        ),
        strengthened_by_the_rate=(
            'strengthened=passed["strengthened"] & (q_mean <=',
            'strengthened=passed["strengthened"] & (q_rate <=',
        ),
        suppressed_by_the_rate=(
            'suppressed=passed["suppressed"] & (q_mean <=',
            'suppressed=passed["suppressed"] & (q_rate <=',
        ),
        rates_have_the_means_p=(
            'adjust_p_values(change.p_rate, passed["emerging"]',
            'adjust_p_values(change.p_mean, passed["emerging"]',
        ),
        firings_are_sums=(
            "sign_flip_p_values(texts.fired_change[:, tested], integer=True)",
            "sign_flip_p_values(texts.sum_change[:, tested])",
        ),
    ),
    *_of(
        "sae_jax/stats/noise_null.py",
        _MEAN_AND_RATE,
        emerging_by_the_mean=(
            "emerging=found.emerging & (q_rate <= fdr)",
            "emerging=found.emerging & (q_mean <= fdr)",
        ),
        strengthened_by_the_rate=(
            "strengthened=found.strengthened & (q_mean <= fdr)",
            "strengthened=found.strengthened & (q_rate <= fdr)",
        ),
        rates_move_as_means_do=("(change.rate, rate_NZ)", "(change.mean, mean_NZ)"),
    ),
    # Intervals: as often beside the truth as they say.
    *_of(
        "sae_jax/stats/crosscoder.py",
        _COVERAGE,
        interval_of_a_half=("[0.025, 0.975]", "[0.25, 0.75]"),
        interval_of_nearly_all=("[0.025, 0.975]", "[0.0005, 0.9995]"),
        shifted_interval=("[0.025, 0.975]", "[0.0005, 0.9]"),
    ),
    *_of(
        "sae_jax/stats/resample.py",
        _COVERAGE,
        each_tail_is_both=("tail = (1 - confidence) / 2", "tail = 1 - confidence"),
        half_by_default=("confidence: float = 0.95", "confidence: float = 0.5"),
        nearly_all_by_default=("confidence: float = 0.95", "confidence: float = 0.999"),
    ),
    *_of(
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
    *_of(
        "rlvr_jax/metrics/crossing.py",
        _METRICS,
        interval_of_a_half=("tail = (1 - CONFIDENCE) / 2", "tail = (1 - CONFIDENCE) * 5"),
        interval_of_nearly_all=(
            "tail = (1 - CONFIDENCE) / 2",
            "tail = (1 - CONFIDENCE) / 100",
        ),
    ),
    # The window of the proxy's guard.
    *_of(
        "rlvr_jax/probe/rfgo_state.py",
        ("tests/probe/test_rfgo_state.py",),
        never_forgets=("[-config.correlation_window :]", "[-99:]"),
        reads_the_last_step_alone=("[-config.correlation_window :]", "[-1:]"),
        forgets_a_step_late=(
            "[-config.correlation_window :]",
            "[-config.correlation_window - 1 :]",
        ),
    ),
    # Traces, and groups with rows that were dropped or that nobody could judge.
    *_of(
        "rlvr_jax/rollouts/external.py",
        _TRACES,
        scores_other_problems=(
            "        [problems[p] for p in kept],\n",
            "        [*problems[: len(kept)]],\n",
        ),
        scores_other_texts=(
            "[judged[p].text for p in kept]",
            "[text.text for text in judged.values()][: len(kept)]",
        ),
        judges_other_problems=(
            "[problems[p] for p in short_enough], list(judged.values())",
            "[*problems[: len(short_enough)]], list(judged.values())",
        ),
        keeps_what_nobody_judged=(
            'if verdict.status == "correct"',
            'if verdict.status != "incorrect"',
        ),
        keeps_the_shortest_that_cannot_be=(
            "sampling.min_new_tokens < len(row)",
            "sampling.min_new_tokens <= len(row)",
        ),
        drops_the_shortest_that_can_be=(
            "sampling.min_new_tokens < len(row)",
            "sampling.min_new_tokens + 1 < len(row)",
        ),
        drops_the_longest_that_can_be=(
            "<= sampling.max_new_tokens\n",
            "< sampling.max_new_tokens\n",
        ),
        scores_stand_in_the_first_rows=(
            "spread_P[list(index)] = values",
            "spread_P[: len(values)] = values",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/groups.py",
        _GROUPS,
        unverified_is_forgotten=(
            "num_correct < 0.5 * num_verified",
            "num_correct < 0.5 * len(group)",
        ),
        half_is_forgotten=(
            "num_correct < 0.5 * num_verified",
            "num_correct <= 0.5 * num_verified",
        ),
        half_was_not_solved=(
            "prior.last_pass_rate[p] >= 0.5",
            "prior.last_pass_rate[p] > 0.5",
        ),
        one_past_for_all=(
            "prior.last_pass_rate[p] >= 0.5",
            "prior.last_pass_rate[0] >= 0.5",
        ),
        flags_what_nobody_judged=(
            '"unverified": (),',
            '"unverified": ("forgotten",) if is_lost else (),',
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/collect.py",
        _GROUPS,
        fallback_of_the_groups_kept=(
            "num_fallback / sum(map(len, rounds))",
            "num_fallback / len(groups)",
        ),
        fallback_by_round=(
            "num_fallback / sum(map(len, rounds))",
            "num_fallback / len(rounds)",
        ),
        fallback_of_the_last_round=("num_fallback += batch", "num_fallback = batch"),
        signal_by_completion=(
            "groups.count_with_signal() / len(groups)",
            "groups.count_with_signal() / len(groups.graded)",
        ),
    ),
    *_of(
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
