"""One-line mutants of rlvr_jax/report/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_PARTS = ("tests/report/test_parts.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/report/page.py",
        _PARTS,
        parts_in_the_order_of_files=(
            "sorted(parts, key=lambda part: part.order)",
            "parts",
        ),
        forgets_the_analyses=(
            "if analysis.ispkg and",
            "if not analysis.ispkg and",
        ),
    ),
    *rows(
        "rlvr_jax/report/sections.py",
        _PARTS,
        folds_everything=("folded=not self.is_first", "folded=True"),
    ),
]
