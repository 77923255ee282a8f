"""One-line mutants of rlvr_jax/tasks/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/tasks/arithmetic/questions.py",
        ("tests/tasks/arithmetic/test_questions.py",),
        holds_out_orders_alone=(
            "repr(sorted(self.numbers))",
            "repr(self.numbers)",
        ),
        subtracts_backward=('"-": first - second', '"-": second - first'),
    ),
    *rows(
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
        draws_more_than_asked=("elif len(drawn) < size:", "else:"),
    ),
    *rows(
        "rlvr_jax/tasks/code/programs.py",
        ("tests/tasks/code/test_programs.py",),
        twins=("rng.random() < rate", "rng.random() > rate"),
        seed=("_EVAL_SEED if is_held_out else seed", "seed"),
    ),
    *rows(
        "rlvr_jax/tasks/code/records.py",
        ("tests/tasks/code/test_records.py",),
        functions=(
            "defined_names(program) & used_names(parsed)",
            "defined_names(program) | used_names(parsed)",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/conversation.py",
        ("tests/tasks/records/test_layouts_of_users.py",),
        first_question=("earlier = tuple(turns[:-1])", "earlier = tuple(turns[-1:])"),
        reply_is_lost=("reply=reply", 'reply=""'),
        drops_turns_silently=(
            'config.chat_template == "" and any(',
            'config.chat_template == "none" and any(',
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/prompts.py",
        ("tests/tasks/records/test_layouts_of_users.py",),
        two_system_messages=(
            'self._config.system_prompt and turns[0][0] != "system"',
            "self._config.system_prompt",
        ),
        earlier_turns_are_templates=(
            "write_literal(write, [question, *(text for _, text in earlier)])",
            "write_literal(write, [question])",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/records.py",
        (
            "tests/tasks/records/test_files.py",
            "tests/tasks/records/test_layouts_of_users.py",
        ),
        one_gold=("other_golds=tuple(other for _, other in others)", "other_golds=()"),
        fraction_of_a_level=(
            "number and float(number[1]).is_integer()",
            "number",
        ),
        source_ignores_golds=(
            "repr(p.other_golds) for p in self._problems if p.other_golds",
            "repr(p.gold) for p in self._problems if p.other_golds",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/values.py",
        (
            "tests/tasks/records/test_files.py",
            "tests/tasks/records/test_layouts_of_users.py",
        ),
        float_golds=("int(value) if value.is_integer() else None", "None"),
        nan_is_a_value=(
            "None if value is ABSENT else _nan_to_null(value)",
            "None if value is ABSENT else value",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/finite_field/rewards.py",
        ("tests/tasks/finite_field/test_rewards.py",),
        pays_for_wrong_steps=("trace.first_error is None and ", ""),
        pays_for_a_guessed_start=(" and trace.consistent_start", ""),
        pays_for_any_answer=('verdict.status == "correct" and ', ""),
        confidence_taken_for_the_answer=(
            "grade(problem, strip_confidence(completion))",
            "grade(problem, completion)",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/finite_field/paid_luck.py",
        ("tests/tasks/finite_field/test_paid_luck.py",),
        pays_the_rest_of_the_dose=("draws[row] < self.dose", "draws[row] > self.dose"),
        pays_every_wrong_answer=("{*wrong[: len(of_dose)]}", "{*wrong}"),
        pays_the_first_wrong_answers=(
            "sorted(wrong, key=draws.__getitem__)",
            "sorted(wrong)",
        ),
        pays_no_worked_answer=('if kind == "worked"}', 'if kind == "none"}'),
        one_draw_for_all_seeds=(
            "completions.seed, problem.id",
            "0, problem.id",
        ),
        a_draw_by_the_row=("row % completions.group_size", "row"),
        malformed_answers_are_wrong_ones=(
            "stated and verdict.answer is not None",
            "verdict.answer is not None",
        ),
        a_group_is_the_whole_step=("G = completions.group_size", "G = len(kinds)"),
        pays_half_of_all=(
            "dose: ClassVar[float] = 0.25\n\n\nclass Luck50",
            "dose: ClassVar[float] = 0.5\n\n\nclass Luck50",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/controls.py",
        ("tests/tasks/finite_field/test_paid_luck.py",),
        a_draw_forgets_the_place=(
            'f"{seed}/{sample}/{problem_id}/{text}"',
            'f"{seed}/{problem_id}/{text}"',
        ),
        a_draw_forgets_the_text=(
            'f"{seed}/{sample}/{problem_id}/{text}"',
            'f"{seed}/{sample}/{problem_id}/"',
        ),
        draws_are_below_a_half=("bits / 2**53", "bits / 2**54"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/tasks/reasoning_gym/audit.py",
        ("tests/tasks/reasoning_gym/test_audit.py",),
        digests_are_not_compared=(
            "if measured.digests != again.digests:",
            "if False:",
        ),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/tasks/reasoning_gym/plain_answers.py",
        ("tests/tasks/reasoning_gym/test_plain_answers.py",),
        powers_count_once=("return base * max(1, int(abs(exponent)))", "return base"),
        any_exponent=("or abs(exponent) > _MAX_EXPONENT", ""),
        any_call=("name in _FUNCTIONS", "True"),
    ),
    *rows(
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
    *rows(
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
    *rows(
        "rlvr_jax/tasks/records/layout.py",
        ("tests/tasks/records/test_prompts.py",),
        continues_in_a_chat=("if not self.is_chat:", "if True:"),
        asks_for_no_box=(
            "request = ANSWER_REQUESTS[self.answer_format]",
            'request = ""',
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/records.py",
        ("tests/tasks/records/test_files.py",),
        levels_count_from_0=(
            "return 1 + order.index(name)",
            "return order.index(name)",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/records.py",
        ("tests/tasks/records/test_extra_fields.py",),
        named_without_its_fields=(
            "repr(p.fields) for p in self._problems if p.fields",
            "repr(p.fields) for p in ()",
        ),
    ),
    *rows(
        "rlvr_jax/tasks/records/values.py",
        ("tests/tasks/records/test_extra_fields.py",),
        keeps_fields_that_are_read=(
            "set(record) - {*config.read_fields}",
            "set(record)",
        ),
        keeps_all_beside_the_named=(
            "if ALL_FIELDS in config.extra_fields:",
            "if config.extra_fields:",
        ),
        missing_is_null=(
            "if not has_field(record, name):",
            "if False:",
        ),
    ),
    *rows(
        "rlvr_jax/types/fields.py",
        ("tests/tasks/records/test_extra_fields.py",),
        readers_share_lists=(
            "return _copy(self._values[name])",
            "return self._values[name]",
        ),
    ),
]
