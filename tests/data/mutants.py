"""One-line mutants of rlvr_jax/data/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_TRACE = ("tests/integration/test_trace.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/data/curricula/base.py",
        ("tests/data/test_curricula.py",),
        one_order_for_all=("(*seeds, order) if order else seeds", "seeds"),
    ),
    *rows(
        "rlvr_jax/data/difficulty.py",
        ("tests/data/test_curricula.py",),
        favors_what_is_never_judged=(
            "2 * self.num_graded_visits < self.num_visits",
            "2 * self.num_graded_visits < 0 * self.num_visits",
        ),
    ),
    *rows(
        "rlvr_jax/data/loader.py",
        _TRACE,
        never_ends_a_solution=(
            "return [*ids, tokenizer.eos_id]",
            "return [*ids]",
        ),
    ),
    *rows(
        "rlvr_jax/data/loader.py",
        ("tests/data/test_literal.py",),
        solutions_write_controls=(
            "tokenizer.encode(text, literal=whole_text(text))",
            "tokenizer.encode(text)",
        ),
        replies_write_controls=(
            "tokenizer.encode(written, literal=literal)",
            "tokenizer.encode(written)",
        ),
    ),
    *rows(
        "rlvr_jax/data/loader.py",
        ("tests/run/test_marks.py",),
        prompts_write_controls=(
            "tokenizer.encode_prompt(problem.prompt, literal=problem.literal)",
            "tokenizer.encode_prompt(problem.prompt)",
        ),
    ),
    *rows(
        "rlvr_jax/data/loader.py",
        ("tests/data/test_loader.py",),
        what_is_stored_counts_as_generated=(
            "> MAX_SCANNED_PROBLEMS and not isinstance(source, Sequence)",
            "> MAX_SCANNED_PROBLEMS",
        ),
    ),
    *rows(
        "rlvr_jax/data/pool.py",
        ("tests/rollouts/test_refill.py",),
        rows_that_made_room_count=(
            "max(0, self.num_fallback - len(first))",
            "self.num_fallback",
        ),
        the_last_make_room=("rng.permutation(chosen)[:left]", "np.arange(left)"),
    ),
    *rows(
        "rlvr_jax/data/curricula/uniform.py",
        ("tests/data/test_curricula.py",),
        the_order_of_sft=(
            "(draw.seed, _ORDER)).generate_state(1).tolist()",
            "(draw.seed,)).entropy",
        ),
    ),
    *rows(
        "rlvr_jax/data/curricula/easy_to_hard.py",
        ("tests/data/test_curricula.py", "tests/rollouts/test_collect.py"),
        the_easiest_of_the_window=(
            "draw.rng.permutation(rank_N[start : start + width])",
            "rank_N[start : start + width]",
        ),
        asked_again=("move_last(shuffled_W, draw.asked)", "shuffled_W"),
    ),
]
