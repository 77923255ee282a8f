"""One-line mutants of the program, and the tests that must notice each.

The lines are those on which a run hangs and no shape or type check does: which weights,
which key, which sign, which row.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`old`, which stands once in `file`, becomes `new`; one of `tests` must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """Returns the file's text with the mutant. ValueError unless `old` is once."""
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file} holds {text.count(self.old)} times "
                f"{self.old!r}; bring tests/mutants/table.py up to date"
            )
        return text.replace(self.old, self.new)

    def __str__(self) -> str:
        return f"{self.name}: {self.old!r} -> {self.new!r}"


def _of(file: str, tests: tuple[str, ...], **lines: tuple[str, str]) -> list[Mutant]:
    """Returns the mutants of a file, named after it and their keyword."""
    stem = file.removesuffix(".py").replace("/", ".").removeprefix("rlvr_jax.")
    return [
        Mutant(f"{stem}.{name}", file, old, new, tests)
        for name, (old, new) in lines.items()
    ]


_ACCELERATOR = ("tests/test_accelerator.py",)
_TRACE = ("tests/integration/test_trace.py",)
_STALE = ("tests/integration/test_staleness.py",)
_EPISODES = ("tests/rollouts/test_episodes.py",)
_BACKGROUND = ("tests/job_jax/trackers/test_background.py",)
_JOINT = ("tests/job_jax/buckets/test_joint.py",)
_MIRROR = ("tests/job_jax/buckets/test_mirror.py",)
_ALL_BIASES = (
    "tests/models/test_families.py::"
    "test_logits_are_hugging_faces_beyond_any_window[left-False-llama_yarn]"
)
_POLICY_MASK = ("tests/learn/test_policy_mask.py",)

