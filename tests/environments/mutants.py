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
]
