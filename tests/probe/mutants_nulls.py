"""Mutants of controls, noise and the proxy's guard in rlvr_jax/probe/."""

from tests.mutants.mutant import rows

_DRAWS = ("tests/probe/test_noise_draws.py",)
_ARMS = ("tests/probe/test_control_arms.py",)

MUTANTS = [
    *rows(
        "sae_jax/edits.py",
        _ARMS,
        random_latents_may_be_the_targets=(
            "alive = alive[~np.isin(alive, latents)]",
            "alive = alive[np.isin(alive, alive)]",
        ),
    ),
    *rows(
        "rlvr_jax/probe/intervene.py",
        _ARMS,
        random_latents_are_the_targets=(
            "match_shift(make_edit(latents, strength)",
            "match_shift(make_edit(spec.latents, strength)",
        ),
        one_direction_for_all=(
            "target.toward(direction))",
            "target.toward(directions[0]))",
        ),
        directions_are_the_target=("target.toward(direction))", "target)"),
        directions_of_one_seed=(
            "np.random.default_rng(seed).normal(",
            "np.random.default_rng(0).normal(",
        ),
        latents_of_one_seed=(
            "num_draws=spec.num_controls, seed=seed",
            "num_draws=spec.num_controls, seed=0",
        ),
        the_null_edits=("target.with_scale(0.0)", "target.with_scale(0.1)"),
    ),
    *rows(
        "rlvr_jax/probe/weight_noise.py",
        _DRAWS,
        check_has_the_nulls_keys=(
            "jax.random.fold_in(key, number)",
            "jax.random.fold_in(key, i)",
        ),
        other_noise_has_the_nulls_keys=(
            "jax.random.fold_in(key, number)",
            "jax.random.fold_in(key, number % 25)",
        ),
        time_left_counts_finished_draws=("* (total - number)", "* total"),
        whole_noise_on_each_device=(
            "jax.jit(_draw, out_shardings=shardings)(params, key)",
            "jax.jit(_draw)(params, key)",
        ),
        one_key_for_all_draws=("jax.random.fold_in(key, number)", "key"),
        one_key_for_all_seeds=(
            "jax.random.fold_in(key, number)",
            "jax.random.fold_in(jax.random.key(0), number)",
        ),
        one_noise_for_all_tensors=(
            "jax.random.normal(jax.random.fold_in(key, i), leaf.shape",
            "jax.random.normal(key, leaf.shape",
        ),
        every_kind_is_the_null=(
            'name = f"{kind}{i}"\n            yield',
            'name = f"drift{i % 5}"\n            yield',
        ),
        texts_by_position=(
            "rows = [row_of[name] for name in problem_ids]",
            "rows = [*range(len(problem_ids))]",
        ),
        keys_of_the_completions=('stream_key("noise")', 'stream_key("train")'),
        matched_noise_of_one_key=(
            "directions = _draw_directions(params, key)",
            "directions = _draw_directions(params, jax.random.key(0))",
        ),
    ),
    *rows(
        "rlvr_jax/probe/weight_noise.py",
        ("tests/probe/test_weight_noise.py",),
        noise_reads_other_tokens=(
            "texts.mask[:, 1:], ((0, 0), (0, 1))",
            "texts.mask[:, :-1], ((0, 0), (0, 1))",
        ),
    ),
    *rows(
        "rlvr_jax/probe/sae_probe.py",
        _DRAWS,
        silent_draws=('with working("reading texts under weight noise"):', "if True:"),
    ),
    *rows(
        "rlvr_jax/probe/rfgo_state.py",
        ("tests/probe/test_rfgo_state.py",),
        never_forgets=("[-config.correlation_window :]", "[-99:]"),
        reads_the_last_step_alone=("[-config.correlation_window :]", "[-1:]"),
        forgets_a_step_late=(
            "[-config.correlation_window :]",
            "[-config.correlation_window - 1 :]",
        ),
    ),
]
