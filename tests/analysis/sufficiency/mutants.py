"""One-line mutants of rlvr_jax/analysis/sufficiency/."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/analysis/sufficiency/measure.py",
        ("tests/analysis/sufficiency/test_measure.py",),
        chooses_what_fell=("np.argsort(-np.where(", "np.argsort(np.where("),
        chooses_what_never_fired=("& (self.before.firing.rate > 0)", ""),
        keeps_the_latents_own_unit=(
            "unit[list(latents)] = self.change[list(latents)]",
            "pass",
        ),
        reads_the_first_problems=(
            "np.linspace(0, len(places) - 1, min(most, len(places))).astype(int)",
            "np.arange(min(most, len(places)))",
        ),
        change_is_turned_round=("mean_new - mean_old", "mean_old - mean_new"),
        reads_texts_of_one_policy=(
            "for writer in (before, after):",
            "for writer in (before,):",
        ),
        shares_of_chance=("if is_known:", "if True:"),
        shares_of_the_whole=(
            "now.resampled(counts_RN) - before.resampled(counts_RN)",
            "now.resampled(counts_RN)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/sufficiency/command.py",
        ("tests/probe/test_intervene.py",),
        scores_the_problems_that_chose=(
            "return problems[::2], problems[1::2]",
            "return problems[::2], problems[::2]",
        ),
        edits_the_policy_after_rl=(
            "*((before, arm) for arm in arms)",
            "*((after, arm) for arm in arms)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/sufficiency/command.py",
        ("tests/probe/test_intervene.py",),
        examples_that_are_scored=(
            "choose_examples(choosing,",
            "choose_examples(scored,",
        ),
        few_shot_without_examples=("(few_shot_policy, Edit", "(before, Edit"),
        keeps_kl_of_unedited=('if name != "kl"', "if name"),
    ),
    *rows(
        "rlvr_jax/analysis/sufficiency/text.py",
        ("tests/analysis/sufficiency/test_measure.py",),
        controls_of_examples=('and target.kind == "target"', ""),
        examples_of_all_outcomes=(
            '== (outcome, "few-shot")',
            "== (outcome, share.kind)",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/sufficiency/few_shot.py",
        ("tests/analysis/sufficiency/test_few_shot.py",),
        examples_without_solutions=("*encode_solution(problem, tokenizer),", ""),
        unsolved_examples=("if problem.solution]", "]"),
        each_turn_begins_the_sequence=(
            "self._encode(problem)[",
            "encode_prompt(problem, tokenizer)[",
        ),
        each_turn_has_the_system_message=("count = number", "count = 0"),
        nothing_of_a_turn_is_kept=("if column[0] in eos_ids:", "if True:"),
        examples_of_control_tokens=(
            "self._tokenizer.encode(problem.prompt, literal=problem.literal)",
            "self._tokenizer.encode(problem.prompt)",
        ),
        prompts_of_any_length=("longest + room >", "longest >"),
        the_shortest_prompt_decides=("longest = max(", "longest = min("),
    ),
]
