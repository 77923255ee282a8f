"""One-line mutants of rlvr_jax/analysis/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_SETTINGS = ("tests/analysis/test_settings.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/analysis/geometry/equal_movement.py",
        ("tests/analysis/geometry/test_equal_movement.py",),
        at_the_farthest_distance=("start: min(", "start: max("),
        one_distance_for_all_starts=(
            "find_step(runs[start], reached[start])",
            "find_step(runs[start], min(reached.values()))",
        ),
        steps_do_not_interpolate=(
            "* (distance - near) / (far - near)",
            "* 1",
        ),
        evaluations_come_before_the_update=('"eval/pass@1": 1', '"eval/pass@1": 0'),
        forgets_the_policy_before=("at, known = [0, *at], [before", "pass  # [before"),
        differences_of_any_starts=(
            "find_step(runs[start], reached[start]) for start in starts]",
            "find_step(run, reached[k]) for k, run in runs.items() if k in starts]",
        ),
        one_seed_of_a_pretrained_start=(
            "{(run.start, run.seed): run",
            "{run.start: run",
        ),
        a_run_at_rest_ends=("if distance <= 0:", "if False:"),
    ),
    *rows(
        "rlvr_jax/analysis/geometry/movement.py",
        ("tests/analysis/geometry/test_equal_movement.py",),
        the_distance_is_squared=("float(np.sqrt(moved / size))", "moved / size"),
        distances_from_the_end=(
            "measure_distance(before, now)",
            "measure_distance(after, now)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/corrected.py",
        ("tests/analysis/experiment/test_corrected.py",),
        corrects_nothing=("holm([*known.values()]).tolist()", "[*known.values()]"),
        counts_arms_without_pairs=("if not np.isnan(p)}", "}"),
        two_seeds_are_pairs=(">= MIN_SEEDS", "> 1"),
    ),
    *rows(
        "rlvr_jax/analysis/causal/contrasts.py",
        ("tests/analysis/causal/test_false_positives.py",),
        tests_every_outcome=(
            "for name in outcomes or clean.metrics}",
            "for name in clean.metrics}",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/by_problem.py",
        ("tests/analysis/experiment/test_by_problem.py",),
        gains_forget_the_start=('if outcome == "pass@1":', "if True:"),
        side_by_side_with_other_problems=(
            "or any(sorted(x) != problems for x in sides)",
            "",
        ),
        compares_with_itself=(
            "value_SP[arm] - base_SP",
            "value_SP[arm] - value_SP[arm]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/pairs.py",
        ("tests/analysis/experiment/test_pairs.py",),
        two_arms_are_enough=("_MIN_ARMS = 3", "_MIN_ARMS = 2"),
        two_seeds_have_an_interval=("if len(by_seed) < MIN_SEEDS:", "if False:"),
        outcomes_change_places=("(x, y_by_seed[seed])", "(y_by_seed[seed], x)"),
        both_axes_in_percent=("[_scale(x_metric)], ", "[_scale(y_metric)], "),
    ),
    *rows(
        "rlvr_jax/report/charts.py",
        ("tests/analysis/experiment/test_pairs.py",),
        joins_the_dots=("if line.dots_only:", "if False:"),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/slopes.py",
        ("tests/analysis/experiment/test_slopes.py",),
        slopes_are_not_corrected=(
            'holm([one["p"] for one in tested]).tolist()',
            '[one["p"] for one in tested]',
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/slopes.py",
        ("tests/analysis/experiment/test_slopes.py",),
        doses_are_not_centred=("dose_A - dose_A.mean()", "dose_A"),
        the_slope_of_the_first_seed=(
            "values[arm][seed] for arm",
            "values[arm][seeds[0]] for arm",
        ),
        seeds_of_the_first_arm=(
            "if all(seed in other for other in others)",
            "if seed in first",
        ),
        the_difference_is_turned=(
            "by_seed[s] - other[s]",
            "other[s] - by_seed[s]",
        ),
        no_difference_of_slopes=("by_seed[s] - other[s]", "by_seed[s]"),
        two_seeds_have_an_interval=("len(values) >= MIN_SEEDS", "len(values) > 1"),
        slopes_of_all_outcomes_are_one=("labels[outcome] for", "metrics[0] for"),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/record.py",
        ("tests/analysis/experiment/test_slopes.py",),
        a_slope_may_change=(
            '        **{f"the slope {name}": slope for name, slope in '
            "experiment.slopes.items()},\n",
            "",
        ),
    ),
    *rows(
        "rlvr_jax/config/experiment.py",
        ("tests/config/test_experiment.py",),
        forgets_slopes=('"slopes": slopes,', '"slopes": {},'),
        a_slope_less_itself=(
            "            earlier.append(name)\n\n    def _check_start",
            "\n\n    def _check_start",
        ),
        one_dose_is_a_line=(
            "len({*slope.dose_by_arm.values()}) > 1",
            "slope.dose_by_arm",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/causal/command.py",
        _SETTINGS,
        edits_completions_alone=(
            "scope=specs[0].scope,",
            'scope="completion",',
        ),
        one_set_of_directions_for_all=("seed=config.seed + i)", "seed=config.seed)"),
    ),
    *rows(
        "rlvr_jax/analysis/credit/command.py",
        _SETTINGS,
        measures_the_policy_after_rl=(
            "policy = loaded._replace(params=before)",
            "policy = loaded",
        ),
        reads_the_first_layer=("layer=run.selection.layer", "layer=0"),
    ),
    *rows(
        "rlvr_jax/analysis/gradients/command.py",
        _SETTINGS,
        measures_the_policy_after_rl=(
            "policy = loaded._replace(params=before)",
            "policy = loaded._replace(params=loaded.params)",
        ),
        draws_controls_of_the_first_layer=("layer=selection.layer", "layer=0"),
    ),
    *rows(
        "rlvr_jax/analysis/gradients/command.py",
        ("tests/analysis/gradients/test_controls.py",),
        weighs_by_the_first_layer=("layer=weights.selection.layer", "layer=0"),
    ),
    *rows(
        "rlvr_jax/analysis/gradients/batches.py",
        _SETTINGS,
        scores_at_temperature_one=(
            "SamplingParams.from_config(train.sampling)",
            "SamplingParams.unmodified()",
        ),
    ),
    *rows(
        "rlvr_jax/report/charts.py",
        ("tests/report/test_page.py",),
        labels_where_0_leaves_less_room=("if high > -low", "if high < -low"),
    ),
    *rows(
        "rlvr_jax/report/charts.py",
        ("tests/analysis/test_plot.py",),
        figure_in_placeholder_colors=(
            "    with mpl.rc_context(_STANDALONE_STYLE):\n        figure = Notebook",
            "    with mpl.rc_context(_STYLE):\n        figure = Notebook",
        ),
        one_step_is_invisible=("len(x) == 1 or (", "("),
    ),
    *rows(
        "rlvr_jax/report/run_files.py",
        ("tests/analysis/test_plot.py",),
        plots_the_training_stage=(
            "self.series(stage, metric)",
            'self.series("train", metric)',
        ),
        plots_no_values=("y=values, show_raw=True", "y=values"),
    ),
    *rows(
        "rlvr_jax/analysis/compare/arms.py",
        ("tests/analysis/experiment/test_results.py",),
        unpaired_where_a_seed_lacks=(
            "if len(shared) > 1 and set(arm.seeds) == set(base.seeds):",
            "if len(shared) > 1 and ours.keys() == theirs.keys():",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/arms.py",
        ("tests/analysis/compare/test_compare.py",),
        two_seeds_have_an_interval=("MIN_SEEDS = 3", "MIN_SEEDS = 2"),
        three_seeds_have_no_interval=("MIN_SEEDS = 3", "MIN_SEEDS = 4"),
        welch_of_two_seeds=("elif min(len(ours), len(theirs))", "elif len(ours)"),
    ),
    *rows(
        "rlvr_jax/analysis/compare/export.py",
        ("tests/analysis/compare/test_tables.py",),
        csv_of_every_row=('if "rows" in comparison else', "if False else"),
    ),
    *rows(
        "rlvr_jax/analysis/compare/figure.py",
        ("tests/analysis/compare/test_compare.py",),
        band_of_two_seeds=("if len(by_seed) < MIN_SEEDS:", "if len(by_seed) < 2:"),
    ),
    *rows(
        "rlvr_jax/analysis/compare/reading.py",
        ("tests/analysis/compare/test_tables.py",),
        counts_the_problems_of_a_part=("{max(sizes)}", "{min(sizes)}"),
    ),
    *rows(
        "rlvr_jax/analysis/compare/rows.py",
        ("tests/analysis/compare/test_tables.py",),
        splits_names_with_a_comma=('r",(?! )"', '","'),
        rows_by_the_first_name=("rows += found", "rows = rows or found"),
    ),
    *rows(
        "rlvr_jax/analysis/compare/run_metrics.py",
        ("tests/analysis/compare/test_tables.py",),
        fresh_bands_of_all_samples=("FRESH_BAND, first,", "FRESH_BAND, then,"),
        fresh_scores_of_all_samples=(
            "first, late_now, late_then)",
            "first, now, then)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/compare/run_metrics.py",
        ("tests/analysis/compare/test_compare.py",),
        gains_backward=("after_k[name] - before_k", "before_k[name] - after_k"),
        gains_by_band=("(BAND, then, now, {})", "(BAND, then, now, then)"),
        reward_gained_backward=("mean=last - first", "mean=first - last"),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/results.py",
        ("tests/analysis/experiment/test_results.py",),
        power_of_two_seeds=("len(differences) >= MIN_SEEDS", "len(differences) > 1"),
    ),
    *rows(
        "rlvr_jax/analysis/credit/measure.py",
        ("tests/analysis/credit/test_measure.py",),
        every_completion_alike=(
            "denominator=total_B)\n\n    def compare",
            "denominator=np.ones_like(total_B))\n\n    def compare",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/credit/policies.py",
        ("tests/analysis/credit/test_command.py",),
        forgets_what_was_asked=(' and record["asked"] == asked', ""),
        reads_other_fields=('record.keys() == {"asked", *names}', "record"),
        the_first_speaks_for_all=(
            "return t_interval([each.value for each in found])",
            "return first",
        ),
        a_policy_counts_twice=("path.resolve() for path in", "(path, 0) for path in"),
    ),
    *rows(
        "rlvr_jax/analysis/credit/weights.py",
        ("tests/analysis/credit/test_measure.py",),
        reads_the_last_token=(
            "index_T < lengths[:, None] - 1",
            "index_T < lengths[:, None]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/fit.py",
        ("tests/analysis/crosscoder/test_crosscoder.py",),
        measures_on_what_trained=(
            'np.isin(shards.column("problem"), problems.measured)',
            'np.isin(shards.column("problem"), problems.trained)',
        ),
    ),
    *rows(
        "rlvr_jax/analysis/crosscoder/texts.py",
        ("tests/analysis/crosscoder/test_crosscoder.py",),
        one_author=("authors.items()\n", "list(authors.items())[:1]\n"),
        noise_of_another_size=("target=measure_drift(after)", "target=9.0"),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/features.py",
        ("tests/analysis/experiment/test_features.py",),
        own_is_all_that_was_gained=("& ~np.any(elsewhere, axis=0)", ""),
        forks_take_from_their_parents=(
            "for arm, run in dynamics.items() if arm in feature_arms]",
            "for arm, run in dynamics.items()]",
        ),
        one_dictionary_for_all=(
            "[log for arm, log in logs.items() if arm in feature_arms]",
            "[*logs.values()]",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/record.py",
        ("tests/analysis/experiment/test_results.py",),
        takes_any_arm=("if before[name] != after.get(name)]", "if False]"),
        takes_any_recipe=(
            "    differ += _differences(old.recipe, recipe)\n",
            "",
        ),
        new_fields_are_another_recipe=(
            "compared_config(to_json(before))",
            "old",
        ),
        unreadable_recipes_are_the_same=(
            'return [f"what this version cannot read ({error})"]',
            "return []",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/experiment/results.py",
        (
            "tests/analysis/experiment/test_results.py",
            "tests/analysis/experiment/test_features.py",
        ),
        drops_what_has_not_ended=("set.intersection(*(", "set.union(*("),
        swallows_why_there_are_no_features=("without_features.append(f", "str(f"),
        power_of_the_values=("ours[seed] - theirs[seed] for", "ours[seed] for"),
        forgets_who_is_alike=("[]).append(arm.label)", "[arm.label])"),
        hides_the_unpaired=("bool(differences) and not any", "not any"),
    ),
    *rows(
        "rlvr_jax/analysis/features/by_layer.py",
        ("tests/analysis/features/test_by_layer.py",),
        pools_only_the_policy_before_rl=("if asked.pooled:", "if False:"),
        texts_of_an_unnamed_run=("run=name,", ""),
        pooled_completions_are_as_many_for_each=(
            "config.train.group_size // len(authors)",
            "config.train.group_size",
        ),
        every_layer_is_the_first=(
            "SAEProbe.without_features(tsae, layer=layer)",
            "SAEProbe.without_features(tsae, layer=0)",
        ),
        activations_of_the_first_layer=(
            "params=params, layer=layer\n",
            "params=params, layer=0\n",
        ),
        labels_of_the_first_layer=(
            "layer=layer,\n                model=",
            "layer=0,\n                model=",
        ),
        one_policy_reads_all=(
            "params=params, layer=layer\n",
            "params=before, layer=layer\n",
        ),
        one_policy_writes_all=(
            "complete_problems(\n            setup,\n            params,",
            "complete_problems(\n            setup,\n            before,",
        ),
        nulls_are_the_run=(
            "asked.folder(layer, name), thresholds",
            "asked.folder(layer), thresholds",
        ),
        nulls_of_any_start=(
            "if params_sha256(start) != params_sha256(before):",
            "if False:",
        ),
        forgets_earlier_layers=("    if path.is_file():\n", "    if False:\n"),
    ),
    *rows(
        "rlvr_jax/analysis/features/policies.py",
        ("tests/analysis/features/test_by_layer.py",),
        nulls_of_any_model=(
            "if (other.model, other.train.lora) != (",
            "if () != () and (",
        ),
        any_nulls_go_on=("    if other:\n", "    if False:\n"),
        nulls_of_another_name=("if nulls.get(name, at) != at]", "if False]"),
        nulls_may_be_the_run=("if path.resolve() == workdir.resolve():", "if False:"),
        nulls_of_one_name=("if name in runs:", "if False:"),
        nulls_of_another_step=("_check_step(path, last)", "_check_step(path, None)"),
    ),
    *rows(
        "rlvr_jax/analysis/features/log.py",
        ("tests/analysis/features/test_features.py",),
        a_direction_has_latents=(
            "if not self.selection or self.reads_directions:",
            "if 0:",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/geometry/overlap.py",
        ("tests/analysis/geometry/test_geometry.py",),
        pairs_of_the_same_starts=(
            "are_independent = len(set(starts)) == len(starts)",
            "are_independent = True",
        ),
        one_row_for_any_start=(", overlap.same_start].append", ", True].append"),
        chance_for_share=("[overlap.share for", "[overlap.chance for"),
    ),
    *rows(
        "rlvr_jax/analysis/gradients/batches.py",
        ("tests/analysis/gradients/test_batches.py",),
        asks_the_same_again=("num_batches=served", "num_batches=0"),
        entropy_pulls_too=("kl_coef=0.0, entropy_coef=0.0", "kl_coef=0.0"),
        weights_are_dropped=("token_weights=weights_BT.astype(np.float32)", ""),
    ),
    *rows(
        "rlvr_jax/analysis/gradients/measure.py",
        ("tests/analysis/gradients/test_measure.py",),
        controls_are_weights_of_1=("cosine_N - average_N", "cosine_N - even_N"),
        a_product_for_a_cosine=("jnp.maximum(norms, 1e-30)", "1.0"),
        shuffles_the_padding=(
            "row[:length] = rng.permutation(row[:length])",
            "rng.shuffle(row)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/learning_value/measure.py",
        ("tests/analysis/learning_value/test_learning_value.py",),
        learned_before_rl=(
            '_held_out(run, "after", name) - _held_out(run, "before", name)',
            '_held_out(run, "before", name) - _held_out(run, "after", name)',
        ),
        described_by_the_last_step=(
            "properties=describe_problem(first)",
            "properties=describe_problem(last)",
        ),
        all_success_is_luck=("_is_right(row) and bool(", "_is_right(row) or bool("),
        failures_are_luck=("_is_right(row) and bool(", "bool("),
        seeds_in_one=(
            "for seed, same in _by_seed(runs).items():\n        values",
            "for seed, same in {0: runs}.items():\n        values",
        ),
        pairs_are_correlated=("_MIN_PROBLEMS = 3", "_MIN_PROBLEMS = 2"),
        bands_over_problems=("if run.band == band]", "]"),
        rounding_ranks=("round(value, _DIGITS) for", "value for"),
        any_recipe=("if other:", "if False:"),
    ),
    *rows(
        "rlvr_jax/analysis/warnings/measure.py",
        ("tests/analysis/warnings/test_warnings.py",),
        falls_upward=("score < start - margin", "score > start - margin"),
        one_evaluation_is_a_fall=("if all(both)", "if any(both)"),
        rises_are_falls=("if change > 0", "if change < 0"),
        lead_turned_round=(
            "run.fell - run.moved[key]",
            "run.moved[key] - run.fell",
        ),
        false_alarms_of_the_fallen=("for run in level)", "for run in fallen)"),
        steps_from_zero=("int(at[count - 1]) + 1", "int(at[count - 1])"),
        fewest_runs_first=("(-w.ahead, w.false_alarms", "(w.ahead, -w.false_alarms"),
    ),
]
