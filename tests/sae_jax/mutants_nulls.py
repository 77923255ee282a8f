"""Mutants of held-out scores, intervals and claims in sae_jax/stats/."""

from tests.mutants.mutant import rows

_CHANCE = ("tests/sae_jax/stats/test_chance.py",)
_MEAN_AND_RATE = ("tests/sae_jax/stats/test_mean_and_rate.py",)
_COVERAGE = ("tests/sae_jax/stats/test_coverage.py",)

MUTANTS = [
    *rows(
        "sae_jax/stats/sparse_probing.py",
        _CHANCE,
        scores_where_it_was_fitted=(
            "probe.mean_auroc(f_test, test.label)",
            "probe.mean_auroc(f_learn, learn.label)",
        ),
        scores_activations_where_they_were_fitted=(
            "dense.mean_auroc(test.x, test.label)",
            "dense.mean_auroc(learn.x, learn.label)",
        ),
        halves_of_tokens=(
            "is_train = np.isin(tokens.problem, train)",
            "is_train = rng.random(len(tokens.problem)) < 0.5",
        ),
    ),
    *rows(
        "sae_jax/stats/factors.py",
        _CHANCE,
        probe_is_right_where_it_was_fitted=(
            "probe.accuracy(inputs[is_odd], classes[is_odd])",
            "probe.accuracy(inputs[~is_odd], classes[~is_odd])",
        ),
        scores_the_half_that_chose=(
            "auroc(sign[c] * f[is_odd, column_of[c]], classes[is_odd] == c)",
            "auroc(sign[c] * f[~is_odd, column_of[c]], classes[~is_odd] == c)",
        ),
        correlates_on_the_half_that_chose=(
            "np.abs(odd_correlation[assigned.latents",
            "np.abs(even_correlation[assigned.latents",
        ),
        chooses_on_the_half_that_scores=(
            "best = np.abs(even_correlation)",
            "best = np.abs(odd_correlation)",
        ),
    ),
    *rows(
        "sae_jax/stats/confirmation.py",
        _CHANCE,
        tells_of_the_half_that_chose=(
            "second=WithinPromptEffect(second_Z[latents_K]",
            "second=WithinPromptEffect(first_Z[latents_K]",
        ),
    ),
    *rows(
        "sae_jax/stats/dynamics.py",
        _MEAN_AND_RATE,
        emerging_by_the_mean=(
            'emerging=passed["emerging"] & (q_rate <=',
            'emerging=passed["emerging"] & (q_mean <=',
        ),
        strengthened_by_the_rate=(
            'strengthened=passed["strengthened"] & (q_mean <=',
            'strengthened=passed["strengthened"] & (q_rate <=',
        ),
        suppressed_by_the_rate=(
            'suppressed=passed["suppressed"] & (q_mean <=',
            'suppressed=passed["suppressed"] & (q_rate <=',
        ),
        rates_have_the_means_p=(
            'adjust_p_values(change.p_rate, passed["emerging"]',
            'adjust_p_values(change.p_mean, passed["emerging"]',
        ),
        firings_are_sums=(
            "sign_flip_p_values(texts.fired_change[:, tested], integer=True)",
            "sign_flip_p_values(texts.sum_change[:, tested])",
        ),
    ),
    *rows(
        "sae_jax/stats/noise_null.py",
        _MEAN_AND_RATE,
        emerging_by_the_mean=(
            "emerging=found.emerging & (q_rate <= fdr)",
            "emerging=found.emerging & (q_mean <= fdr)",
        ),
        strengthened_by_the_rate=(
            "strengthened=found.strengthened & (q_mean <= fdr)",
            "strengthened=found.strengthened & (q_rate <= fdr)",
        ),
        rates_move_as_means_do=("(change.rate, rate_NZ)", "(change.mean, mean_NZ)"),
    ),
    *rows(
        "sae_jax/stats/crosscoder.py",
        _COVERAGE,
        interval_of_a_half=("[0.025, 0.975]", "[0.25, 0.75]"),
        interval_of_nearly_all=("[0.025, 0.975]", "[0.0005, 0.9995]"),
        shifted_interval=("[0.025, 0.975]", "[0.0005, 0.9]"),
    ),
    *rows(
        "sae_jax/stats/resample.py",
        _COVERAGE,
        each_tail_is_both=("tail = (1 - confidence) / 2", "tail = 1 - confidence"),
        half_by_default=("confidence: float = 0.95", "confidence: float = 0.5"),
        nearly_all_by_default=("confidence: float = 0.95", "confidence: float = 0.999"),
    ),
    *rows(
        "sae_jax/stats/recovery.py",
        _CHANCE,
        random_directions_are_those_asked=(
            "match_decoders(jnp.asarray(drawn), decoder)",
            "match_decoders(jnp.asarray(directions), decoder)",
        ),
    ),
    *rows(
        "sae_jax/capture/splice.py",
        _COVERAGE,
        interval_of_a_half=(
            "bootstrap_interval(statistics, sums_P7)",
            "bootstrap_interval(statistics, sums_P7, confidence=0.5)",
        ),
    ),
]
