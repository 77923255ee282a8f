"""One-line mutants of rlvr_jax/verifiers/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/verifiers/answers/arithmetic.py",
        ("tests/verifiers/test_arithmetic.py",),
        signs_bind_before_powers=(
            "base ** int(exponent)",
            "abs(base) ** int(exponent)",
        ),
        powers_from_the_left=(
            "(self._take(), base, self._parse_signed(depth + 1))",
            "(self._take(), base, self._parse_atom(depth + 1))",
        ),
        commas_anywhere=("(?:,[0-9]{3})+(?![0-9,])", "(?:,[0-9]+)+"),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/statements.py",
        ("tests/verifiers/test_families.py",),
        headings_are_answers=("####(?![#*_ \\t]{{0,20}}{_TITLES})", "####"),
        list_marks_are_minus_signs=(
            "if _BULLET.match(text) else text",
            "if False else text",
        ),
        words_hide_results=(
            'return result if equals and is_numeral(result) else ""',
            'return ""',
        ),
        operands_are_answers=(
            'return result if equals and is_numeral(result) else ""',
            "return result",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/cut.py",
        ("tests/verifiers/test_cut.py",),
        words_are_whole=(
            "(text + w[len(begun) :] for w in longer)",
            "(text for w in longer)",
        ),
        formulas_are_open=("or _CLOSED.search(body)", "or False"),
        lists_are_closed=('_LIST_JOINT.sub("", body)', "body"),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/statements.py",
        ("tests/verifiers/test_families.py",),
        box_always_wins=("return final or boxed.strip()", "return boxed.strip()"),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/mismatches.py",
        ("tests/verifiers/test_families.py",),
        any_case=("if have_different_cases(gold, answer):", "if False:"),
        sets_are_pairs=("if is_set_for_tuple(gold, answer):", "if False:"),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/inequalities.py",
        ("tests/verifiers/test_families.py",),
        any_variable=("gold_range[0] == answer_range[0]", "True"),
        closes_ends=(
            '_write_interval(end, r"\\infty", "=" in sign, False)',
            '_write_interval(end, r"\\infty", True, False)',
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/calculations.py",
        ("tests/verifiers/test_lists_and_notes.py",),
        believes_equations=(
            "return Decimal(numeral) != Decimal(result)",
            "return False",
        ),
        believes_calculations=(
            "return distance > error or (error == 1 == distance)",
            "return False",
        ),
        rounds_products=('Fraction("/" in shown)', "Fraction(1)"),
        rounds_by_one=(" or (error == 1 == distance)", ""),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/inequalities.py",
        ("tests/verifiers/test_lists_and_notes.py",),
        commas_are_or=("if not any(meets):", "if True:"),
        touching_is_apart=(
            'found[one][4] + found[other][1] == "]["',
            "False",
        ),
        commas_are_never_and=('_intersect(sets) if is_range else ""', '""'),
        other_variables_join=("if len(variables) != 1 or", "if"),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/limits.py",
        ("tests/verifiers/test_lists_and_notes.py",),
        unions_of_any_length=("_MAX_UNIONS = 12", "_MAX_UNIONS = 13"),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/solutions.py",
        ("tests/verifiers/test_lists_and_notes.py",),
        order_is_free=("names = sorted(solutions[0])", "names = list(solutions[0])"),
        brackets_are_split=("if depth == 0 else None", "if True else None"),
        lists_have_any_order=(
            "stated, f\"({','.join(values)})\"",
            "gold, answer",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/statements.py",
        ("tests/verifiers/test_lists_and_notes.py",),
        notes_are_free=('{"or", "mod", "base", "no", "but"}', '{"mod"}'),
        less_than_is_equal=('"pi", "than", "quarter"}', '"pi", "quarter"}'),
        digits_join=('text = _BETWEEN_DIGITS.sub(" ", text)', "pass"),
        any_choice_mark=('if mark["choice"]:', "if False:"),
    ),
    *rows(
        "rlvr_jax/verifiers/built_in/code.py",
        ("tests/verifiers/test_code.py",),
        block=("return blocks[-1]", "return blocks[0]"),
        prefix=("wanted.prefix + extract_program", "extract_program"),
        seconds_of_programs_are_fixed=("cpu_s=config.code_cpu_s", "cpu_s=2"),
        memory_of_programs_is_fixed=("config.code_memory_mb", "512"),
    ),
    *rows(
        "rlvr_jax/verifiers/grader.py",
        ("tests/verifiers/test_grader.py",),
        mixes_up_rows=("zip(rows, graded, strict=True)", "enumerate(graded)"),
        opens_a_verifier_for_each_batch=("if name not in self._opened:", "if True:"),
        shares_nothing=("if name not in self._shared:", "if True:"),
        closes_only_what_is_shared=(
            "(*self._opened.values(), *self._shared.values())",
            "(*self._shared.values(),)",
        ),
        closes_nothing_shared=(
            "(*self._opened.values(), *self._shared.values())",
            "(*self._opened.values(),)",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/base.py",
        ("tests/verifiers/test_grader.py",),
        failures_are_incorrect=(
            'Verdict(status="unverified", reason=reason, failure',
            'Verdict(status="incorrect", reason=reason, failure',
        ),
        limits_of_the_section_alone=("self.limits or limits", "limits or self.limits"),
    ),
    *rows(
        "rlvr_jax/verifiers/grader.py",
        ("tests/verifiers/test_grader.py",),
        believes_prose=("or verifier.describe_gold_fault(problem)", 'or ""'),
    ),
    *rows(
        "rlvr_jax/verifiers/grader.py",
        ("tests/verifiers/test_several_golds.py",),
        last_gold_counts=(
            "max(verdicts[i], other, key=_rank)",
            "other",
        ),
        unverified_is_worst=(
            '("incorrect", "unverified", "correct")',
            '("unverified", "incorrect", "correct")',
        ),
        grades_correct_ones_again=(
            'n < len(by_gold[i]) and verdict.status != "correct"',
            "n < len(by_gold[i])",
        ),
        believes_other_golds=(
            "problem for owner in checked for problem in self._by_gold(owner)",
            "owner for owner in checked for problem in self._by_gold(owner)",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/controls.py",
        ("tests/verifiers/test_several_golds.py",),
        false_label_beside_right_ones=("gold=gold, other_golds=()", "gold=gold"),
    ),
    *rows(
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
    *rows(
        "rlvr_jax/verifiers/math_pool.py",
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
    *rows(
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
    *rows(
        "rlvr_jax/verifiers/math_worker.py",
        ("tests/verifiers/test_math.py",),
        blames_the_answer=(
            'gold, _, *how = item\n        status = "unverified"',
            'gold, _, *how = item\n        status = "incorrect"',
        ),
        blames_nobody=('status, *_ = grade(gold, "", *how)', "pass"),
    ),
    *rows(
        "rlvr_jax/verifiers/thinking.py",
        ("tests/rollouts/test_judged.py",),
        first_mark_counts=(
            "return completion.rpartition(THINK_CLOSE)[2]",
            "return completion.partition(THINK_CLOSE)[2] or completion",
        ),
        trusts_the_prompt=("(opened and not closed)", "False"),
    ),
    *rows(
        "rlvr_jax/verifiers/truncation.py",
        ("tests/verifiers/test_cut.py",),
        rejects_what_nobody_could_judge=('verdict.status != "unverified"', "True"),
        rejects_what_ended=("if cut and", "if"),
    ),
    *rows(
        "rlvr_jax/verifiers/math_worker.py",
        ("tests/verifiers/test_near_misses.py",),
        a_share_is_a_percentage=(
            "gold_number == 100 * number and abs(gold_number) >= 1",
            "gold_number == 100 * number",
        ),
    ),
    *rows(
        "rlvr_jax/verifiers/answers/mismatches.py",
        ("tests/verifiers/test_near_misses.py",),
        letters_have_no_order=("mine != theirs and sorted", "False and sorted"),
        repeats_do_not_count=("sorted(items) != sorted(others)", "False"),
        pairs_may_not_repeat=('if "(" in gold:', 'if "?" in gold:'),
        a_word_is_a_product=("word[1][0].islower() and", "True and"),
        a_product_is_a_word=("word[1][0].islower() and", "word[1].islower() and"),
        five_dozen_are_five=("if _AMOUNT.findall(gold) !=", "if [] !="),
    ),
]
