"""One-line mutants of rlvr_jax/run/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/main.py",
        ("tests/run/test_cli.py",),
        collections_visit_the_libraries=("gc.freeze()", "pass"),
        collections_stay_off=("gc.enable()", "pass"),
        freezes_at_every_call=("if name in sys.modules or not", "if not"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/run/checks.py",
        ("tests/run/test_marks.py",),
        thinking_needs_no_marks=("if config.tokenizer.thinks:", "if False:"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/run/fork.py",
        ("tests/integration/test_fork.py",),
        forgets_what_was_decided_before=("or change.startswith(_OF_BEFORE)", ""),
        keeps_a_later_step=("< step + counts_done", "<= step + counts_done"),
        memorizes_the_parents_problems=('and "memorization" not in before', ""),
    ),
    *rows(
        "rlvr_jax/run/fork.py",
        ("tests/experiment/test_schedule.py",),
        keeps_every_checkpoint=("steps[-kept.max_to_keep :]", "steps"),
    ),
    *rows(
        "rlvr_jax/run/lineage.py",
        ("tests/run/test_lineage.py",),
        oldest=("there[stage][-1]", "there[stage][0]"),
        any_other_checkpoint=("or mark not in marks", "or mark is None"),
        sft_again=("replace(config.sft, steps=0)", "replace(config.sft)"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/run/setup.py",
        ("tests/run/test_marks.py",),
        never_asks_the_template=(
            "template_has_it=writes_thinking(task.template_text)",
            "template_has_it=False",
        ),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/run/data_warnings.py",
        ("tests/run/test_data_warnings.py",),
        missing_solutions_are_silent=("if missing and config.sft.steps > 0:", "if 0:"),
        reads_all_that_is_generated=(
            'num_checked(setup.sources["train"])',
            'len(setup.sources["train"])',
        ),
        layout_tells_questions_apart=(
            'return " ".join(problem.prompt.split())',
            "return problem.prompt",
        ),
        first_golds_alone=("for g in problem.golds)", "for g in problem.golds[:1])"),
        chance_repeats_are_told=("if _is_generated(setup):\n        return", "pass"),
        reads_a_billion=(
            "min(setup.config.eval.num_problems, MAX_SCANNED_PROBLEMS)",
            "setup.config.eval.num_problems",
        ),
        any_field_is_odd=("if not others or odd > _MAX_ODD * len(train) or", "if"),
        null_is_a_number=(
            'return _KINDS.get(type(problem.fields[field]), "null")',
            'return "number"',
        ),
        warns_of_builtin_rewards=(
            "<= {*REWARDS.names}:\n        return",
            "<= set():\n        return",
        ),
        forgets_the_pool=("return min(pool_size, count) if", "return count if"),
    ),
    *rows(
        "rlvr_jax/run/checks.py",
        ("tests/run/test_data_warnings.py",),
        full_batches_repeat=("or size <= available", "or size < available"),
        batches_of_the_whole_source=(
            "available = min(config.difficulty.pool_size or count, count)",
            "available = count",
        ),
        never_repeats=("or config.curriculum.repeats_problems", "or False"),
        judges_need_no_use=(
            'if not is_set or "judge" in',
            'if is_set or "judge" in',
        ),
    ),
    *rows(
        "rlvr_jax/config/sampling.py",
        ("tests/run/test_data_warnings.py",),
        a_product_of_one=("math.prod(factors.values())", "max(factors.values())"),
    ),
    *rows(
        "rlvr_jax/run/start_warnings.py",
        ("tests/run/test_start_warnings.py",),
        any_rate_for_new_weights=(
            "_RATES_OF_NEW = (1e-6, 1e-1)",
            "_RATES_OF_NEW = (1e-99, 1e99)",
        ),
        any_temperature=("_MAX_TEMPERATURE = 2.0", "_MAX_TEMPERATURE = 100.0"),
        warms_up_in_batches=(
            "(config.train.optimizer, config.train.optimizer_steps)",
            "(config.train.optimizer, config.train.steps)",
        ),
        any_warmup=("_MAX_WARMUP = 4 ", "_MAX_WARMUP = 400 "),
        any_rank=("if rank > hidden:", "if rank >= hidden:"),
        pays_for_errors=("if weight < 0:", "if weight > 0:"),
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
    *rows(
        "rlvr_jax/run/throughput.py",
        ("tests/run/test_throughput.py",),
        peak_of_one_process=("measured * num_devices / len(devices)", "measured"),
        epochs_train_nothing=(
            "num_epochs * timing.trained_tokens",
            "timing.trained_tokens",
        ),
        frozen_weights_have_gradients=("(4 if frozen else 6)", "(6 if frozen else 6)"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/run/trainable.py",
        ("tests/run/test_trainable.py",),
        every_seed_has_the_same_adapters=(
            'setup.stream_key("lora")',
            "jax.random.key(0)",
        ),
        steps_overwrite_the_start=(
            "init=lambda: jax.tree.map(jnp.copy, adapters),",
            "init=lambda: adapters,",
        ),
    ),
    *rows(
        "rlvr_jax/run/fork.py",
        ("tests/integration/test_fork.py",),
        metrics_of_the_next_step_too=('or r["step"] < step', 'or r["step"] <= step'),
        loses_the_last_fidelity=('r["step"] <= step)', 'r["step"] < step)'),
        loses_features_of_the_last_step=(
            '(re.compile(r"features/step_(\\d+)\\."), True)',
            '(re.compile(r"features/step_(\\d+)\\."), False)',
        ),
        may_end_where_it_begins=("if steps <= step:", "if steps < step:"),
        tells_what_rl_changed=(
            '.pop("posterior_by_initial", None)',
            '.get("posterior_by_initial", None)',
        ),
        forgets_the_fork_before=(
            '"earlier": record.get("forked_from"),',
            '"earlier": None,',
        ),
        eval_is_done_already=('not in ("train", "eval")', 'not in ("train",)'),
        shares_files_that_are_written_again=(
            "may_share = path.split",
            "may_share = True or path.split",
        ),
    ),
    *rows(
        "rlvr_jax/run/lineage.py",
        ("tests/run/test_lineage.py",),
        goes_on_with_or_without_the_optimizer=(
            "if asked != (lineage.workdir, lineage.has_optimizer) or",
            "if asked[0] != lineage.workdir or",
        ),
        forgets_the_runs_before=(
            "        earlier=earlier,\n    )",
            "        earlier=None,\n    )",
        ),
        takes_another_moments_dtype=(
            "not lineage.has_optimizer or moments[0] == moments[1]",
            "True",
        ),
    ),
    *rows(
        "rlvr_jax/run/start.py",
        ("tests/run/test_start.py",),
        steps_go_on=("step=state.step * 0,", "step=state.step,"),
        counts_bad_steps_of_the_run_before=(
            "consecutive_nonfinite=state.consecutive_nonfinite * 0,",
            "consecutive_nonfinite=state.consecutive_nonfinite,",
        ),
    ),
    *rows(
        "rlvr_jax/run/data_warnings.py",
        ("tests/run/test_data_warnings.py",),
        pays_a_judge_for_solutions=(
            "if p.solution and get_verifier(p.verifier).checks_golds",
            "if p.solution",
        ),
        every_record_has_a_level=("problem.level == 0]", "problem.level < 0]"),
        believes_solutions=('if verdict.status == "incorrect"', "if False"),
    ),
    *rows(
        "rlvr_jax/run/golds.py",
        ("tests/run/test_golds.py",),
        reads_a_generated_source_to_its_end=(
            "range(num_checked(source))",
            "range(len(source))",
        ),
    ),
]
