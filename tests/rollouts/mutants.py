"""One-line mutants of rlvr_jax/rollouts/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_TRACE = ("tests/integration/test_trace.py",)
_DRAW = ("tests/rollouts/test_draw.py",)
_EPISODES = ("tests/rollouts/test_episodes.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/verifiers/grader.py",
        ("tests/rollouts/test_try_rewards.py",),
        lists_no_fields=('if "KeyError" not in repr(error):', "if True:"),
    ),
    *rows(
        "rlvr_jax/run/workdir.py",
        ("tests/run/test_workdir.py",),
        continues_another_shape=(
            'line.startswith(("model", "tokenizer"))',
            'line.startswith("tokenizer")',
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer.py",
        ("tests/stages/test_trainer.py",),
        is_silent_about_fallback=("if not share:", "if True:"),
    ),
    *rows(
        "rlvr_jax/rollouts/try_rewards.py",
        ("tests/rollouts/test_try_rewards.py",),
        tries_no_empty_completion=('if outcome.failure != "error":', "if True:"),
        calls_a_solution_the_gold=(
            '"the worked solution" if problem.solution',
            '"the gold" if problem.solution',
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/scores.py",
        ("tests/rewards/test_function.py",),
        a_failure_is_no_opinion=("not o.failure and math", "math"),
    ),
    *rows(
        "rlvr_jax/rewards/adapters.py",
        ("tests/rewards/test_adapters.py",),
        never_a_conversation=(
            "if isinstance(prompt, list) else text",
            "if 0 else text",
        ),
        truth_is_the_gold=("if isinstance(model, Mapping):", "if False:"),
        only_named_columns=("if _takes_any(parameters):", "if False:"),
        columns_of_this_step_alone=("columns = absent | _trl", "columns = {} | _trl"),
    ),
    *rows(
        "rlvr_jax/rewards/function.py",
        ("tests/rollouts/test_try_rewards.py",),
        scores_texts=("not isinstance(value, str | bytes) and np", "np"),
        scores_the_keys_of_a_dict=("str | bytes | Mapping", "str | bytes"),
        scores_columns=('getattr(value, "ndim", 1) != 1', "False"),
    ),
    *rows(
        "rlvr_jax/rollouts/try_rewards.py",
        ("tests/rollouts/test_try_rewards.py",),
        tries_an_empty_completion=(
            "return problem.solution or get_verifier",
            'return "" and get_verifier',
        ),
        weighs_no_size=(
            "(max(abs(score), abs(score * weight)) for",
            "(abs(score) for",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/collect.py",
        _TRACE,
        one_key_for_all_steps=(
            "batch_key(np.uint32(current.num_batches))",
            "batch_key(np.uint32(0 * current.num_batches))",
        ),
        one_batch_for_all_rounds=(
            "difficulty, num_batches=difficulty.num_batches + len(rounds)",
            "difficulty, num_batches=difficulty.num_batches",
        ),
        samples_other_weights=(
            "place_params(state.params)",
            "place_params(jax.tree.map(lambda x: 0.9 * x, state.params))",
        ),
        counts_one_batch=("num_batches=len(rounds),", "num_batches=1,"),
        surplus_without_the_seed=(
            "(config.seed, difficulty.num_batches, _SURPLUS_DRAW)",
            "(config.seed + 1, difficulty.num_batches, _SURPLUS_DRAW)",
        ),
        the_same_surplus_in_every_step=(
            "(config.seed, difficulty.num_batches, _SURPLUS_DRAW)",
            "(config.seed, 0, _SURPLUS_DRAW)",
        ),
        learns_of_one_round=(
            "for sampled in rounds for outcome",
            "for sampled in rounds[:1] for outcome",
        ),
        never_samples_again=(
            "if config.dynamic_sampling.is_enough(rounds, config.train.batch_size):",
            "if True:",
        ),
        stale_bands=(
            "difficulty.gather(groups.problem_index.tolist())",
            "difficulty.gather([0] * len(groups))",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/collect.py",
        ("tests/rollouts/test_collect.py",),
        forgets_what_it_asked=("batch_size, asked=asked)", "batch_size)"),
    ),
    *rows(
        "rlvr_jax/rollouts/step_rewards.py",
        _TRACE,
        rewards_what_is_incorrect=(
            '(statuses == "correct")',
            '(statuses == "incorrect")',
        ),
        verifies_all=('(statuses != "unverified")', '(statuses != "none")'),
        pays_for_length=(
            'reward_PG + parts_PG["overlong"]',
            'reward_PG - parts_PG["overlong"]',
        ),
        guards_the_easy=("prior.mean < hard_below,", "prior.mean > hard_below,"),
    ),
    *rows(
        "rlvr_jax/rollouts/step_rewards.py",
        ("tests/rollouts/test_collect.py",),
        shrinks_by_doubt=("(1.0 - prior.cdf(hard_below))", "prior.cdf(hard_below)"),
        tells_a_rule_the_confidence_for_the_pass_rate=(
            '"pass_rate": prior.mean.astype',
            '"pass_rate": prior.cdf(hard_below).astype',
        ),
        signal_of_shaped_rewards=(
            "has_signal(correctness_rewards(*statuses)),",
            "has_signal(reward_PG),",
        ),
        judges_everyone=(
            "judged=judged_PG,\n        lengths=lengths_B",
            "judged=judged_PG | True,\n        lengths=lengths_B",
        ),
        tells_a_rule_one_length=(
            "lengths=lengths_B.reshape",
            "lengths=(0 * lengths_B).reshape",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/draw.py",
        _DRAW,
        one_key_for_all_steps=(
            "batch_key(np.uint32(now.num_batches))",
            "batch_key(np.uint32(difficulty.num_batches))",
        ),
        asks_again_meanwhile=(", asked=asked)", ")"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/rollouts/external.py",
        ("tests/integration/test_external_traces.py",),
        teaches_what_is_wrong=(
            'if verdict.status == "correct"',
            'if verdict.status != "none"',
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/graded.py",
        ("tests/rollouts/test_show.py",),
        tells_the_advantage_as_reward=(
            'row["reward"] = float(rewards_PG.flat[b])',
            'row["reward"] = float(advantages_PG.flat[b])',
        ),
        tells_no_gold=('"gold": self.problem.gold,', '"gold": "",'),
    ),
    *rows(
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
    *rows(
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
    *rows(
        "rlvr_jax/rollouts/graded.py",
        ("tests/rollouts/test_judged.py",),
        episodes_are_cut_between_turns=(
            "return not tokens or tokens[-1] not in setup.tokenizer.eos_ids",
            "return True",
        ),
        environments_forgive=("episode.failed or not text.is_thinking", "True"),
    ),
    *rows(
        "rlvr_jax/rollouts/groups.py",
        ("tests/rollouts/test_collect.py", *_TRACE),
        prefers_the_silent=(
            "key=lambda rp: not is_preferred",
            "key=lambda rp: is_preferred",
        ),
        counts_the_unverified=(
            'if graded.verdict.status != "unverified"',
            'if graded.verdict.status != "none"',
        ),
        flags_the_easy=('band == "hard" and posterior', 'band == "easy" and posterior'),
        leaves_out_the_last=(
            "rng.permutation(len(positions))",
            "range(len(positions))",
        ),
        forgets_what_was_never_solved=(
            "prior.last_pass_rate[p] >= 0.5",
            "prior.last_pass_rate[p] < 0.5",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/groups.py",
        _EPISODES,
        masks_are_not_chosen=(
            "policy_mask=select(masks) if masks else None",
            "policy_mask=masks[0] if masks else None",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/judged.py",
        ("tests/rollouts/test_judged.py",),
        counts_to_the_first_mark=("count(middle) == total", "count(middle) > 0"),
        thinks_in_the_first_turn=("last = turns[-1]", "last = turns[0]"),
    ),
    *rows(
        "rlvr_jax/rewards/function.py",
        ("tests/rewards/test_function.py",),
        failures_earn_nothing=(
            "math.nan if outcome.failure or",
            "0.0 if outcome.failure or",
        ),
        one_limit_for_a_whole_step=("* max(1, len(completions))", "* 1"),
    ),
    *rows(
        "rlvr_jax/config/rewards.py",
        ("tests/rewards/test_function.py",),
        takes_all_for_one=('None) == "problem"', 'None) != "problem"'),
    ),
    *rows(
        "rlvr_jax/rollouts/sample.py",
        _TRACE,
        one_key_for_all_streams=(
            "setup.stream_key(stream)",
            'setup.stream_key("train")',
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/scores.py",
        ("tests/rollouts/test_judged.py",),
        pays_for_open_thinking=(
            "np.where(is_thinking_B, np.minimum(np.nan_to_num(values_B), 0), values_B)",
            "values_B",
        ),
        forgives_open_thinking=(
            "np.minimum(np.nan_to_num(values_B), 0)",
            "np.zeros_like(values_B)",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/episodes.py",
        ("tests/rollouts/test_episodes.py",),
        replies_have_logprobs=(
            "self.logprobs += [0.0] * len(tokens)",
            "self.logprobs += [1.0] * len(tokens)",
        ),
        turns_have_no_limit_of_their_own=(
            "max_turn_tokens=min(environment.max_turn_tokens or limit, limit),",
            "max_turn_tokens=limit,",
        ),
        every_turn_starts_at_the_first_token=(
            "length=np.array([len(row.tokens) for row in filled], np.int32),",
            "length=np.array([0 for row in filled], np.int32),",
        ),
        replies_have_all_the_room=("room=limit - len(row.tokens))", "room=limit)"),
        counts_the_steps_of_the_last_turn=(
            "                slot_steps += int(drawn",
            "                slot_steps = int(drawn",
        ),
        counts_the_calls_of_the_last_turn=(
            "row.tool_calls += reply.tool_calls",
            "row.tool_calls = reply.tool_calls",
        ),
        every_row_has_the_first_prompts_stream=(
            "uids=self.prompts.uid[numbers // self.num_samples].tolist()",
            "uids=self.prompts.uid[0 * numbers].tolist()",
        ),
        counts_the_policys_tokens=(
            "int(r.lengths.sum()) - int(r.mask.sum())",
            "int(r.mask.sum())",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/draw.py",
        _DRAW,
        asks_the_problems_of_an_earlier_batch=(
            "num_batches=difficulty.num_batches + len(pending)\n",
            "num_batches=difficulty.num_batches\n",
        ),
        rollouts_of_version_0=(
            "np.int32(weight_version)",
            "np.int32(0 * weight_version)",
        ),
        resumes_without_fallbacks=(
            'num_fallback=data["num_fallback"],',
            "num_fallback=0,",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/refill/incorrect_again.py",
        ("tests/rollouts/test_refill.py",),
        forgets_who_was_solved_later=("if name not in solved", "if True"),
        more_than_a_batch=("return left[:batch_size]", "return left * 2"),
        an_unverified_one_is_solved=('== "correct"', '!= "incorrect"'),
    ),
    *rows(
        "rlvr_jax/rollouts/collect.py",
        ("tests/rollouts/test_refill.py",),
        ignores_who_comes_again=("if again:", "if False:"),
        room_without_the_seed=(
            "(config.seed, current.num_batches, _ROOM_DRAW)",
            "(0, current.num_batches, _ROOM_DRAW)",
        ),
        the_same_room_in_every_batch=(
            "(config.seed, current.num_batches, _ROOM_DRAW)",
            "(config.seed, 0, _ROOM_DRAW)",
        ),
        ignores_what_is_preferred=(
            "        config.dynamic_sampling.is_preferred,\n",
            "",
        ),
    ),
    *rows(
        "rlvr_jax/data/pool.py",
        ("tests/rollouts/test_refill.py",),
        loses_the_place_in_the_pool=(
            "np.array([*index, *self.problem_index[kept]])",
            "self.problem_index",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/request.py",
        ("tests/rollouts/test_draw.py",),
        compiles_for_each_layout=(
            "setup.replicate(request.weight_version)",
            "request.weight_version",
        ),
    ),
]
