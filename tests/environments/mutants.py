"""One-line mutants of rlvr_jax/environments/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/environments/calculator.py",
        ("tests/environments/test_calculator.py",),
        negative_words=("0 <= value <= self", "value <= self"),
    ),
    *rows(
        "rlvr_jax/environments/finite_field.py",
        ("tests/environments/test_finite_field.py",),
        guesses_hold=("            and report.consistent_start\n", ""),
        several_steps_hold=(
            "len(words) == _STEP_WORDS + (0 if held else _HEADER_WORDS)",
            "len(words) >= _STEP_WORDS + (0 if held else _HEADER_WORDS)",
        ),
    ),
    *rows(
        "rlvr_jax/environments/calls.py",
        ("tests/environments/test_calls.py",),
        one_call_at_a_time=("concurrency=environment.concurrency\n", "concurrency=1\n"),
        refuses_the_longest_reply=(
            "if len(reply.text) > most:",
            "if len(reply.text) >= most:",
        ),
    ),
    *rows(
        "rlvr_jax/environments/calculator.py",
        ("tests/environments/test_calculator.py",),
        shows_what_the_data_says=(
            'Message(role="environment", text=reply.text)',
            'Message(role="environment", text=stated)',
        ),
        keeps_calls_with_other_results=(
            "if not reply.done and _have_equal_values(reply.text, stated):",
            "if not reply.done:",
        ),
        answers_every_call=("[: self.max_calls_per_turn]", "[:]"),
        the_largest_result_is_an_error=(
            "<= value <= self.largest_result",
            "<= value < self.largest_result",
        ),
    ),
    *rows(
        "rlvr_jax/environments/finite_field.py",
        ("tests/environments/test_finite_field.py",),
        wrong_steps_are_judged=("if holds or at == len(turns)", "if holds or at"),
        the_answer_is_not_judged=("if holds or at == len(turns)", "if holds"),
        a_wrong_step_holds=("            and all(report.step_correct)\n", ""),
    ),
]
