"""One-line mutants of rlvr_jax/sampler/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/sampler/generate.py",
        ("tests/sampler/test_begun.py",),
        every_turn_draws_anew=(
            "index_R = slots.offset + slots.index",
            "index_R = slots.index",
        ),
        one_sample_for_all_begun_rows=(
            "jax.vmap(of_row)(prompts.uid, begun.sample)",
            "jax.vmap(of_row)(prompts.uid, 0 * begun.sample)",
        ),
    ),
    *rows(
        "rlvr_jax/sampler/slots.py",
        ("tests/sampler/test_slots.py",),
        draws_with_its_predecessors_key=(
            "keys=chosen(new.keys, slots.keys)",
            "keys=slots.keys",
        ),
        reads_another_prompt=("prompt_R = row_R // group_size", "prompt_R = row_R"),
        stores_from_the_start_of_the_ring=(
            "(slots.start[:, None] + token_T[None])",
            "(0 * slots.start[:, None] + token_T[None])",
        ),
        skips_a_row_at_every_refill=(
            "next_row_1 + taken",
            "next_row_1 + taken + 1",
        ),
        never_compacts=("slots - free_n(state) > fewer", "slots - free_n(state) > 0"),
    ),
]
