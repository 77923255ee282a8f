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
    *rows(
        "rlvr_jax/sampler/slots.py",
        ("tests/sampler/test_slots.py",),
        counts_steps_instead_of_slot_steps=(
            "state.slot_steps + slots.row.shape[0],",
            "state.slot_steps + 1,",
        ),
        starts_when_its_predecessor_did=(
            "start=chosen(clock_1, slots.start),",
            "start=slots.start,",
        ),
        is_finished_as_its_predecessor_was=(
            "finished=slots.finished & ~taken_R,",
            "finished=slots.finished,",
        ),
        starts_from_the_first_prompt=(
            "hidden=take_rows(rows.hidden, prompt_R),",
            "hidden=take_rows(rows.hidden, 0 * prompt_R),",
        ),
        attends_to_the_first_prompt=(
            "prefix=take_rows(rows.prefix, prompt_R),",
            "prefix=take_rows(rows.prefix, 0 * prompt_R),",
        ),
        stores_tokens_after_the_end=(
            "new_RT = jnp.where(own_RT, row_RT, 0)",
            "new_RT = row_RT",
        ),
        compacts_the_rows_that_ended=(
            "jnp.argsort(slots.ended(T), stable=True)",
            "jnp.argsort(~slots.ended(T), stable=True)",
        ),
        rows_at_the_limit_are_finished=(
            ".set(slots.finished, mode=",
            ".set(slots.ended(T), mode=",
        ),
        new_columns_come_first=("widths[axis] = (0, more)", "widths[axis] = (more, 0)"),
    ),
    *rows(
        "rlvr_jax/sampler/slots.py",
        ("tests/sampler/test_begun.py",),
        forgets_the_tokens_of_earlier_turns=(
            "offset=chosen(new.offset, slots.offset),",
            "offset=slots.offset,",
        ),
        lengths_count_earlier_turns=(
            ".set(slots.index, mode=",
            ".set(slots.index + slots.offset, mode=",
        ),
    ),
    *rows(
        "rlvr_jax/sampler/layout.py",
        ("tests/sampler/test_layout.py",),
        the_update_takes_the_samplers_devices=("found[:-number])", "found[number:])"),
        holds_one_copy_whatever_the_staleness=(
            "max(1, config.train.staleness)",
            "max(1, 0)",
        ),
    ),
]
