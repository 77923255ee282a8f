"""One-line mutants of sae_jax/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_OPTIMIZE = "tests/sae_jax/test_optimize.py"
_LOSSES = "tests/sae_jax/test_losses.py"

MUTANTS = [
    *rows(
        "sae_jax/capture/collection.py",
        ("tests/sae_jax/capture/test_collect.py",),
        writes_twice=(
            "(window.document, window.index) > (",
            "(window.document, window.index) >= (",
        ),
        forgets_windows=(
            "(window.document, window.index) > (done.document, done.window)",
            "window.document > done.document",
        ),
        numbers_anew=("first_sequence=old.sequences", "first_sequence=0"),
        any_model=("if held.get(name) != value:", "if False:"),
    ),
    *rows(
        "sae_jax/capture/parts.py",
        ("tests/sae_jax/capture/test_collect.py",),
        without_prefix=("np.array(prefix + ids[", "np.array(ids["),
        rows_out_of_order=(
            "for b, row in enumerate(rows):\n                start",
            "for b, row in enumerate(sorted(rows)):\n                start",
        ),
        one_layer=(
            "for target_ND, read_BTD in zip(values, read, strict=True):",
            "for target_ND, read_BTD in zip(values, [read[0]] * len(read)):",
        ),
        one_document=(
            '"problem": np.repeat(documents,',
            '"problem": np.repeat(sequence,',
        ),
        nothing_special=('"special": mark_special(', '"special": 0 * mark_special('),
    ),
    *rows(
        "sae_jax/capture/splice.py",
        ("tests/sae_jax/capture/test_splice.py",),
        counts_what_predicts_nothing=(
            "token_index[:, 1:] >= 0",
            "token_index[:, 1:] >= -1",
        ),
        takes_any_model=("not difference <= _MAX_DIFFERENCE", "difference < 0"),
        clean_is_the_baseline=("(nats[2] - nats[0])", "(nats[2] - 0 * nats[0])"),
    ),
    *rows(
        "sae_jax/capture/stream.py",
        ("tests/sae_jax/capture/test_stream.py",),
        trains_on_held_out=("min(number % self._period, MEASURE + 1) in uses", "True"),
        trains_on_copies=(
            "if _digest(document := list(group)) not in self._copies:",
            "if document := list(group):",
        ),
        one_order=("default_rng([seed, ORDER, number])", "default_rng([seed, ORDER])"),
        one_seed=(
            "size, seed = self._pairs.batch_size, self._seed",
            "size, seed = self._pairs.batch_size, 0",
        ),
        reads_what_is_done=("range(max(0, first - step),", "range("),
        one_buffer=("or self._last_read.number != number", ""),
        all_valid=("usable_N[anchor_B] & usable_N[partner_B]", "usable_N[anchor_B]"),
    ),
    *rows(
        "sae_jax/data/blocks.py",
        ("tests/sae_jax/data/test_buffered.py",),
        trains_on_what_is_held_out=(
            "~(copy_S | in_calibration_S | in_eval_S)",
            "~copy_S",
        ),
        trains_on_copies=(
            "copy_S = np.ones(len(start_S), bool)",
            "copy_S = np.zeros(len(start_S), bool)",
        ),
        the_median_is_of_its_upper_bits=("half << 16 | low", "half << 16"),
    ),
    *rows(
        "sae_jax/data/buffered.py",
        ("tests/sae_jax/data/test_buffered.py",),
        reads_every_lane=(
            "for lane in self._own_lanes():",
            "for lane in range(lanes):",
        ),
        rows_of_later_blocks_are_the_firsts=("row_N = held + np", "row_N = np"),
        begins_each_buffer_anew=("range(max(begin, first), min(", "range(begin, min("),
    ),
    *rows(
        "sae_jax/data/views.py",
        ("tests/sae_jax/data/test_views.py",),
        joins_other_texts=('"token_id", "role", "problem"', '"role", "problem"'),
        a_subset_reads_others=(
            "self._data.rows(self._token_M[tokens])",
            "self._data.rows(tokens)",
        ),
    ),
    *rows(
        "sae_jax/data/vocabulary.py",
        ("tests/sae_jax/dashboard/test_dashboard.py",),
        signs_for_all_spaces=("if not text.isspace():", "if not text[:1].isspace():"),
        no_signs=("if not text.isspace():", "if True:"),
    ),
    *rows(
        "sae_jax/evaluate.py",
        ("tests/sae_jax/test_evaluate_command.py",),
        low_latents_are_high=("cosine[: tsae.num_high]", "cosine[tsae.num_high :]"),
    ),
    *rows(
        "sae_jax/formats/record.py",
        ("tests/sae_jax/test_damaged_files.py",),
        takes_nan=(
            "if not np.isfinite(bounded.astype(np.float32)).all():",
            "if False:",
        ),
    ),
    *rows(
        "sae_jax/latents.py",
        ("tests/sae_jax/test_losses.py", "tests/sae_jax/test_sparse.py"),
        no_bfloat16=(
            "a.astype(dtype), b.astype(dtype), preferred",
            "a, b, preferred",
        ),
        too_few_candidates_fit=("kept.fits & (active >= sae.k * rows)", "kept.fits"),
        crowded_rows_are_dropped=(
            "used_M1 = (kept.crowded < len(x_BD))[:, None]",
            "used_M1 = (kept.crowded < 0)[:, None]",
        ),
    ),
    *rows(
        "sae_jax/optimize.py",
        ("tests/sae_jax/test_sparse.py",),
        what_does_not_fit_is_sparse=("jnp.where(fits & (dead", "jnp.where((dead"),
    ),
    *rows(
        "sae_jax/sparse.py",
        ("tests/sae_jax/test_sparse.py",),
        a_crowd_fits=("fits=crowded_B.sum() <= room", "fits=crowded_B.sum() >= 0"),
        bias_of_the_decoder_the_wrong_way=(
            "ct_D = -matmul_float32",
            "ct_D = matmul_float32",
        ),
        groups_are_one=("group_RK == g, value_RK, 0.0", "g == 0, value_RK, 0.0"),
    ),
    *rows(
        "sae_jax/stats/confirmation.py",
        ("tests/sae_jax/stats/test_within_prompts.py",),
        one_half_twice=("sums.take(order_N[N // 2 :])", "sums.take(order_N[: N // 2])"),
        any_sign=("np.where(same_K, p_K / 2, 1 - p_K / 2)", "p_K / 2"),
        never_shrinks=("1.0 - (error_K / safe_K) ** 2", "1.0 + 0.0 * error_K"),
        no_correction=("benjamini_hochberg(", "np.asarray("),
    ),
    *rows(
        "sae_jax/stats/crosscoder.py",
        ("tests/sae_jax/stats/test_crosscoder.py",),
        own_part_is_not_put_back=("return own_KZ + np.where", "return np.where"),
        norms_say_it=(
            "kind_of(each) for each in share.value",
            "kind_of(each) for each in last_share(norm_KZ)",
        ),
    ),
    *rows(
        "sae_jax/stats/sparse_probing.py",
        ("tests/sae_jax/stats/test_sparse_probing.py",),
        reads_those_that_differ_least=(
            "np.argsort(-np.abs(_differences",
            "np.argsort(np.abs(_differences",
        ),
        shuffles_nothing=("rng.permutation(truth_NC)", "truth_NC"),
        main_latent_may_fire=("(silent_N & taken_N)", "taken_N"),
        bias_is_penalized=("_PENALTY), 1e-6)", "_PENALTY), 9.0)"),
    ),
    *rows(
        "sae_jax/optimize.py",
        (f"{_OPTIMIZE}::test_steps_are_adams_on_gradients_projected_and_then_clipped",),
        never_clips=("optax.clip_by_global_norm(adam.clip_norm),", "optax.identity(),"),
        one_decay_for_both_moments=("b2=adam.b2,", "b2=adam.b1,"),
        gradients_along_decoder_rows=(
            "return gradient_CZD - along_CZ1 * decoder_CZD",
            "return gradient_CZD",
        ),
        always_normalizes=("if config.sae.normalize:", "if True:"),
        thresholds_start_at_minus_1=(
            "jnp.where(old_CZ < 0, min_kept_C1, mixed_CZ)",
            "mixed_CZ",
        ),
        all_groups_are_the_high_ones=(
            "fve_high=fve_CG[:, 0],",
            "fve_high=fve_CG[:, -1],",
        ),
        seeds_count_from_0=(
            "range(config.seed, config.seed + config.train.num_seeds)",
            "range(config.train.num_seeds)",
        ),
        revives_a_batch_late=(
            "state.tokens_since_fired + pairs.x.shape[0] >=",
            "state.tokens_since_fired >=",
        ),
    ),
    *rows(
        "sae_jax/optimize.py",
        (
            f"{_OPTIMIZE}::test_rows_stay_unit_and_the_threshold_follows_the_smallest_kept",
        ),
        decoder_rows_grow=(
            "tsae, decoder=normalize_rows(tsae.decoder),",
            "tsae, decoder=tsae.decoder,",
        ),
        thresholds_begin_a_step_early=(
            "state.step > train.threshold_start_step",
            "state.step >= train.threshold_start_step",
        ),
    ),
    *rows(
        "sae_jax/optimize.py",
        (f"{_OPTIMIZE}::test_normalization_makes_units_irrelevant",),
        positives_keep_their_scale=(
            "positive=state.scale * pairs.positive",
            "positive=pairs.positive",
        ),
    ),
    *rows(
        "sae_jax/optimize.py",
        (f"{_OPTIMIZE}::test_geometric_median_ignores_a_far_point_and_padding",),
        the_mean_is_the_median=(
            "1.0 / jnp.maximum(distance_B, 1e-12), 0.0)",
            "1.0 + 0.0 * distance_B, 0.0)",
        ),
    ),
    *rows(
        "sae_jax/optimize.py",
        (f"{_OPTIMIZE}::test_schedule_on_paper",),
        rates_never_decay=(
            "level_until = steps - round(config.lr_decay_fraction * steps)",
            "level_until = steps",
        ),
    ),
    *rows(
        "sae_jax/optimize.py",
        (f"{_OPTIMIZE}::test_seeds_differ_and_do_not_disturb_each_other",),
        every_seed_starts_alike=("jax.random.key(seed),", "jax.random.key(0 * seed),"),
    ),
    *rows(
        "sae_jax/train.py",
        (
            "tests/sae_jax/test_train_command.py::"
            "test_pairs_are_opened_with_the_seed_of_the_config",
        ),
        one_order_for_all_seeds=(
            "open_source(config.pairs, seed=config.seed, mesh=mesh)",
            "open_source(config.pairs, seed=0, mesh=mesh)",
        ),
    ),
    *rows(
        "sae_jax/losses.py",
        (f"{_LOSSES}::test_a_latent_is_dead_after_100_valid_tokens_without_it",),
        counts_batches_instead_of_tokens=(
            "_MAX_TOKENS_SINCE_FIRED) + rows",
            "_MAX_TOKENS_SINCE_FIRED) + 1",
        ),
        dead_a_batch_late=(
            "dead_Z = tokens_since_fired >= config",
            "dead_Z = tokens_since_fired > config",
        ),
    ),
    *rows(
        "sae_jax/losses.py",
        (f"{_LOSSES}::test_only_dead_latents_revive_and_only_in_decoder_and_encoder",),
        auxk_moves_the_live=("jax.lax.stop_gradient(errors[-1])", "errors[-1]"),
    ),
    *rows(
        "sae_jax/losses.py",
        (
            f"{_LOSSES}::test_dead_latents_explain_half_of_the_width_and_share_the_spread",
        ),
        twice_as_many_dead_latents=(
            "row_thresholds(dead_BZ, tsae.width // 2)",
            "row_thresholds(dead_BZ, tsae.width)",
        ),
        variance_about_zero=(
            "variance=jnp.sum(_center(x_BD, valid_B) ** 2)",
            "variance=jnp.sum(x_BD**2)",
        ),
        auxk_share_about_zero=(
            "jnp.sum(_center(residual_BD, valid) ** 2)",
            "jnp.sum(residual_BD**2)",
        ),
    ),
    *rows(
        "sae_jax/losses.py",
        (f"{_LOSSES}::test_info_nce_asks_for_the_positive_and_for_its_row",),
        one_direction_twice=("for axis in (1, 2)", "for axis in (1, 1)"),
        any_temperature=(" / config.temperature", ""),
    ),
    *rows(
        "sae_jax/losses.py",
        (f"{_LOSSES}::test_info_nce_of_a_padded_block_is_that_of_its_valid_rows",),
        padding_is_told_apart=(
            "valid_NR[:, :, None] & valid_NR[:, None, :]",
            "valid_NR[:, :, None] | valid_NR[:, None, :]",
        ),
    ),
    *rows(
        "sae_jax/losses.py",
        (f"{_LOSSES}::test_blocks_are_told_apart_on_their_own",),
        one_block_whatever_its_size=(
            "min(config.contrast_block_size or rows, rows)",
            "rows",
        ),
    ),
]
