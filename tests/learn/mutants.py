"""One-line mutants of rlvr_jax/learn/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_TRACE = ("tests/integration/test_trace.py",)
_POLICY_MASK = ("tests/learn/test_policy_mask.py",)
_PACKING = "tests/learn/test_packing.py"
_RFGO = "tests/learn/test_rfgo.py"

MUTANTS = [
    *rows(
        "rlvr_jax/learn/activation_memory.py",
        ("tests/learn/test_micro_batches.py",),
        one_device_holds_all=("/ needed)) * self.devices", "/ needed))"),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/groups.py",
        ("tests/learn/test_external_traces.py",),
        measures_a_trace_by_itself=(
            "(trace_P1 - _mean(own_PG, judged_PG))",
            "(trace_P1 - counted_PH.mean(axis=1, keepdims=True))",
        ),
    ),
    *rows(
        "rlvr_jax/learn/batches.py",
        ("tests/learn/test_batches.py",),
        excludes_by_a_single_zero=("!= 0).any(axis=1)", "!= 0).all(axis=1)"),
    ),
    *rows(
        "rlvr_jax/learn/batches.py",
        _POLICY_MASK,
        the_environments_tokens_are_learned_from=(
            "loss_mask = batch.policy_mask if batch.loss_mask is None else",
            "loss_mask =",
        ),
    ),
    *rows(
        "rlvr_jax/learn/batches.py",
        ("tests/learn/test_mask_truncated.py",),
        leaves_out_what_ended=(
            '"left_out": ~rollouts.finished if',
            '"left_out": rollouts.finished if',
        ),
        divisors_count_what_is_left_out=(
            "lengths_B = np.where(batch.left_out, 0, lengths_B)",
            "batch.loss_mask",
        ),
        forks_among_all=(
            "mask_BT = mask_BT & ~batch.left_out[:, None]",
            "mask_BT = mask_BT & True",
        ),
    ),
    *rows(
        "rlvr_jax/learn/logprobs.py",
        ("tests/learn/test_bfloat16.py",),
        chunks_add_up_in_their_dtype=(
            "policy.output_table.astype(jnp.float32)",
            "policy.output_table",
        ),
    ),
    *rows(
        "rlvr_jax/learn/logprobs.py",
        ("tests/learn/test_packing.py",),
        predicts_a_first_token_from_the_neighbor=(
            "is_first_UT1 = (rows.index == 0)",
            "is_first_UT1 = (rows.index < 0)",
        ),
    ),
    *rows(
        "rlvr_jax/learn/logprobs.py",
        ("tests/learn/test_logprobs.py",),
        pads_the_last_chunk=(
            "return -(-length // max(1, num_chunks))",
            "return widest",
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/losses.py",
        _POLICY_MASK,
        the_environments_tokens_count=(
            'mask_BT &= as_array("policy_mask", policy_mask',
            'mask_BT |= as_array("policy_mask", policy_mask',
        ),
        a_sequences_ratio_is_over_all_tokens=(
            "        length_B = mask_BT.sum(axis=1)\n    logprob_BT",
            "    logprob_BT",
        ),
    ),
    *rows(
        "rlvr_jax/learn/micro_batches.py",
        ("tests/learn/test_run_updates.py",),
        scores_in_the_order_of_lengths=(
            "whole_PGT[groups_Q[is_group], :, :width] =",
            "whole_PGT[np.sort(groups_Q)[is_group], :, :width] =",
        ),
    ),
    *rows(
        "rlvr_jax/learn/micro_batches.py",
        ("tests/learn/test_micro_batches.py",),
        ignores_the_memory=(
            "memory=ActivationLimit.from_config(config)",
            "memory=_NO_LIMIT",
        ),
        one_micro_batch_for_all_groups=(
            "num_groups = cut.memory.fit(cut.num_groups, rows, S, max_width)",
            "num_groups = cut.num_groups",
        ),
    ),
    *rows(
        "rlvr_jax/learn/objectives.py",
        ("tests/learn/test_on_policy.py", "tests/algorithms/test_loss_options.py"),
        never_on_policy=("[:, None], own_BT, old_BT)", "[:, None], old_BT, old_BT)"),
        weighs_by_the_old_alone=(
            "_mask(old_BT - _sampler_logprobs(batch), batch), cap",
            "_mask(old_BT - batch.old_logprobs, batch), cap",
        ),
    ),
    *rows(
        "rlvr_jax/learn/objectives.py",
        ("tests/learn/test_external_traces.py",),
        learns_of_traces_twice=("batch = batch.without_external()", "pass"),
    ),
    *rows(
        "rlvr_jax/learn/optimizer.py",
        ("tests/learn/test_update.py",),
        decays_biases=(' and "bias" not in name', ""),
    ),
    *rows(
        "rlvr_jax/learn/packing.py",
        ("tests/learn/test_packing.py",),
        overfills_a_row=("if left >= length)", "if left + 1 >= length)"),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        _POLICY_MASK,
        features_of_the_environments_tokens=(
            "return batch.mask & length_mask(",
            "return length_mask(",
        ),
    ),
    *rows(
        "rlvr_jax/learn/run_updates.py",
        ("tests/learn/test_run_updates.py",),
        cuts_band_after_band=("if num_minibatches > 1:", "if num_minibatches > 99:"),
        cuts_all_alike=(
            "seed=(config.seed, version, epoch)",
            "seed=(config.seed, 0, 0)",
        ),
        on_policy_once_an_epoch=(
            "is_first = epoch == index == 0",
            "is_first = index == 0",
        ),
        learns_of_new_rollouts_as_old=(
            "behind = min(version, train.staleness * train.optimizer_steps_per_batch)",
            "behind = 0",
        ),
        stops_for_what_has_changed=(
            '"staleness/logprob_change" if versions_behind else "logprob_mismatch"',
            '"logprob_mismatch"',
        ),
        ratio_to_the_anchor=(
            "= score(params, entropies=chooses_tokens)",
            "= score(ref_params, entropies=chooses_tokens)",
        ),
    ),
    *rows(
        "rlvr_jax/learn/batches.py",
        ("tests/learn/test_run_updates.py",),
        lowest_is_highest=(
            'return -entropies_BT if choice == "lowest_entropy" else',
            'return entropies_BT if choice == "lowest_entropy" else',
        ),
        random_is_highest=('if choice == "random":', 'if choice == "randomly":'),
    ),
    *rows(
        "rlvr_jax/learn/batches.py",
        ("tests/learn/test_batches.py",),
        draws_for_padding_too=(
            "scores_BT[mask_BT] = rng.random(int(mask_BT.sum()))",
            "scores_BT = rng.random(mask_BT.shape)",
        ),
    ),
    *rows(
        "rlvr_jax/learn/run_updates.py",
        _TRACE,
        anchor_that_moves=(
            "ref_logprobs_BT, _ = score(ref_params)",
            "ref_logprobs_BT, _ = score(params)",
        ),
    ),
    *rows(
        "rlvr_jax/learn/run_updates.py",
        ("tests/learn/test_rfgo.py",),
        reference_features_of_the_policy=(
            "                ref_params, to_device(part), sampling, features\n",
            "                params, to_device(part), sampling, features\n",
        ),
    ),
    *rows(
        "rlvr_jax/learn/batches.py",
        ("tests/learn/test_rfgo.py",),
        trims_no_features=(
            "if array.ndim > 1 else array",
            "if array.ndim == 2 else array",
        ),
    ),
    *rows(
        "rlvr_jax/learn/run_updates.py",
        ("tests/learn/test_run_updates.py",),
        nan_passes=("or (math.isnan(gap)", "or (False"),
        divides_by_the_tokens_of_evaluation=(
            "max_length=train.sampling.max_new_tokens,",
            "max_length=config.eval.sampling.max_new_tokens,",
        ),
        sums_of_the_first_minibatch=("done[: train.num_minibatches]", "done[:1]"),
        sums_of_every_epoch=("done[: train.num_minibatches]", "done"),
        chooses_random_tokens_without_the_seed=(
            "(config.seed, version, _TOKEN_DRAW)",
            "(0, version, _TOKEN_DRAW)",
        ),
        chooses_the_same_random_tokens_every_step=(
            "(config.seed, version, _TOKEN_DRAW)",
            "(config.seed, 0, _TOKEN_DRAW)",
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/surrogates.py",
        ("tests/algorithms/test_loss_options.py",),
        dual_clip_of_raises=(
            "(advantage < 0) & (ratio > clip_ratio_c)",
            "(ratio > clip_ratio_c)",
        ),
        truncates_from_below=("jnp.minimum(log_ratio,", "jnp.maximum(log_ratio,"),
    ),
    *rows(
        "rlvr_jax/algorithms/surrogates.py",
        ("tests/learn/test_external_traces.py",),
        divides_a_trace_by_twice_its_share=(
            "(old_BT + 0.5 * (old_BT + 1.0))",
            "(old_BT + (old_BT + 1.0))",
        ),
        explores_with_a_gradient=(
            "-jnp.expm1(jax.lax.stop_gradient(tokens.logprobs))",
            "-jnp.expm1(tokens.logprobs)",
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/token_stats.py",
        ("tests/algorithms/test_token_stats.py",),
        statistics_without_the_factors=(
            "if batch.token_weights is not None:",
            "if False:",
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/token_stats.py",
        _POLICY_MASK,
        statistics_of_the_environments_tokens=(
            "mask_BT = batch.mask",
            "mask_BT = index_BT < length_B1",
        ),
    ),
    *rows(
        "rlvr_jax/learn/packing.py",
        (
            f"{_PACKING}::test_packed_tokens_come_back_where_they_were_and_so_does_a_gradient",
        ),
        padding_passes_a_gradient_on=(
            "return jnp.where(is_token, back, jnp.zeros_like(back)), None, None",
            "return back, None, None",
        ),
        every_completion_is_in_the_first_row=(
            "= row * width + start + index",
            "= start + index",
        ),
        padding_repeats_a_token=(
            "jnp.where(source_PX >= 0, packed_PX, 0)",
            "packed_PX",
        ),
    ),
    *rows(
        "rlvr_jax/learn/packing.py",
        ("rlvr_jax/learn/packing.py",),
        shortest_first=(
            'np.argsort(-lengths, kind="stable")',
            'np.argsort(lengths, kind="stable")',
        ),
    ),
    *rows(
        "rlvr_jax/learn/packing.py",
        (f"{_PACKING}::test_numbers_of_rows_are_few",),
        every_number_of_rows_is_a_program=("step = max(1, G // 8)", "step = 1"),
    ),
    *rows(
        "rlvr_jax/learn/micro_batches.py",
        ("tests/learn/test_micro_batches.py",),
        filler_has_tokens=(
            "lengths=np.where(is_filler_B, 0, batch.lengths)",
            "lengths=np.where(is_filler_B, batch.lengths, batch.lengths)",
        ),
        prompts_are_computed_for_nothing=(
            "np.array([true, P * S + rows.size])",
            "np.array([true, rows.size])",
        ),
        prompts_of_filler_are_true_tokens=(
            "batch.prompt_lengths[has_token_P].sum()",
            "batch.prompt_lengths.sum()",
        ),
        devices_get_parts_of_groups=(
            "group_multiple=num_batch_devices(),",
            "group_multiple=1,",
        ),
        packs_to_save_nothing=("<= 3 * G * width:", "<= 4 * G * width:"),
        sorts_by_length_before_rows=(
            "np.lexsort((longest_P, count_rows(lengths_PG, max_width)))",
            "np.lexsort((count_rows(lengths_PG, max_width), longest_P))",
        ),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        (f"{_RFGO}::test_the_guided_batch_is_the_written_equations",),
        movement_has_a_sign=(
            "step_BTR = jnp.abs(f[:, 1:] - f[:, :-1])",
            "step_BTR = f[:, 1:] - f[:, :-1]",
        ),
        movement_is_the_next_tokens=(
            "return jnp.pad(score_BT, first), has",
            "return jnp.pad(score_BT, ((0, 0), (0, 1))), has",
        ),
        movement_by_signed_weights=(
            "per_unit_R = jnp.abs(reasoning_features.weights)",
            "per_unit_R = (reasoning_features.weights)",
        ),
        adds_the_reference=(
            "activation - ref_BT",
            "activation + ref_BT",
        ),
        reads_the_policy_always=(
            'if config.features_of == "reference":',
            "if False:",
        ),
        quality_grows_with_length=(
            "activation_BT.sum(axis=1) / _row_count(has_activation_BT)[:, 0]",
            "activation_BT.sum(axis=1)",
        ),
        the_last_token_has_an_activation=(
            "length_mask(batch.lengths - 1, batch",
            "length_mask(batch.lengths, batch",
        ),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        (f"{_RFGO}::test_weights_have_mean_one_on_every_sequence_under_any_mask",),
        weights_have_any_mean=(
            "return weight_BT * (_row_count(mask_BT) / _nonzero(sum_B1))",
            "return weight_BT",
        ),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        (f"{_RFGO}::test_every_completion_is_shuffled_in_an_order_of_its_own",),
        one_shuffle_for_all_rows=(
            "jax.random.fold_in(key, row), weight",
            "jax.random.fold_in(key, 0 * row), weight",
        ),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        (f"{_RFGO}::test_a_completion_of_one_token_earns_no_proxy_and_has_no_say",),
        one_token_earns_a_proxy=(
            "batch.probe_targets.proxy_eligible & (batch.lengths > 1)",
            "batch.probe_targets.proxy_eligible",
        ),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        (f"{_RFGO}::test_sums_are_counted_once_and_by_band",),
        the_guard_reads_unclipped_quality=(
            "quality_B = jnp.clip(quality_B, -config.proxy_clip, config.proxy_clip)",
            "quality_B = quality_B + 0.0",
        ),
        the_unverified_have_an_outcome=(
            "verified_PG = (outcome_PG < 2) &",
            "verified_PG = (outcome_PG < 3) &",
        ),
        silent_groups_are_evidence=(
            "jnp.where(informative_P[:, None], center(quality.reshape(P, -1)), 0.0)",
            "center(quality.reshape(P, -1))",
        ),
    ),
    *rows(
        "rlvr_jax/learn/rfgo.py",
        (f"{_RFGO}::test_weights_are_shuffled_among_the_policys_tokens_only",),
        shuffles_into_an_environments_reply=(
            "jnp.argsort(places_BT, axis=1), axis=1)",
            "jnp.argsort(jnp.sort(places_BT, axis=1), axis=1), axis=1)",
        ),
    ),
]
