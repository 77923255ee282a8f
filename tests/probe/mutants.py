"""One-line mutants of rlvr_jax/probe/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_SETTINGS = ("tests/analysis/test_settings.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/probe/capture.py",
        _SETTINGS,
        samples_as_evaluation_does=(
            "sampling=config.train.sampling,",
            "sampling=config.eval.sampling,",
        ),
    ),
    *rows(
        "rlvr_jax/probe/prefix_values.py",
        _SETTINGS,
        batches_share_their_keys=(
            "np.arange(start, start + batch_size, dtype=np.uint32)",
            "np.arange(0, batch_size, dtype=np.uint32)",
        ),
    ),
    *rows(
        "rlvr_jax/probe/control_features.py",
        ("tests/probe/test_feature_selection.py",),
        directions_fire_where_their_latents_do_not=("1.0 - rate)", "rate)"),
        directions_fire_on_every_token=(
            "projection_NR - bound_R, 0.0)",
            "projection_NR, 0.0)",
        ),
        directions_all_count_for=("np.where(effect.value < 0, -1.0, 1.0)", "1.0"),
        directions_are_those_of_one_seed=(
            "random, R = np.random.default_rng(seed)",
            "random, R = np.random.default_rng(0)",
        ),
    ),
    *rows(
        "rlvr_jax/probe/feature_selection.py",
        ("tests/probe/test_feature_selection.py",),
        signs_of_the_features=("choice.score[latents] < 0", "weights < 0"),
        unstable_too=("usable=alive_Z & stable_Z", "usable=alive_Z"),
        all_confirmed=(
            "kept_K = confirmation.confirmed(config.fdr)",
            "kept_K = confirmation.q_values <= 1",
        ),
    ),
    *rows(
        "rlvr_jax/probe/prefix_values.py",
        ("tests/probe/test_prefix_values.py",),
        squares_the_noise=("* np.diff(second.mean(", "* np.diff(first.mean("),
        runs_on_beyond_the_limit=("ids = ids[:max_new_tokens]", "pass"),
        forgets_the_prefix=("ids = begun + sampled", "ids = sampled"),
        starts_anew=("return [*prompt.tolist(), *begun.tolist()]", "return [*prompt]"),
    ),
    *rows(
        "rlvr_jax/probe/rfgo_state.py",
        ("tests/probe/test_rfgo_state.py",),
        scale_grows=("(1 - rate) * mean_square_R", "(1 + rate) * mean_square_R"),
        never_turns_off=("low >= config.min_correlation", "low >= -2"),
        no_error_bar=("low=float(low)", "low=float(value)"),
        anneals_upwards=(
            "1.0 - step / config.anneal_steps",
            "step / config.anneal_steps",
        ),
        counts_anew=(
            "self.num_proxy_groups + int(sums.proxy_groups)",
            "int(sums.proxy_groups)",
        ),
    ),
    *rows(
        "rlvr_jax/probe/rfgo_state.py",
        ("tests/probe/test_rfgo_state.py",),
        one_incorrect_is_all_incorrect=(
            "(outcome_PG == Outcome.incorrect).all(axis=1)",
            "(outcome_PG == Outcome.incorrect).any(axis=1)",
        ),
        silent_features_shrink=(
            "np.where(step_R > 0, mixed_R, mean_square_R)",
            "mixed_R",
        ),
        error_of_all_groups=(
            "square * num_groups / (num_groups - 1)",
            "square * num_groups / num_groups",
        ),
        band_activations_have_no_unit=(
            "np.asarray(probe.weights) / np.asarray(state.scale)",
            "np.asarray(probe.weights) / np.ones(len(state.scale))",
        ),
        incorrect_minus_correct=(
            "mean_OR[Outcome.correct] - mean_OR[Outcome.incorrect]",
            "mean_OR[Outcome.incorrect] - mean_OR[Outcome.correct]",
        ),
    ),
    *rows(
        "rlvr_jax/probe/splice.py",
        ("tests/probe/test_splice.py",),
        counts_an_environments_tokens=(
            "(index_T[None] > 0) & texts.mask",
            "(index_T[None] > 0) & (index_T[None] < texts.lengths[:, None])",
        ),
    ),
    *rows(
        "rlvr_jax/probe/rfgo_state.py",
        ("tests/probe/test_rfgo_state.py",),
        counts_an_annealed_proxy=("(proxy_strength > 0)", "self.is_proxy_on(config)"),
    ),
    *rows(
        "rlvr_jax/config/probe.py",
        ("tests/probe/test_fit.py",),
        one_autoencoder_for_all_seeds=("            seed=seed,", "            seed=0,"),
    ),
    *rows(
        "rlvr_jax/probe/sae.py",
        ("tests/probe/test_fit.py",),
        selects_in_the_first_layer=(
            "layer=self.layer,\n            seed_cosine",
            "layer=0,\n            seed_cosine",
        ),
        trains_by_one_seed=(
            "seed=config.seed,\n            activations_dir",
            "seed=0,\n            activations_dir",
        ),
        draws_pairs_by_one_seed=("seed=job.seed, mesh", "seed=0, mesh"),
        selects_by_one_seed=(
            "tokenize=inputs.tokenize,\n            seed=config.seed,",
            "tokenize=inputs.tokenize,\n            seed=0,",
        ),
    ),
    *rows(
        "rlvr_jax/probe/sae_probe.py",
        ("tests/probe/test_reads_its_layer.py",),
        reads_texts_at_the_first_layer=(
            "graphdef, params, self.tsae, texts, layer=self.layer",
            "graphdef, params, self.tsae, texts, layer=0",
        ),
        reads_noise_at_the_first_layer=(
            "texts, layer=self.layer, key=key",
            "texts, layer=0, key=key",
        ),
    ),
    *rows(
        "rlvr_jax/probe/sae.py",
        ("tests/probe/test_fit.py",),
        takes_an_autoencoder_of_any_layer=(
            "layer=self.layer,\n            model_name",
            "layer=0,\n            model_name",
        ),
    ),
]