MUTANTS = [
    *_of(
        "rlvr_jax/rollouts/collect.py",
        _TRACE,
        rewards_what_is_incorrect=(
            '(statuses == "correct")',
            '(statuses == "incorrect")',
        ),
        verifies_all=('(statuses != "unverified")', '(statuses != "none")'),
        one_key_for_all_steps=(
            "batch_key(np.uint32(current.num_batches))",
            "batch_key(np.uint32(0 * current.num_batches))",
        ),
        one_batch_for_all_rounds=(
            "difficulty, num_batches=difficulty.num_batches + len(rounds)",
            "difficulty, num_batches=difficulty.num_batches",
        ),
        pays_for_length=(
            'reward_PG + parts_PG["overlong"]',
            'reward_PG - parts_PG["overlong"]',
        ),
        guards_the_easy=("prior.mean < hard,", "prior.mean > hard,"),
        samples_other_weights=(
            "place_params(state.params)",
            "place_params(jax.tree.map(lambda x: 0.9 * x, state.params))",
        ),
        counts_one_batch=("num_batches=len(rounds),", "num_batches=1,"),
        learns_of_one_round=(
            "for sampled in rounds for outcome",
            "for sampled in rounds[:1] for outcome",
        ),
        never_samples_again=(
            "if num_with_signal >= config.train.batch_size:",
            "if num_with_signal >= 0:",
        ),
        stale_bands=(
            "difficulty.gather(groups.problem_index.tolist())",
            "difficulty.gather([0] * len(groups))",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/collect.py",
        ("tests/rollouts/test_collect.py",),
        shrinks_by_doubt=("(1.0 - prior.cdf(hard))", "prior.cdf(hard)"),
        shrinks_nothing=(
            "scale_by_confidence(advantages_PG, confidence_P)",
            "advantages_PG",
        ),
        signal_of_shaped_rewards=(
            "has_signal(correctness_rewards(*statuses)),",
            "has_signal(reward_PG),",
        ),
        forgets_what_it_asked=("batch_size, asked=asked)", "batch_size)"),
        judges_everyone=("judged_PG,\n        baseline", "None,\n        baseline"),
    ),
    *_of(
        "rlvr_jax/rollouts/own_rewards.py",
        ("tests/rollouts/test_own_rewards.py",),
        failures_earn_nothing=(
            "math.nan if outcome.failure or",
            "0.0 if outcome.failure or",
        ),
        one_limit_for_a_whole_step=("* max(1, len(completions))", "* 1"),
        takes_all_for_one=('== "problem"', '!= "problem"'),
    ),
    *_of(
        "rlvr_jax/verifiers/grader.py",
        ("tests/verifiers/test_grader.py",),
        failures_are_incorrect=(
            'Verdict(status="unverified", reason=reason, failure',
            'Verdict(status="incorrect", reason=reason, failure',
        ),
        limits_of_the_section_alone=(
            "verifier.limits or self._limits",
            "self._limits or verifier.limits",
        ),
        mixes_up_rows=("zip(rows, graded, strict=True)", "enumerate(graded)"),
    ),
    *_of(
        "rlvr_jax/verifiers/judge.py",
        ("tests/verifiers/test_judge.py",),
        reads_any_line=('or [""])[-1]', 'or [""])[0]'),
        one_mark_for_all=(
            "blake2b(told.encode(), digest_size=8)",
            "blake2b(digest_size=8)",
        ),
        keeps_unreadable_replies=(
            "        read_score(self.config, reply)\n        self._replies",
            "        self._replies",
        ),
        never_tries_again=("attempt == self.config.max_attempts", "attempt >= 1"),
        tries_for_ever=("attempt == self.config.max_attempts", "attempt == 99"),
        asks_each_time=("if key not in self._asking:", "if True:"),
    ),
    *_of(
        "job_jax/calls.py",
        ("tests/job_jax/test_calls.py",),
        all_at_once=("Semaphore(limits.concurrency)", "Semaphore(10**6)"),
        errors_stop_an_overrun=(
            "class _Overrun(BaseException)",
            "class _Overrun(Exception)",
        ),
        shorter_limits=(
            "timeout=timeout_s)\n    if not done",
            "timeout=timeout_s / 9)\n    if not done",
        ),
    ),
    *_of(
        "rlvr_jax/data/difficulty.py",
        ("tests/data/test_curricula.py",),
        favors_what_is_never_judged=(
            "2 * self.num_graded_visits < self.num_visits",
            "2 * self.num_graded_visits < 0 * self.num_visits",
        ),
    ),
    *_of(
        "rlvr_jax/models/parameters.py",
        ("tests/learn/test_bfloat16.py",),
        rows_add_up_in_their_dtype=(
            "jnp.zeros((num_rows, gradient_BTD.shape[-1]), jnp.float32)",
            "jnp.zeros((num_rows, gradient_BTD.shape[-1]), dtype)",
        ),
        biases_add_up_in_their_dtype=("bias.astype(jnp.float32),", "bias,"),
        multiplies_float32_gradients=(
            "gradient = gradient.astype(a.dtype)",
            "gradient = gradient + 0",
        ),
    ),
    *_of(
        "rlvr_jax/learn/logprobs.py",
        ("tests/learn/test_bfloat16.py",),
        chunks_add_up_in_their_dtype=(
            "policy.output_table.astype(jnp.float32)",
            "policy.output_table",
        ),
    ),
    *_of(
        "rlvr_jax/models/distribution.py",
        ("tests/models/test_distribution.py",),
        draws_from_23_bits=('mode="high"', 'mode="low"'),
        one_noise_for_both_choices=(
            "logits_CW + gumbel_CX[:, N:]",
            "logits_CW + gumbel_CX[:, :W]",
        ),
        blocks_of_equal_weight=(
            "block_logits_CN + gumbel_CX",
            "0 * block_logits_CN + gumbel_CX",
        ),
        draws_behind_the_last_token=(
            "jnp.where(token_CW < V, logits_CW, _EXCLUDED_LOGIT)",
            "logits_CW",
        ),
    ),
    *_of(
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
            "= score(params, entropies=by_entropy)",
            "= score(ref_params, entropies=by_entropy)",
        ),
    ),
    *_of(
        "rlvr_jax/learn/objectives.py",
        ("tests/learn/test_on_policy.py", "tests/learn/test_loss_options.py"),
        never_on_policy=("[:, None], own_BT, old_BT)", "[:, None], old_BT, old_BT)"),
        weighs_by_the_old_alone=(
            "_mask(old_BT - _sampler_logprobs(batch), batch), cap",
            "_mask(old_BT - batch.old_logprobs, batch), cap",
        ),
    ),
    *_of(
        "rlvr_jax/learn/surrogates.py",
        ("tests/learn/test_loss_options.py",),
        dual_clip_of_raises=(
            "(advantage < 0) & (ratio > config.clip_ratio_c)",
            "(ratio > config.clip_ratio_c)",
        ),
        truncates_from_below=("jnp.minimum(log_ratio,", "jnp.maximum(log_ratio,"),
    ),
    *_of(
        "rlvr_jax/learn/surrogates.py",
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
    *_of(
        "rlvr_jax/learn/objectives.py",
        ("tests/learn/test_external_traces.py",),
        learns_of_traces_twice=("batch = batch.without_external()", "pass"),
    ),
    *_of(
        "rlvr_jax/learn/advantages.py",
        ("tests/learn/test_external_traces.py",),
        measures_a_trace_by_itself=(
            "(trace_P1 - _mean(own_PG, judged_PG))",
            "(trace_P1 - counted_PH.mean(axis=1, keepdims=True))",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/external.py",
        ("tests/integration/test_external_traces.py",),
        teaches_what_is_wrong=(
            'if verdict.status == "correct"',
            'if verdict.status != "none"',
        ),
    ),
    *_of(
        "rlvr_jax/learn/batches.py",
        ("tests/learn/test_batches.py",),
        excludes_by_a_single_zero=("!= 0).any(axis=1)", "!= 0).all(axis=1)"),
    ),
    *_of(
        "rlvr_jax/learn/micro_batches.py",
        ("tests/learn/test_run_updates.py",),
        scores_in_the_order_of_lengths=(
            "whole_PGT[groups_Q[is_group], :, :width] =",
            "whole_PGT[np.sort(groups_Q)[is_group], :, :width] =",
        ),
    ),
    *_of(
        "rlvr_jax/models/masks.py",
        ("tests/learn/test_packing.py",),
        segments_that_see_their_neighbors=(
            "mask_UTS = same_UTS & (distance_TS >= 0)[None]",
            "mask_UTS = (same_UTS | True) & (distance_TS >= 0)[None]",
        ),
        positions_that_go_on_from_the_neighbor=(
            "jnp.repeat(starts_P, rows)[:, None] + segments.index",
            "jnp.repeat(starts_P, rows)[:, None] + jnp.arange(T)[None]",
        ),
    ),
    *_of(
        "rlvr_jax/learn/logprobs.py",
        ("tests/learn/test_packing.py",),
        predicts_a_first_token_from_the_neighbor=(
            "is_first_UT1 = (rows.index == 0)",
            "is_first_UT1 = (rows.index < 0)",
        ),
    ),
    *_of(
        "rlvr_jax/learn/packing.py",
        ("tests/learn/test_packing.py",),
        overfills_a_row=("if left >= length)", "if left + 1 >= length)"),
    ),
    *_of(
        "rlvr_jax/learn/optimizer.py",
        ("tests/learn/test_update.py",),
        decays_biases=(' and "bias" not in name', ""),
    ),
    *_of(
        "rlvr_jax/rollouts/groups.py",
        ("tests/rollouts/test_collect.py", *_TRACE),
        prefers_the_silent=("key=lambda rp: not rounds", "key=lambda rp: rounds"),
        counts_the_unverified=(
            'if graded.verdict.status != "unverified"',
            'if graded.verdict.status != "none"',
        ),
        flags_the_easy=('band == "hard" and posterior', 'band == "easy" and posterior'),
        forgets_what_was_never_solved=(
            "prior.last_pass_rate[p] >= 0.5",
            "prior.last_pass_rate[p] < 0.5",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/sample.py",
        _TRACE,
        one_key_for_all_streams=(
            "setup.stream_key(stream)",
            'setup.stream_key("train")',
        ),
    ),
    *_of(
        "rlvr_jax/learn/run_updates.py",
        _TRACE,
        anchor_that_moves=(
            "ref_logprobs_BT, _ = score(ref_params)",
            "ref_logprobs_BT, _ = score(params)",
        ),
    ),
    *_of(
        "rlvr_jax/stages/trainer_rollouts.py",
        _TRACE,
        stale_difficulty=(
            "            state.difficulty,\n            step",
            "            trainer.pool.initial(),\n            step",
        ),
        one_step_for_all=(
            "            step=step,\n            batch",
            "            step=0,\n            batch",
        ),
    ),
    *_of(
        "rlvr_jax/stages/trainer_rollouts.py",
        _STALE,
        counts_none_ahead=(
            "pending=pending,\n                weight_version",
            "pending=[],\n                weight_version",
        ),
        asks_as_an_older_step=("step=step + len(pending),", "step=step,"),
        grades_other_problems=(
            "setup, drawn.problems, rollouts",
            "setup, later[0].problems if later else drawn.problems, rollouts",
        ),
        draws_nothing_ahead=("count = 1 + setup.config.train.staleness", "count = 1"),
    ),
    *_of(
        "rlvr_jax/rollouts/draw.py",
        _STALE,
        one_key_for_all_steps=(
            "batch_key(np.uint32(now.num_batches))",
            "batch_key(np.uint32(difficulty.num_batches))",
        ),
        asks_again_meanwhile=(", asked=asked)", ")"),
    ),
    *_of(
        "rlvr_jax/stages/trainer_state.py",
        _STALE,
        resumes_nothing_drawn=(
            'pending=tuple(DrawnBatch.from_json(pool, one) for one in data["pending"])',
            "pending=()",
        ),
    ),
    *_of(
        "rlvr_jax/stages/trainer.py",
        _TRACE,
        starts_from_nothing=(
            'lambda: load_stage_params(ctx, "sft")',
            "lambda: ctx.setup.initial_params()",
        ),
        turns_advantages=(
            "        rollouts.advantages,\n        bands_P",
            "        -rollouts.advantages,\n        bands_P",
        ),
        evaluates_the_reference=(
            "merge_frozen(state.device.params)",
            "merge_frozen(trainer.reference)",
        ),
        forgets_estimates=(
            "            initial_difficulty(trainer.ctx, trainer.pool),",
            "            trainer.pool.initial(),",
        ),
        remembers_no_verdicts=(
            "        difficulty=estimates,",
            "        difficulty=state.difficulty,",
        ),
        remembers_no_scale=("        rfgo=rfgo,", "        rfgo=state.rfgo,"),
        remembers_no_alarms=(
            "        doctor=doctor_state,",
            "        doctor=state.doctor,",
        ),
    ),
    *_of(
        "rlvr_jax/stages/trainer_state.py",
        _TRACE,
        resumes_a_fresh_doctor=(
            'doctor=DoctorState.from_json(data["doctor"])',
            "doctor=DoctorState()",
        ),
        resumes_no_estimates=(
            'difficulty.from_json(data["difficulty"])',
            'difficulty.init_difficulty(data["difficulty"]["size"])',
        ),
    ),
    *_of(
        "rlvr_jax/stages/difficulty.py",
        _TRACE,
        estimates_another_policy=(
            'place_params(load_stage_params(ctx, "sft"))',
            "place_params(ctx.setup.initial_params())",
        ),
    ),
    *_of(
        "rlvr_jax/stages/eval.py",
        _TRACE,
        evaluates_one_policy_twice=('("after", "train")', '("after", "sft")'),
    ),
    *_of(
        "rlvr_jax/stages/probe.py",
        _TRACE,
        probes_another_policy=(
            'params = load_stage_params(ctx, "sft")',
            "params = ctx.setup.initial_params()",
        ),
    ),
    *_of(
        "rlvr_jax/stages/probe_hooks.py",
        _TRACE,
        one_shuffle=("jax.random.fold_in(self.key, step)", "self.key"),
        no_scale=("            rfgo.scale,", "            [1.0] * len(rfgo.scale),"),
        never_shuffles=(
            "shuffle_weights=self.ctx.setup.config.probe.shuffles_weights",
            "shuffle_weights=False",
        ),
    ),
    *_of(
        "sae_jax/stats/confirmation.py",
        ("tests/sae_jax/stats/test_within_prompts.py",),
        one_half_twice=("sums.take(order_N[N // 2 :])", "sums.take(order_N[: N // 2])"),
        any_sign=("np.where(same_K, p_K / 2, 1 - p_K / 2)", "p_K / 2"),
        never_shrinks=("1.0 - (error_K / safe_K) ** 2", "1.0 + 0.0 * error_K"),
        no_correction=("benjamini_hochberg(", "np.asarray("),
    ),
    *_of(
        "rlvr_jax/probe/feature_selection.py",
        ("tests/probe/test_feature_selection.py",),
        signs_of_the_features=("choice.score[latents] < 0", "weights < 0"),
        unstable_too=("usable=alive_Z & stable_Z", "usable=alive_Z"),
        all_confirmed=(
            "kept_K = confirmation.confirmed(config.fdr)",
            "kept_K = confirmation.q_values <= 1",
        ),
    ),
    *_of(
        "rlvr_jax/probe/control_features.py",
        ("tests/probe/test_feature_selection.py",),
        directions_fire_where_their_latents_do_not=("1.0 - rate)", "rate)"),
        directions_fire_on_every_token=(
            "projection_NR - bound_R, 0.0)",
            "projection_NR, 0.0)",
        ),
        directions_all_count_for=("np.where(effect.value < 0, -1.0, 1.0)", "1.0"),
        directions_are_those_of_one_seed=(
            "random, R = np.random.default_rng(seed)",
            "random, R = np.random.default_rng(0)",
        ),
    ),
    *_of(
        "rlvr_jax/probe/rfgo_state.py",
        ("tests/probe/test_rfgo_state.py",),
        scale_grows=("(1 - rate) * mean_square_R", "(1 + rate) * mean_square_R"),
        never_turns_off=("low >= config.min_correlation", "low >= -2"),
        no_error_bar=("low=float(low)", "low=float(value)"),
        anneals_upwards=(
            "1.0 - step / config.anneal_steps",
            "step / config.anneal_steps",
        ),
        counts_anew=(
            "self.num_proxy_groups + int(sums.proxy_groups)",
            "int(sums.proxy_groups)",
        ),
    ),
    *_of(
        "rlvr_jax/sampler/slots.py",
        ("tests/sampler/test_slots.py",),
        draws_with_its_predecessors_key=(
            "keys=chosen(new.keys, slots.keys)",
            "keys=slots.keys",
        ),
        reads_another_prompt=("prompt_R = row_R // group_size", "prompt_R = row_R"),
        stores_from_the_start_of_the_ring=(
            "(slots.start[:, None] + token_T[None])",
            "(0 * slots.start[:, None] + token_T[None])",
        ),
        skips_a_row_at_every_refill=(
            "next_row_1 + taken",
            "next_row_1 + taken + 1",
        ),
        never_compacts=("slots - free_n(state) > fewer", "slots - free_n(state) > 0"),
    ),
    *_of(
        "rlvr_jax/models/masks.py",
        ("tests/sampler/test_slots.py",),
        reads_its_predecessors_cache=(
            "distance_S[None] <= index_B[:, None]",
            "distance_S[None] <= 0 * index_B[:, None] + length",
        ),
    ),
    *_of(
        "rlvr_jax/sandbox/tester.py",
        ("tests/sandbox/test_pool.py",),
        fault=("passed = not reason and not program.fault", "passed = not reason"),
        plain=("return decode(answer", "return (answer"),
    ),
    *_of(
        "rlvr_jax/sandbox/jail.py",
        ("tests/sandbox/test_pool.py",),
        files=("    os.closerange(CHANNEL", "    (CHANNEL"),
        memory=("resource.RLIMIT_AS: memory_bytes", "resource.RLIMIT_AS: 1 << 44"),
    ),
    *_of(
        "rlvr_jax/verifiers/code.py",
        ("tests/verifiers/test_code.py",),
        block=("return blocks[-1]", "return blocks[0]"),
        prefix=("wanted.prefix + extract_program", "extract_program"),
    ),
    *_of(
        "rlvr_jax/tasks/code/records.py",
        ("tests/tasks/code/test_records.py",),
        functions=(
            "defined_names(program) & used_names(parsed)",
            "defined_names(program) | used_names(parsed)",
        ),
    ),
    *_of(
        "rlvr_jax/tasks/code/programs.py",
        ("tests/tasks/code/test_programs.py",),
        twins=("rng.random() < rate", "rng.random() > rate"),
        seed=("_EVAL_SEED if is_held_out else seed", "seed"),
    ),
    *_of(
        "rlvr_jax/verifiers/math_worker.py",
        ("tests/verifiers/test_near_misses.py",),
        any_sign=("if number == gold_number:", "if abs(number) == abs(gold_number):"),
        either_sign=(
            "if number == gold_number:",
            "if number == gold_number or number == -gold_number:",
        ),
        any_scale=(
            "if number == gold_number:",
            "if number in (gold_number, 10 * gold_number):",
        ),
        inverse=(
            "if number == gold_number:",
            "if number == gold_number or number * gold_number == 1:",
        ),
    ),
    *_of(
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
    *_of(
        "benchmarks/accelerator/schedule.py",
        _ACCELERATOR,
        saved_parts_run_again=(
            "if self._results.is_final(part.name):",
            "if False:",
        ),
        begins_without_time=("elif part.estimate_s > left:", "elif left < 0:"),
        runs_past_the_budget=("min(part.limit_s, left)", "part.limit_s"),
        all_stops_are_interruptions=("if by_limit else", "if False else"),
    ),
    *_of(
        "benchmarks/accelerator/results.py",
        _ACCELERATOR,
        interrupted_parts_are_final=(
            '_FINAL = ("done", "failed")',
            '_FINAL = ("done", "failed", "interrupted")',
        ),
    ),
    *_of(
        "benchmarks/accelerator/roofline.py",
        _ACCELERATOR,
        one_round_of_slots=("rounds = -(-len(tokens) // slots)", "rounds = 1"),
        steps_of_the_longest_row_alone=(
            "-(-int((tokens - 1).sum()) // slots)",
            "0",
        ),
    ),
    *_of(
        "benchmarks/accelerator/workload.py",
        _ACCELERATOR,
        rows_end_a_token_late=("workload.limit + 1 - count", "workload.limit - count"),
    ),
    *_of(
        "benchmarks/counts.py",
        _ACCELERATOR,
        frozen_weights_have_gradients=(
            "round(2 * products + 3 * attention)",
            "round(3 * products + 3 * attention)",
        ),
    ),
    *_of(
        "benchmarks/compare.py",
        ("tests/test_benchmark_compare.py",),
        faster_is_slower=(
            "new.interval[1] < old.interval[0]",
            "new.interval[0] > old.interval[1]",
        ),
        touching_is_slower=(
            "new.interval[1] < old.interval[0]",
            "new.interval[1] <= old.interval[0]",
        ),
    ),
    *_of(
        "rlvr_jax/sampler/generate.py",
        ("tests/sampler/test_begun.py",),
        every_turn_draws_anew=(
            "index_R = slots.offset + slots.index",
            "index_R = slots.index",
        ),
        one_sample_for_all_begun_rows=(
            "jax.vmap(of_row)(prompts.uid, begun.sample)",
            "jax.vmap(of_row)(prompts.uid, 0 * begun.sample)",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/episodes.py",
        _EPISODES,
        the_environments_tokens_are_the_policys=(
            "self.by_policy += [False] * len(tokens)",
            "self.by_policy += [True] * len(tokens)",
        ),
        a_row_goes_on_as_another_sample=(
            "sample=(numbers % self.num_samples)",
            "sample=(0 * numbers)",
        ),
        a_row_goes_on_from_another_prompt=(
            "p = row.number // self.num_samples",
            "p = 0 * row.number",
        ),
        a_turn_cut_by_the_limit_is_answered=(
            "bool(drawn.finished[at]) and kept == length",
            "True",
        ),
        a_reply_fills_the_last_token=(
            "self.goes_on = len(tokens) < room",
            "self.goes_on = len(tokens) <= room",
        ),
        a_half_waits_for_its_answers=(
            "start_aside(answer) if environment.overlap and calls else answer",
            "answer",
        ),
        a_failure_is_an_end=(
            "reply.verdict is None or reply.verdict.failure is None",
            "True",
        ),
        filler_is_answered=(
            "sampler.split(rows[:num_rows])",
            "sampler.split(rows)",
        ),
        a_last_reply=(
            "if turn < environment.max_turns else 0",
            "if turn <= environment.max_turns else 0",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/groups.py",
        _EPISODES,
        masks_are_not_chosen=(
            "policy_mask=select(masks) if masks else None",
            "policy_mask=masks[0] if masks else None",
        ),
    ),
    *_of(
        "rlvr_jax/learn/batches.py",
        _POLICY_MASK,
        the_environments_tokens_are_learned_from=(
            "loss_mask = batch.policy_mask if batch.loss_mask is None else",
            "loss_mask =",
        ),
    ),
    *_of(
        "rlvr_jax/learn/losses.py",
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
    *_of(
        "rlvr_jax/learn/rfgo.py",
        _POLICY_MASK,
        features_of_the_environments_tokens=(
            "return batch.mask & length_mask(",
            "return length_mask(",
        ),
    ),
    *_of(
        "rlvr_jax/learn/token_stats.py",
        _POLICY_MASK,
        statistics_of_the_environments_tokens=(
            "mask_BT = batch.mask",
            "mask_BT = index_BT < length_B1",
        ),
    ),
    *_of(
        "rlvr_jax/stages/sft.py",
        ("tests/integration/test_environments.py",),
        sft_fits_what_the_environment_says=(
            "if not config.environment.enabled:",
            "if config.environment.enabled:",
        ),
    ),
    *_of(
        "rlvr_jax/environments/calculator.py",
        ("tests/environments/test_calculator.py",),
        negative_words=("0 <= value <= self", "value <= self"),
    ),
    *_of(
        "rlvr_jax/environments/finite_field.py",
        ("tests/environments/test_finite_field.py",),
        guesses_hold=("            and report.consistent_start\n", ""),
        several_steps_hold=(
            "len(words) == _STEP_WORDS + (0 if held else _HEADER_WORDS)",
            "len(words) >= _STEP_WORDS + (0 if held else _HEADER_WORDS)",
        ),
    ),
    *_of(
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
    *_of(
        "sae_jax/sparse.py",
        ("tests/sae_jax/test_sparse.py",),
        a_crowd_fits=("fits=crowded_B.sum() <= room", "fits=crowded_B.sum() >= 0"),
        bias_of_the_decoder_the_wrong_way=(
            "ct_D = -matmul_float32",
            "ct_D = matmul_float32",
        ),
        groups_are_one=("group_RK == g, value_RK, 0.0", "g == 0, value_RK, 0.0"),
    ),
    *_of(
        "sae_jax/optimize.py",
        ("tests/sae_jax/test_sparse.py",),
        what_does_not_fit_is_sparse=("jnp.where(fits & (dead", "jnp.where((dead"),
    ),
    *_of(
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
    *_of(
        "sae_jax/data/buffered.py",
        ("tests/sae_jax/data/test_buffered.py",),
        reads_every_lane=(
            "for lane in self._own_lanes():",
            "for lane in range(lanes):",
        ),
        rows_of_later_blocks_are_the_firsts=("row_N = held + np", "row_N = np"),
        begins_each_buffer_anew=("range(max(begin, first), min(", "range(begin, min("),
    ),
    *_of(
        "job_jax/digests.py",
        ("tests/job_jax/test_checkpoint.py",),
        a_changed_file_is_intact=("digest_of(file) != recorded[path]", "False"),
        a_damaged_checkpoint_is_read=("if not damaged:", "if True:"),
        digests_of_removed_steps_stay=("if old.name not in kept:", "if False:"),
    ),
    *_of(
        "job_jax/workdir.py",
        ("tests/integration/test_runs.py::test_a_workdir_has_one_run_at_a_time",),
        two_runs_share_a_workdir=("fcntl.LOCK_EX | fcntl.LOCK_NB", "fcntl.LOCK_UN"),
    ),
    *_of(
        "sae_jax/data/views.py",
        ("tests/sae_jax/data/test_views.py",),
        joins_other_texts=('"token_id", "role", "problem"', '"role", "problem"'),
        a_subset_reads_others=(
            "self._data.rows(self._token_M[tokens])",
            "self._data.rows(tokens)",
        ),
    ),
    *_of(
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
    *_of(
        "sae_jax/capture/splice.py",
        ("tests/sae_jax/capture/test_splice.py",),
        counts_what_predicts_nothing=(
            "token_index[:, 1:] >= 0",
            "token_index[:, 1:] >= -1",
        ),
        takes_any_model=("not difference <= _MAX_DIFFERENCE", "difference < 0"),
        clean_is_the_baseline=("(nats[2] - nats[0])", "(nats[2] - 0 * nats[0])"),
    ),
    *_of(
        "sae_jax/stats/crosscoder.py",
        ("tests/sae_jax/stats/test_crosscoder.py",),
        own_part_is_not_put_back=("return own_KZ + np.where", "return np.where"),
        norms_say_it=(
            "kind_of(each) for each in share.value",
            "kind_of(each) for each in last_share(norm_KZ)",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/crosscoder/fit.py",
        ("tests/analysis/crosscoder/test_crosscoder.py",),
        measures_on_what_trained=(
            'np.isin(shards.column("problem"), problems.measured)',
            'np.isin(shards.column("problem"), problems.trained)',
        ),
    ),
    *_of(
        "rlvr_jax/analysis/crosscoder/texts.py",
        ("tests/analysis/crosscoder/test_crosscoder.py",),
        one_author=("authors.items()\n", "list(authors.items())[:1]\n"),
        noise_of_another_size=("target=measure_drift(after)", "target=9.0"),
    ),
    *_of(
        "rlvr_jax/models/huggingface/match.py",
        ("tests/models/test_match.py",),
        overrules_what_is_given=("if name in _OWN or value ==", "if value or value =="),
        longer_than_its_context=("value > theirs.max_seq_len", "value < 0"),
        room_beyond_its_context=(
            "max_seq_len=min(model.max_seq_len, theirs.max_seq_len)",
            "max_seq_len=model.max_seq_len",
        ),
    ),
    *_of(
        "job_jax/config_io.py",
        ("tests/models/test_match.py",),
        gives_what_was_left_out=(
            "elif field.name not in section.stated:",
            'elif field.name == "":',
        ),
    ),
    *_of(
        "job_jax/config_io.py",
        ("tests/job_jax/test_config_io.py",),
        needed_fields_came_later=("if not has_default(field):", "if False:"),
        later_fields_are_not_told=('if ": absent -> " in line', "if not line"),
    ),
    *_of(
        "rlvr_jax/run/workdir.py",
        ("tests/run/test_workdir.py",),
        takes_steps_back=("if num_steps < done:", "if num_steps < 0:"),
        keeps_no_step_that_is_done=("if num_steps < done:", "if num_steps <= done:"),
        any_schedule=('schedule != "constant"', 'schedule == ""'),
        nothing_drawn_ahead=(
            "if done > train.steps - train.staleness:",
            "if done >= train.steps:",
        ),
        keeps_the_scores=('for name in ("after", "gain"):', 'for name in ("gain",):'),
    ),
    *_of(
        "rlvr_jax/run/lineage.py",
        ("tests/run/test_lineage.py",),
        oldest=("there[stage][-1]", "there[stage][0]"),
        any_other_checkpoint=("or mark not in marks", "or mark is None"),
        sft_again=("replace(config.sft, steps=0)", "replace(config.sft)"),
    ),
    *_of(
        "rlvr_jax/run/start.py",
        ("tests/run/test_start.py",),
        asks_the_same_again=(
            'num_batches = host["difficulty"]["num_batches"]',
            "num_batches = 0 * len(host)",
        ),
        schedule_goes_on=(
            "opt_state=restart_schedule(state.opt_state)",
            "opt_state=state.opt_state",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/graded.py",
        ("tests/rollouts/test_show.py",),
        tells_the_advantage_as_reward=(
            'row["reward"] = float(rewards_PG.flat[b])',
            'row["reward"] = float(advantages_PG.flat[b])',
        ),
        tells_no_gold=('"gold": self.problem.gold,', '"gold": "",'),
    ),
    *_of(
        "rlvr_jax/metrics/reward_symptoms.py",
        ("tests/metrics/test_doctor.py",),
        a_lucky_coin_sees=("if low > 0:", "if mean > 0:"),
        blind_by_too_few=("if len(gaps) < _MIN_GAP_STEPS", "if len(gaps) < 0.0"),
        what_does_not_vary_sees=("low = high = mean", "return"),
    ),
    *_of(
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
    ),
    *_of(
        "rlvr_jax/tasks/records/records.py",
        ("tests/tasks/records/test_files.py",),
        levels_count_from_0=(
            "return 1 + order.index(name)",
            "return order.index(name)",
        ),
    ),
    *_of(
        "rlvr_jax/verifiers/grader.py",
        ("tests/verifiers/test_grader.py",),
        believes_prose=("or verifier.describe_gold_fault(problem)", 'or ""'),
    ),
    *_of(
        "job_jax/buckets/commits.py",
        _MIRROR,
        reuses_a_number=("if store.list(COMMITS)[-1] != name:", "if False:"),
        reads_the_oldest=("store.read(names[-1])", "store.read(names[0])"),
        removes_what_is_named=(
            "gone = {each.object for each in before.files.values()} - named",
            "gone = {each.object for each in before.files.values()}",
        ),
        keeps_what_nobody_names=("if n not in named", "if n in ()"),
    ),
    *_of(
        "job_jax/buckets/fetch.py",
        _MIRROR,
        believes_any_bytes=("if not is_intact(partial, stored):", "if False:"),
        trusts_what_was_cut=("self._path.unlink(missing_ok=True)", "pass"),
        leaves_empty_steps=("path.rmdir()", "pass"),
        keeps_other_times=("os.utime(partial, ns=", "dict(ns="),
    ),
    *_of(
        "job_jax/buckets/mirror.py",
        _MIRROR,
        commits_before_it_uploads=(
            "self._store.upload(name, copy)",
            "self._uploader.submit(self._store.upload, name, copy)",
        ),
        links_what_is_appended_to=(
            'if path.startswith("checkpoints/"):',
            "if True:",
        ),
        claims_nothing=(
            "number=before.number + 1, owner",
            "number=before.number, owner",
        ),
        tells_nobody=("upload.result()", "pass"),
    ),
    *_of(
        "job_jax/buckets/joint.py",
        _JOINT,
        names_what_was_cut=('if f"{folder}/{_COMPLETE}" not in found:', "if False:"),
        is_ahead_of_its_files=(
            "sorted(checkpoints - self._named)",
            "sorted(self._begun - self._named)",
        ),
        keeps_every_checkpoint=(
            "return newest_checkpoints(files, self._max_to_keep)",
            "return files",
        ),
        carries_copies_as_well=(
            'if not path.startswith(f"{CHECKPOINTS}/")]',
            "]",
        ),
        drops_the_new_with_the_old=(
            "and stored.object not in self._dropped",
            "",
        ),
        follows_anybody=("if commit.number != number:", "if False:"),
        forgets_its_own_files=("keeps_unknown=True", "keeps_unknown=False"),
        commits_as_another=(
            "if processes.is_primary():\n            super().publish()",
            "super().publish()",
        ),
    ),
    *_of(
        "job_jax/trackers/background.py",
        _BACKGROUND,
        hands_over_what_is_held=("if is_new:", "if True:"),
        begins_behind_the_file=(
            "self._read_lines()[self._next :]",
            "self._read_lines()[self._next + 1 :]",
        ),
        forgets_a_failure=(
            "self._tracker.log(self._described)",
            "self._next += 1; self._tracker.log(self._described)",
        ),
        keeps_no_mark=(
            "self._state.mark(self.name, line.number + 1)",
            "self._state.mark(self.name, line.number)",
        ),
        holds_everything=("len(self._pending) < _MAX_PENDING", "True"),
        ends_with_its_tracker=(
            "except (Exception, SystemExit) as error:\n                self._warn",
            "except Exception as error:\n                self._warn",
        ),
        begins_untracked=("if not self.run.num_logged:", "if False:"),
        marks_what_was_lost=(
            "self._state.mark_finished(self.name, False)",
            "pass",
        ),
    ),
    *_of(
        "rlvr_jax/tracking.py",
        ("tests/test_tracking.py",),
        tells_no_parent=(
            "parent=_describe_parent(lineage)",
            "parent=None",
        ),
        tracks_everywhere=(
            "if is_primary() and config.log.trackers:",
            "if config.log.trackers:",
        ),
        a_stop_is_a_failure=(
            "error is None or isinstance(error, StoppedError)",
            "error is None",
        ),
        asks_no_login=("check_ready(offline=", "check_ready(offline=True or "),
    ),
    *_of(
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
    *_of(
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
    *_of(
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
    *_of(
        "rlvr_jax/models/hooks.py",
        ("tests/models/test_hooks.py",),
        stream_without_mlp=("middle_BTD + mlp_BTD", "middle_BTD"),
        mlp_reads_before=("block.mlp_output(middle_BTD)", "block.mlp_output(x_BTD)"),
        one_type_of_layer=("contexts[layer_types[layer]]", "contexts[layer_types[0]]"),
        always_the_first=(
            "dynamic_index_in_dim(w, layer,",
            "dynamic_index_in_dim(w, 0,",
        ),
    ),
    *_of(
        "job_jax/disk.py",
        ("tests/job_jax/test_disk.py",),
        needs_more_than_all=(">= needed:", "> needed:"),
        takes_any_word=("if os.strerror(number) in str(error):", "if True:"),
        looks_no_deeper=(
            "error = error.__cause__ or error.__context__",
            "error = None",
        ),
        renames_files=("error.filename is not None:", "False:"),
    ),
    *_of(
        "job_jax/files.py",
        ("tests/job_jax/test_files.py",),
        keeps_the_old_digest=(
            "_digest_file(target).unlink(missing_ok=True)\n    with",
            "with",
        ),
        trusts_every_file=("if recorded.is_file() and", "if False and"),
    ),
    *_of(
        "rlvr_jax/verifiers/math.py",
        ("tests/verifiers/test_math.py",),
        pays_for_slowness=(
            '"unverified" if was_killed else "incorrect"',
            '"unverified"',
        ),
        punishes_what_was_killed=(
            'was_killed = failure == "error" and',
            "was_killed = False and",
        ),
        never_spends=("batch.left_s -= self._timeout_s / self._size", "pass"),
        forgets=("self._ended[self._digest(index, stated)] = verdict", "pass"),
        one_gold=(
            "json.dumps([self.items[index][0], stated])",
            "json.dumps([stated])",
        ),
    ),
    *_of(
        "rlvr_jax/verifiers/math_worker.py",
        ("tests/verifiers/test_math.py",),
        blames_the_answer=(
            'gold, _, *how = item\n        status = "unverified"',
            'gold, _, *how = item\n        status = "incorrect"',
        ),
        blames_nobody=('status, *_ = grade(gold, "", *how)', "pass"),
    ),
    *_of(
        "sae_jax/formats/record.py",
        ("tests/sae_jax/test_damaged_files.py",),
        takes_nan=(
            "if not np.isfinite(bounded.astype(np.float32)).all():",
            "if False:",
        ),
    ),
    *_of(
        "rlvr_jax/tokenizer/chat_worker.py",
        ("tests/tokenizer/test_chat.py",),
        any_memory=("_MEMORY_BYTES = 1 << 30", "_MEMORY_BYTES = 1 << 40"),
        any_length=("if len(text) > _MAX_CHARACTERS:", "if False:"),
    ),
    *_of(
        "rlvr_jax/tokenizer/chat.py",
        ("tests/tokenizer/test_chat.py",),
        keeps_who_owes=(
            "self._worker = None  # a reply",
            "self._worker = worker  # a reply",
        ),
    ),
    *_of(
        "rlvr_jax/models/huggingface/load.py",
        ("tests/models/test_huggingface.py",),
        takes_nan=("    if names:\n        raise", "    if False:\n        raise"),
    ),
    *_of(
        "job_jax/heartbeat.py",
        ("tests/job_jax/test_heartbeat.py",),
        accuses_the_prompt=("grows=not is_new", "grows=True"),
        never_behind=("is_behind = exchanges < newest", "is_behind = False"),
    ),
    *_of(
        "rlvr_jax/learn/run_updates.py",
        ("tests/learn/test_run_updates.py",),
        nan_passes=("or (math.isnan(gap)", "or (False"),
    ),
    *_of(
        "rlvr_jax/probe/prefix_values.py",
        ("tests/probe/test_prefix_values.py",),
        squares_the_noise=("* np.diff(second.mean(", "* np.diff(first.mean("),
        runs_on_beyond_the_limit=("ids = ids[:max_new_tokens]", "pass"),
        forgets_the_prefix=("ids = begun + sampled", "ids = sampled"),
        starts_anew=("return [*prompt.tolist(), *begun.tolist()]", "return [*prompt]"),
    ),
    *_of(
        "rlvr_jax/analysis/credit/weights.py",
        ("tests/analysis/credit/test_measure.py",),
        reads_the_last_token=(
            "index_T < lengths[:, None] - 1",
            "index_T < lengths[:, None]",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/credit/measure.py",
        ("tests/analysis/credit/test_measure.py",),
        every_completion_alike=(
            "denominator=total_B)\n\n    def compare",
            "denominator=np.ones_like(total_B))\n\n    def compare",
        ),
    ),
    *_of(
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
    *_of(
        "rlvr_jax/pipeline.py",
        ("tests/integration/test_processes.py",),
        devices_of_one_alone=("            jax.devices()  #", "            pass  #"),
    ),
    *_of(
        "rlvr_jax/run/fork.py",
        ("tests/integration/test_fork.py",),
        forgets_what_was_decided_before=("or change.startswith(_OF_BEFORE)", ""),
        keeps_a_later_step=("< step + counts_done", "<= step + counts_done"),
        memorizes_the_parents_problems=('and "memorization" not in before', ""),
    ),
    *_of(
        "rlvr_jax/analysis/gradients/measure.py",
        ("tests/analysis/gradients/test_measure.py",),
        controls_are_weights_of_1=("cosine_N - average_N", "cosine_N - even_N"),
        a_product_for_a_cosine=("jnp.maximum(norms, 1e-30)", "1.0"),
        shuffles_the_padding=(
            "row[:length] = rng.permutation(row[:length])",
            "rng.shuffle(row)",
        ),
    ),
    *_of(
        "rlvr_jax/analysis/gradients/batches.py",
        ("tests/analysis/gradients/test_batches.py",),
        asks_the_same_again=("num_batches=served", "num_batches=0"),
        entropy_pulls_too=("kl_coef=0.0, entropy_coef=0.0", "kl_coef=0.0"),
        weights_are_dropped=("token_weights=weights_BT.astype(np.float32)", ""),
    ),
    *_of(
        "rlvr_jax/metrics/power.py",
        ("tests/metrics/test_power.py",),
        one_seed_too_many=("num_seeds * effect**2", "(num_seeds + 1) * effect**2"),
        one_sided=("(1 + CONFIDENCE) / 2", "CONFIDENCE"),
    ),
    *_of(
        "rlvr_jax/experiment/schedule.py",
        ("tests/experiment/test_schedule.py",),
        arms_forget_their_start=("{**of_parent, **own,", "{**own,"),
        forks_forget_their_forebears=("of_parent = parent.overrides", "pass"),
        arms_overrule_reduced=("        if key not in shared\n", ""),
        makes_a_fork_twice=("self.fork is None or self.workdir.exists()", "False"),
        forks_without_their_parents=(
            "needed.add(experiment.arms[name].parent)",
            "pass",
        ),
    ),
    *_of(
        "rlvr_jax/run/fork.py",
        ("tests/experiment/test_schedule.py",),
        keeps_every_checkpoint=("steps[-kept.max_to_keep :]", "steps"),
    ),
    *_of(
        "rlvr_jax/tasks/finite_field/source.py",
        ("tests/tasks/finite_field/test_source.py",),
        every_number_of_chains_alike=(
            "rng.choices(counts, shares)",
            "rng.choices(counts)",
        ),
        more_chains_than_steps=(
            "counts = [n for n in parts if n <= steps]",
            "counts = [n for n in parts if n >= steps]",
        ),
        direct_by_the_first_chain=(
            "DIRECT_STRATEGY[chain.kind] for chain in question.chains",
            "DIRECT_STRATEGY[question.chains[0].kind] for chain in question.chains",
        ),
        weights_not_in_the_name=(
            "drawn_from += (mix.composition_part_weights,)",
            "drawn_from += ()",
        ),
        one_confidence_for_all=(
            "state_any_confidence(name)",
            "state_any_confidence('')",
        ),
    ),
    *_of(
        "rlvr_jax/tasks/finite_field/rewards.py",
        ("tests/tasks/finite_field/test_rewards.py",),
        pays_for_wrong_steps=("trace.first_error is None and ", ""),
        pays_for_a_guessed_start=(" and trace.consistent_start", ""),
        pays_for_any_answer=('.status != "correct"', '.status == ""'),
        confidence_taken_for_the_answer=(
            "strip_confidence(completion)",
            "completion",
        ),
    ),
    *_of(
        "rlvr_jax/data/curricula/base.py",
        ("tests/data/test_curricula.py",),
        one_order_for_all=("(*seeds, order) if order else seeds", "seeds"),
    ),
    *_of(
        "rlvr_jax/experiment/execute.py",
        ("tests/experiment/test_execute.py",),
        runs_all_again=("if not run.has_ended()]", "]"),
        goes_on_after_a_failure=(
            "                progress.error = progress.error or StoppedError()\n"
            "                return",
            "                continue",
        ),
        swallows_the_signal=("process.send_signal(signal.SIGTERM)", "pass"),
        stops_for_nobody_else=(
            "return self.error is not None or self._signal",
            "return self._signal",
        ),
        one_seed_at_once=(
            "in enumerate(_share_cores(min(parallel, len(seeds))))",
            "in [(0, set())]",
        ),
        all_on_the_same_cores=(
            "cores[number % len(cores) :: num_workers]",
            "cores[:1]",
        ),
        cores_for_workers_that_are_none=(
            "min(parallel, len(seeds))",
            "parallel",
        ),
        seeds_share_a_worker=(
            "[run for run in left if run.seed == seed]\n        for seed in "
            "dict.fromkeys(run.seed for run in left)",
            "[run] for run in left",
        ),
    ),
    *_of(
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
    *_of(
        "rlvr_jax/analysis/features/log.py",
        ("tests/analysis/features/test_features.py",),
        a_direction_has_latents=(
            "if not self.selection or self.reads_directions:",
            "if 0:",
        ),
    ),
    *_of(
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
    *_of(
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
    *_of(
        "rlvr_jax/analysis/compare/run_metrics.py",
        ("tests/analysis/compare/test_compare.py",),
        gains_backward=("after_k[name] - before_k", "before_k[name] - after_k"),
        gains_by_band=('if each[0] != "band"', "if True"),
        reward_gained_backward=("mean=last - first", "mean=first - last"),
    ),
    *_of(
        "rlvr_jax/analysis/charts.py",
        ("tests/analysis/report/test_page.py",),
        labels_where_0_leaves_less_room=("if high > -low", "if high < -low"),
    ),
    *_of(
        "rlvr_jax/analysis/compare/arms.py",
        ("tests/analysis/experiment/test_results.py",),
        unpaired_where_a_seed_lacks=(
            "if len(shared) > 1 and set(arm.seeds) == set(base.seeds):",
            "if len(shared) > 1 and ours.keys() == theirs.keys():",
        ),
    ),
    *_of(
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
    *_of(
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
        values_without_ranks=("stats.spearmanr(", "stats.pearsonr("),
        pairs_are_correlated=("_MIN_PROBLEMS = 3", "_MIN_PROBLEMS = 2"),
        bands_over_problems=("if run.band == band]", "]"),
        unbounded=("np.clip([low, high], -1, 1)", "[low, high]"),
        rounding_ranks=("round(value, _DIGITS) for", "value for"),
        any_recipe=("if other:", "if False:"),
    ),
    *_of(
        "rlvr_jax/analysis/geometry/overlap.py",
        ("tests/analysis/geometry/test_geometry.py",),
        pairs_of_the_same_starts=(
            "are_independent = len(set(starts)) == len(starts)",
            "are_independent = True",
        ),
        one_row_for_any_start=(", overlap.same_start].append", ", True].append"),
        chance_for_share=("[overlap.share for", "[overlap.chance for"),
    ),
    *_of(
        "rlvr_jax/models/masks.py",
        ("tests/models/test_families.py",),
        decodes_beyond_the_window=(
            "own_mask_BS & (distance_S < config.sliding_window)",
            "own_mask_BS & (distance_S <= config.sliding_window)",
        ),
        decodes_a_prompt_beyond_the_window=(
            "prefix_mask &= prefix_distance_PS < config.sliding_window",
            "prefix_mask &= prefix_distance_PS <= config.sliding_window",
        ),
    ),
    *_of(
        "rlvr_jax/models/huggingface/tied.py",
        ("tests/models/test_tied.py",),
        ties_what_differs=(
            "return dataclasses.replace(config, tie_embeddings=False)\n\n\ndef head",
            "return config\n\n\ndef head",
        ),
        unties_what_is_equal=(
            "    if _are_equal(first, second):\n",
            "    if False:\n",
        ),
        compares_the_first_rows_alone=(
            "for at in range(0, num_rows, step))",
            "for at in range(0, step, step))",
        ),
        remembers_a_file_that_was_replaced=(
            "return status.st_size, status.st_mtime_ns",
            "return status.st_size, 0",
        ),
        rounds_before_it_compares=(
            "other[start:stop].astype(np.float64)",
            "other[start:stop].astype(one[:1].dtype).astype(np.float64)",
        ),
    ),
    *_of(
        "rlvr_jax/convert.py",
        ("tests/models/test_tied.py",),
        forgets_the_head=(
            '        "tie_word_embeddings": policy.config.tie_embeddings,\n',
            "",
        ),
    ),
    *_of(
        "rlvr_jax/models/rope.py",
        ("tests/models/test_rope.py",),
        never_truncates=("if config.rope_truncate:", "if False:"),
        always_truncates=("if config.rope_truncate:", "if True:"),
        ends_with_the_last_pair=("config.head_dim - 1)", "half - 1)"),
        begins_before_the_first_pair=("max(first, 0)", "first"),
        divides_the_fast=(
            "return 1.0 - jnp.clip((pair_I",
            "return jnp.clip((pair_I",
        ),
        scales_own_sliding_layers=('!= "yarn" or local_theta:', '!= "yarn":'),
        forgets_the_magnitude=("return factor * cos_BT1H,", "return cos_BT1H,"),
        ignores_a_given_magnitude=("config.rope_attention_factor or ", ""),
    ),
    *_of(
        "rlvr_jax/models/families/base.py",
        ("tests/models/test_rope.py",),
        ends_with_the_context_before_yarn=(
            "max(context, int(factor * original))",
            "context",
        ),
        ends_with_the_context_after_yarn=(
            "max(context, int(factor * original))",
            "int(factor * original)",
        ),
        mixes_magnitudes_up=(
            "yarn_magnitude(factor, above) / yarn_magnitude(factor, below)",
            "yarn_magnitude(factor, below) / yarn_magnitude(factor, above)",
        ),
        writes_a_runs_room_as_dynamics_context=(
            "config.rope_original_max_position if is_dynamic else",
            "config.max_seq_len if is_dynamic else",
        ),
    ),
    *_of(
        "rlvr_jax/models/huggingface/config.py",
        ("tests/models/test_rope.py",),
        one_theta_whether_scaled_or_not=(
            'if config.rope_scaling == "none":  #',
            "if True:  #",
        ),
        a_context_beside_rope_is_not_seen=(
            "    text_config.standardize_rope_params()\n",
            "",
        ),
    ),
    *_of(
        "rlvr_jax/models/block.py",
        (_ALL_BIASES,),
        leaves_out_the_bias_of_out=("if self.config.out_bias:", "if False:"),
        activates_before_the_bias=(
            "gate_BTF = add_bias(gate_BTF, self.gate_bias[...])",
            "gate_BTF = gate_BTF",
        ),
    ),
    *_of(
        "rlvr_jax/models/gguf/weights.py",
        ("tests/models/gguf/test_convert.py",),
        stored_order_of_rotary_rows=(
            "if not architecture.rope_interleaved or not count",
            "if True",
        ),
        norms_stay_plus_one=("1.0 if architecture", "0.0 if architecture"),
    ),
    *_of(
        "rlvr_jax/models/gguf/config.py",
        ("tests/models/gguf/test_convert.py",),
        forgets_llama3_rope=(
            "if tensor is None:\n        return {}",
            "if True:\n        return {}",
        ),
        gemma3_without_local_base=(
            '"rope.freq_base_swa", float, _GEMMA3_LOCAL_THETA',
            '"rope.freq_base_swa", float, fields["rope_theta"]',
        ),
    ),
    *_of(
        "rlvr_jax/models/gguf/config.py",
        ("tests/models/gguf/test_refusals.py",),
        drops_settings=("if key not in _NOTES and", "if key in _MUST_BE and"),
    ),
    *_of(
        "rlvr_jax/models/gguf/pre_tokenizers.py",
        ("tests/models/gguf/test_tokens.py",),
        keeps_digits_together=("steps=(_DIGITS,)", "steps=()"),
        composes_no_accents=(', normalizer={"type": "NFC"}', ""),
    ),
    *_of(
        "rlvr_jax/models/gguf/tokenizer.py",
        ("tests/models/gguf/test_tokens.py",),
        merges_by_id=("(-scores[ids[token]], ids[token])", "-ids[token]"),
    ),
    *_of(
        "rlvr_jax/models/gguf/reader.py",
        ("tests/models/gguf/test_refusals.py",),
        takes_a_cut_file=("if t.start + t.nbytes > size", "if t.start > size"),
    ),
    *_of(
        "rlvr_jax/models/gguf/convert.py",
        ("tests/models/gguf/test_convert.py",),
        leaves_half_a_directory=("        shutil.rmtree(partial)\n", ""),
    ),
    *_of(
        "rlvr_jax/run/checkpoint_settings.py",
        ("tests/run/test_checkpoint_settings.py",),
        states_nothing=("if name not in sampling.stated", "if True"),
        forgets_the_run_that_goes_on=("before.get(path, value)", "value"),
        chats_without_weights=(
            "bool(config.pretrained.path) and config.tokenizer",
            "config.tokenizer",
        ),
        of_the_parent_first=(
            "[workdir, lineage.directory if lineage else None]",
            "[lineage.directory if lineage else None, workdir]",
        ),
        one_sampling_for_both=(
            '"eval.sampling": config.eval',
            '"eval.sampling": config.train',
        ),
    ),
    *_of(
        "rlvr_jax/pipeline.py",
        ("tests/run/test_checkpoint_settings.py",),
        leaves_it_open=(
            "config = settle_config(config, recorded_config(path, None))",
            "recorded_config(path, None)",
        ),
    ),
    *_of(
        "rlvr_jax/run/start_warnings.py",
        ("tests/run/test_start_warnings.py",),
        one_rate_for_all=("_RATES[count >= _LARGE]", "_RATES[False]"),
        adapters_as_weights=("_OF_LORA = 10.0", "_OF_LORA = 1.0"),
        no_limit_of_sft=("_OF_SFT = 10.0", "_OF_SFT = 1e9"),
        any_size_is_small=(
            "not config.pretrained.path or count >= _SMALL",
            "not config.pretrained.path",
        ),
        reads_no_generation_config=(
            'if "temperature" in checkpoint_sampling(config):',
            "if False:",
        ),
        forgets_the_lineage=(
            "path or lineage or config.sft.steps or not",
            "path or config.sft.steps or not",
        ),
        asks_every_format=(
            "if mark is None or mark in problem.prompt:",
            "if mark is None:",
        ),
        the_longest_answer=("needed[len(needed) // 2]", "needed[-1]"),
        tests_are_answers=("if problem.verifier in _GOLD_IS_ANSWER:", "if True:"),
        ends_the_turn_twice=(
            "behind = behind.removeprefix(tokenizer.show([end]))",
            "pass",
        ),
        any_end_is_one=(
            "tokenizer.special_ids - {*tokenizer.eos_ids}",
            "tokenizer.special_ids",
        ),
    ),
    *_of(
        "rlvr_jax/plan/dry_run.py",
        ("tests/plan/test_dry_run.py",),
        shows_no_beginning=(
            "ids = tokenizer.encode_prompt(problem.prompt)",
            "ids = tokenizer.encode(problem.prompt)",
        ),
        hides_special_tokens=(
            "tokenizer.show(ids).split",
            "tokenizer.decode(ids).split",
        ),
    ),
    *_of(
        "rlvr_jax/tasks/records/layout.py",
        ("tests/tasks/records/test_prompts.py",),
        continues_in_a_chat=("if not self.is_chat:", "if True:"),
        asks_for_no_box=(
            "request = ANSWER_REQUESTS[self.answer_format]",
            'request = ""',
        ),
    ),
    *_of(
        "rlvr_jax/tokenizer/huggingface.py",
        ("tests/tokenizer/test_huggingface.py",),
        any_of_several=('one.get("name") == "default"', "True"),
        greedy_is_a_temperature=(
            '"temperature": lambda value: value > 0',
            '"temperature": lambda value: value >= 0',
        ),
    ),
    *_of(
        "job_jax/config_io.py",
        ("tests/job_jax/test_config_io.py",),
        todays_default=("{**chosen.earlier_values, **data}", "{**data}"),
    ),
    *_of(
        "rlvr_jax/rollouts/graded.py",
        (*_TRACE, "tests/rollouts/test_graded.py"),
        shifts_verdicts=(
            "verdict=verdicts[b],\n            length",
            "verdict=verdicts[b - 1],\n            length",
        ),
        decodes_past_the_end=(
            "rollouts.tokens[b, mask_BT[b]]",
            "rollouts.tokens[b]",
        ),
    ),
    *_of(
        "rlvr_jax/data/loader.py",
        _TRACE,
        never_ends_a_solution=(
            "return [*ids, tokenizer.eos_id]",
            "return [*ids]",
        ),
    ),
    *_of(
        "rlvr_jax/stages/sft.py",
        _TRACE,
        one_batch_of_solutions=(
            "loader.next_batch(step, rows)",
            "loader.next_batch(0, rows)",
        ),
        learns_of_prompts_alone=(
            "encode_prompt(problem, tokenizer),",
            "encode_prompt(problem, tokenizer)[1:],",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/graded.py",
        _EPISODES,
        the_verifier_reads_what_the_environment_said=(
            "if episode is None else episode.completion",
            'if episode is None else " ".join(m.text for m in episode.messages)',
        ),
        the_environments_verdict_is_not_heard=(
            "if episode and (episode.failed or not text.is_thinking)",
            "if False",
        ),
    ),
    *_of(
        "rlvr_jax/tokenizer/huggingface.py",
        ("tests/tokenizer/test_control_tokens.py",),
        drops_all_special=(
            "not in self._control_ids],\n            skip_special_tokens=False",
            "not in self._control_ids],\n            skip_special_tokens=True",
        ),
        marks_are_roles=(
            "is_framed(token)) and not self._is_tag(token)",
            "is_framed(token))",
        ),
        reads_every_token_in_data=(
            "if literal and self._text_encoder",
            "if not literal and self._text_encoder",
        ),
    ),
    *_of(
        "rlvr_jax/tokenizer/control_tokens.py",
        ("tests/tokenizer/test_control_tokens.py",),
        searches_the_source=('"".join(renderings) or template', "template"),
        new_names_keep_new_ids=("self._ids.get(number, number)", "number"),
    ),
    *_of(
        "rlvr_jax/tokenizer/literal_text.py",
        ("tests/tokenizer/test_control_tokens.py",),
        trusts_every_template=('_MARK.sub("", written) != plain', "False"),
    ),
    *_of(
        "rlvr_jax/data/loader.py",
        ("tests/data/test_literal.py",),
        solutions_write_controls=(
            "tokenizer.encode(text, literal=whole_text(text))",
            "tokenizer.encode(text)",
        ),
        replies_write_controls=(
            "tokenizer.encode(written, literal=literal)",
            "tokenizer.encode(written)",
        ),
    ),
    *_of(
        "rlvr_jax/data/loader.py",
        ("tests/run/test_marks.py",),
        prompts_write_controls=(
            "tokenizer.encode_prompt(problem.prompt, literal=problem.literal)",
            "tokenizer.encode_prompt(problem.prompt)",
        ),
    ),
    *_of(
        "rlvr_jax/run/checks.py",
        ("tests/run/test_marks.py",),
        thinking_needs_no_marks=("if config.tokenizer.thinks:", "if False:"),
    ),
    *_of(
        "rlvr_jax/run/setup.py",
        ("tests/run/test_marks.py",),
        never_asks_the_template=(
            "template_has_it=writes_thinking(task.template_text)",
            "template_has_it=False",
        ),
    ),
    *_of(
        "rlvr_jax/verifiers/answers/cut.py",
        ("tests/verifiers/test_cut.py",),
        words_are_whole=(
            "(text + w[len(begun) :] for w in longer)",
            "(text for w in longer)",
        ),
        formulas_are_open=("or _CLOSED.search(body)", "or False"),
        lists_are_closed=('_LIST_JOINT.sub("", body)', "body"),
    ),
    *_of(
        "rlvr_jax/verifiers/truncation.py",
        ("tests/verifiers/test_cut.py",),
        rejects_what_nobody_could_judge=('verdict.status != "unverified"', "True"),
        rejects_what_ended=("if cut and", "if"),
    ),
    *_of(
        "rlvr_jax/verifiers/thinking.py",
        ("tests/rollouts/test_judged.py",),
        first_mark_counts=(
            "return completion.rpartition(THINK_CLOSE)[2]",
            "return completion.partition(THINK_CLOSE)[2] or completion",
        ),
        trusts_the_prompt=("(opened and not closed)", "False"),
    ),
    *_of(
        "rlvr_jax/rollouts/judged.py",
        ("tests/rollouts/test_judged.py",),
        counts_to_the_first_mark=("count(middle) == total", "count(middle) > 0"),
        thinks_in_the_first_turn=("last = turns[-1]", "last = turns[0]"),
    ),
    *_of(
        "rlvr_jax/rollouts/scores.py",
        ("tests/rollouts/test_judged.py",),
        pays_for_open_thinking=(
            "np.where(is_thinking_B, capped_B, values[name])",
            "values[name]",
        ),
        forgives_open_thinking=(
            "np.minimum(np.nan_to_num(values[name]), 0)",
            "np.zeros_like(values[name])",
        ),
    ),
    *_of(
        "rlvr_jax/rollouts/graded.py",
        ("tests/rollouts/test_judged.py",),
        episodes_are_cut_between_turns=(
            "return not tokens or tokens[-1] not in setup.tokenizer.eos_ids",
            "return True",
        ),
        environments_forgive=("episode.failed or not text.is_thinking", "True"),
    ),
    *_of(
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
    *_of(
        "rlvr_jax/stages/trainer.py",
        ("tests/stages/test_trainer.py",),
        learns_from_the_truncated=(
            "mask_truncated=setup.config.train.loss.mask_truncated,",
            "mask_truncated=False,",
        ),
    ),
    *_of(
        "job_jax/working.py",
        ("tests/job_jax/test_working.py",),
        never_reminds=("+ QUIET_S - now) > 0:", "+ 1e9 - now) > 0:"),
        reminds_of_work_that_is_over=("self._works.remove(work)", "pass"),
        every_process_reminds=("if not is_primary():", "if False:"),
        forgets_the_progress_line=("if self._lines:", "if False:"),
        keeps_a_line_of_failed_work=("if each[0] <= depth]", "]"),
    ),
    *_of(
        "job_jax/metrics.py",
        ("tests/job_jax/test_working.py",),
        printed_lines_are_silence=(
            'self._stream.write(f"{line}\\n")\n        self._stream.flush()\n'
            "        self._narrator.note_line()",
            'self._stream.write(f"{line}\\n")\n        self._stream.flush()',
        ),
        time_left_stands_still=(" - (now - self._last)\n", "\n"),
    ),
    *_of(
        "rlvr_jax/stages/difficulty.py",
        ("tests/rollouts/test_difficulty_rollouts.py",),
        keeps_every_completion=("for row in rows[: len(kept)]", "for row in rows"),
        one_file_for_all_batches=(
            '        "difficulty",\n        step,\n',
            '        "difficulty",\n        0,\n',
        ),
    ),
    *_of(
        "rlvr_jax/run/prompts.py",
        ("tests/test_generate.py",),
        samples_where_nothing_says_so=(
            'stated.get("do_sample", "temperature" in stated)',
            'stated.get("do_sample", True)',
        ),
        prompts_without_a_template=('"tokenizer" if is_chat else ""', '""'),
        a_device_for_each_core=("MeshConfig(cpu_devices=1)", "MeshConfig()"),
        compiles_every_layer=("scan_layers=True", "scan_layers=False"),
    ),
    *_of(
        "rlvr_jax/generate.py",
        ("tests/test_generate.py",),
        seed_is_ignored=("seed=values.seed or 0", "seed=0"),
        writes_the_first_batch_alone=(
            "range(0, len(asked), size)",
            "range(0, 1, size)",
        ),
    ),
    *_of(
        "job_jax/command.py",
        ("tests/test_generate.py",),
        repeated_flags_add_up=("        values[name].unparse()", "        pass"),
    ),
    *_of(
        "sae_jax/data/vocabulary.py",
        ("tests/sae_jax/dashboard/test_dashboard.py",),
        signs_for_all_spaces=("if not text.isspace():", "if not text[:1].isspace():"),
        no_signs=("if not text.isspace():", "if True:"),
    ),
    *_of(
        "rlvr_jax/run/cpu_devices.py",
        ("tests/run/test_cpu_devices.py",),
        one_device_for_the_small=(
            "return 1 if _num_weights(config) > MAX_WEIGHTS_PER_CORE else -1",
            "return -1 if _num_weights(config) > MAX_WEIGHTS_PER_CORE else 1",
        ),
        forgets_what_a_run_began_with=(
            "count = _recorded(record) if is_begun else _by_size(config)",
            "count = _by_size(config)",
        ),
        leaves_out_the_output_layer=("hf_vocab_size(start))", "0)"),
        overrules_a_mesh=("if has_layout or", "if"),
    ),
    *_of(
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
    *_of(
        "rlvr_jax/learn/activation_memory.py",
        ("tests/learn/test_micro_batches.py",),
        one_device_holds_all=("/ needed)) * self.devices", "/ needed))"),
    ),
    *_of(
        "rlvr_jax/learn/logprobs.py",
        ("tests/learn/test_logprobs.py",),
        pads_the_last_chunk=(
            "return -(-length // max(1, num_chunks))",
            "return widest",
        ),
    ),
    *_of(
        "rlvr_jax/models/huggingface/match.py",
        ("tests/models/test_match.py",),
        scans_what_is_not_deep=("_MIN_SCANNED_LAYERS = 16", "_MIN_SCANNED_LAYERS = 15"),
        scans_layers_of_two_types=(
            "and len({*model.layer_types}) == 1",
            "and len({*model.layer_types}) >= 1",
        ),
    ),
    *_of(
        "rlvr_jax/pipeline.py",
        ("tests/integration/test_runs.py::test_the_record_counts_the_cpu_devices",),
        forgets_the_cpu_devices=(
            "more=lineage_record(lineage) | cpu_devices.record(),",
            "more=lineage_record(lineage),",
        ),
    ),
    *_of(
        "rlvr_jax/tasks/reasoning_gym/verifier.py",
        ("tests/tasks/reasoning_gym/test_verifier.py",),
        part_of_the_credit=("if score == 1:", "if score > 0:"),
        above_the_full_score=("if score == 1:", "if score >= 1:"),
        any_version=("if item.question.strip() not in problem.prompt:", "if False:"),
        failed_scores_are_correct=(
            "if outcome.failure is not None:",
            'if outcome.failure == "time_limit":',
        ),
        evaluates_anything=(
            "if reason := describe_unsafe_answer(entry.name, answer):",
            'if reason := "":',
        ),
    ),
    *_of(
        "rlvr_jax/tasks/reasoning_gym/source.py",
        ("tests/tasks/reasoning_gym/test_source.py",),
        no_split=(
            "if is_held_out(item.question) == self._held_out:",
            "if True:",
        ),
        shifted_seeds=("int.from_bytes(digest) % _NUM_PLACES", "seed"),
        weights_of_entries_for_levels=(
            "entry.weight / max(1, len(entry.levels))",
            "entry.weight",
        ),
        golds_are_not_tried=('verdict.status == "correct",', "True,"),
    ),
    *_of(
        "rlvr_jax/tasks/reasoning_gym/library.py",
        (
            "tests/tasks/reasoning_gym/test_source.py",
            "tests/tasks/reasoning_gym/test_verifier.py",
        ),
        global_stream_of_others=("    random.seed(seed)\n", ""),
        keeps_the_global_stream=("        random.setstate(ours)\n", "        pass\n"),
        scorers_write=("copy.deepcopy(item.entry)", "item.entry"),
        level_of_another=("set_global_level(entry.levels[0])", "set_global_level(0)"),
    ),
    *_of(
        "rlvr_jax/tasks/reasoning_gym/plain_answers.py",
        ("tests/tasks/reasoning_gym/test_plain_answers.py",),
        powers_count_once=("return base * max(1, int(abs(exponent)))", "return base"),
        any_exponent=("or abs(exponent) > _MAX_EXPONENT", ""),
        any_call=("name in _FUNCTIONS", "True"),
    ),
    *_of(
        "rlvr_jax/tasks/reasoning_gym/audit.py",
        ("tests/tasks/reasoning_gym/test_audit.py",),
        digests_are_not_compared=(
            "if measured.digests != again.digests:",
            "if False:",
        ),
    ),
    *_of(
        "rlvr_jax/tasks/arithmetic/questions.py",
        ("tests/tasks/arithmetic/test_questions.py",),
        holds_out_orders_alone=(
            "repr(sorted(self.numbers))",
            "repr(self.numbers)",
        ),
        subtracts_backward=('"-": first - second', '"-": second - first'),
    ),
    *_of(
        "rlvr_jax/tasks/arithmetic/task.py",
        ("tests/tasks/arithmetic/test_questions.py",),
        one_seed_of_training=(
            "seed=seed, held_out=False",
            "seed=_EVAL_SEED, held_out=False",
        ),
        held_out_moves_with_the_seed=(
            "seed=_EVAL_SEED, held_out=True",
            "seed=seed, held_out=True",
        ),
        nothing_is_held_out=(
            "question.is_held_out == held_out and",
            "",
        ),
        asks_twice=(" and question.text not in drawn", ""),
    ),
    *_of(
        "rlvr_jax/metrics/lenient.py",
        ("tests/metrics/test_lenient.py",),
        counts_parts_of_numbers=(r"(?!\w|[.,]\d)", ""),
        any_gold=("return all(", "return any("),
    ),
]
