"""Mutants of traces and groups with dropped or unverified rows."""

from tests.mutants.mutant import rows

_TRACES = ("tests/rollouts/test_external_traces.py",)
_GROUPS = ("tests/rollouts/test_groups.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/rollouts/external.py",
        _TRACES,
        scores_other_problems=(
            "        [problems[p] for p in kept],\n",
            "        [*problems[: len(kept)]],\n",
        ),
        scores_other_texts=(
            "[judged[p].text for p in kept]",
            "[text.text for text in judged.values()][: len(kept)]",
        ),
        judges_other_problems=(
            "[problems[p] for p in short_enough], list(judged.values())",
            "[*problems[: len(short_enough)]], list(judged.values())",
        ),
        keeps_what_nobody_judged=(
            'if verdict.status == "correct"',
            'if verdict.status != "incorrect"',
        ),
        keeps_the_shortest_that_cannot_be=(
            "sampling.min_new_tokens < len(row)",
            "sampling.min_new_tokens <= len(row)",
        ),
        drops_the_shortest_that_can_be=(
            "sampling.min_new_tokens < len(row)",
            "sampling.min_new_tokens + 1 < len(row)",
        ),
        drops_the_longest_that_can_be=(
            "<= sampling.max_new_tokens\n",
            "< sampling.max_new_tokens\n",
        ),
        scores_stand_in_the_first_rows=(
            "spread_P[list(index)] = values",
            "spread_P[: len(values)] = values",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/groups.py",
        _GROUPS,
        unverified_is_forgotten=(
            "num_correct < 0.5 * num_verified",
            "num_correct < 0.5 * len(group)",
        ),
        half_is_forgotten=(
            "num_correct < 0.5 * num_verified",
            "num_correct <= 0.5 * num_verified",
        ),
        half_was_not_solved=(
            "prior.last_pass_rate[p] >= 0.5",
            "prior.last_pass_rate[p] > 0.5",
        ),
        one_past_for_all=(
            "prior.last_pass_rate[p] >= 0.5",
            "prior.last_pass_rate[0] >= 0.5",
        ),
        flags_what_nobody_judged=(
            '"unverified": (),',
            '"unverified": ("forgotten",) if is_lost else (),',
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/collect.py",
        _GROUPS,
        fallback_of_the_groups_kept=(
            "num_fallback / sum(map(len, rounds))",
            "num_fallback / len(groups)",
        ),
        fallback_by_round=(
            "num_fallback / sum(map(len, rounds))",
            "num_fallback / len(rounds)",
        ),
        fallback_of_the_last_round=("num_fallback += batch", "num_fallback = batch"),
        signal_by_completion=(
            "groups.count_with_signal() / len(groups)",
            "groups.count_with_signal() / len(groups.graded)",
        ),
    ),
]
