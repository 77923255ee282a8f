"""One-line mutants of rlvr_jax/plan/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
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
]
