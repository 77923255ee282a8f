"""One-line mutants of rlvr_jax/algorithms/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_RULES = ("tests/algorithms/test_advantage_rules.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/algorithms/advantages/rule.py",
        _RULES,
        a_rule_is_not_masked=(
            "mask_unjudged(self.advantages(groups), groups.judged)",
            "self.advantages(groups)",
        ),
        shrinks_nothing=(
            "scale_by_confidence(advantages_PG, groups.confidence)",
            "advantages_PG",
        ),
        guard_clips_every_group=(
            "advantages_PG, groups.overhard, max_abs",
            "advantages_PG, groups.overhard | True, max_abs",
        ),
        earlier_configs_balance_signs=(
            'earlier_tag: ClassVar[str] = "group_relative"',
            'earlier_tag: ClassVar[str] = "sign_balance"',
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/rules/group_relative.py",
        ("tests/config/test_fields_act.py",),
        ignores_the_baseline=("baseline=self.baseline,", 'baseline="group_mean",'),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/rules/sign_balance.py",
        _RULES,
        scales_the_smaller_side=(
            "jnp.minimum(above_P1, below_P1)",
            "jnp.maximum(above_P1, below_P1)",
        ),
        counts_the_other_side=(
            "jnp.where(sign_PG > 0, above_P1, below_P1)",
            "jnp.where(sign_PG > 0, below_P1, above_P1)",
        ),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/rules/positive_only.py",
        _RULES,
        keeps_the_negative=("jnp.maximum(", "jnp.minimum("),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/rules/negative_only.py",
        _RULES,
        keeps_the_positive=("jnp.minimum(", "jnp.maximum("),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/rules/asymmetric.py",
        _RULES,
        weighs_the_other_sign=("advantages_PG > 0,", "advantages_PG < 0,"),
    ),
    *rows(
        "rlvr_jax/algorithms/advantages/rules/sign_balance.py",
        _RULES,
        rounding_is_a_sign=("jnp.abs(advantage_PG) > 1e-5", "advantage_PG != 0"),
    ),
]
