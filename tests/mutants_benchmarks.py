"""One-line mutants of benchmarks/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_ACCELERATOR = ("tests/test_accelerator.py",)

MUTANTS = [
    *rows(
        "benchmarks/accelerator/results.py",
        _ACCELERATOR,
        interrupted_parts_are_final=(
            '_FINAL = ("done", "failed")',
            '_FINAL = ("done", "failed", "interrupted")',
        ),
    ),
    *rows(
        "benchmarks/accelerator/roofline.py",
        _ACCELERATOR,
        one_round_of_slots=("rounds = -(-len(tokens) // slots)", "rounds = 1"),
        steps_of_the_longest_row_alone=(
            "-(-int((tokens - 1).sum()) // slots)",
            "0",
        ),
    ),
    *rows(
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
    *rows(
        "benchmarks/accelerator/workload.py",
        _ACCELERATOR,
        rows_end_a_token_late=("workload.limit + 1 - count", "workload.limit - count"),
    ),
    *rows(
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
    *rows(
        "benchmarks/counts.py",
        _ACCELERATOR,
        frozen_weights_have_gradients=(
            "round(2 * products + 3 * attention)",
            "round(3 * products + 3 * attention)",
        ),
    ),
]
