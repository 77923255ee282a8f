"""One-line mutants of rlvr_jax/analysis/estimates/."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/analysis/estimates/average.py",
        ("tests/analysis/estimates/test_estimates.py",),
        estimates_steps_are_seeds=(
            "of_seed.setdefault(seed, [])",
            "of_seed.setdefault((seed, len(of_seed)), [])",
        ),
        estimates_steps_twice=("if count > 1", "if count > 2"),
        estimates_count_silent_problems=(
            'sum(one["has_signal"] for one in data["problems"])',
            'len(data["problems"])',
        ),
    ),
]
