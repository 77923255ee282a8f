"""One-line mutants of rlvr_jax/analysis/influence/."""

from tests.mutants.mutant import rows

_REPLAY = ("tests/analysis/influence/test_replay.py",)
_MEASURE = ("tests/analysis/influence/test_measure.py",)
_REQUEST = ("tests/analysis/influence/test_request.py",)
_RUN = ("tests/analysis/influence/test_run.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/analysis/influence/removals.py",
        _REPLAY,
        influence_removes_the_neighbor=(
            "advantages_PG[[*places]] = 0.0",
            "advantages_PG[[p - 1 for p in places]] = 0.0",
        ),
        influence_every_problem_has_a_signal=(
            "(np.asarray(rollouts.advantages) != 0)",
            "(np.asarray(rollouts.advantages) < 9)",
        ),
        influence_traces_are_no_signal=(
            "(np.asarray(rollouts.external.advantages) != 0)",
            "False",
        ),
        influence_keeps_the_trace=("traces_P[[*places]] = 0.0", "pass"),
        influence_removes_in_place=(
            "np.array(rollouts.advantages)",
            "np.asarray(rollouts.advantages)",
        ),
        influence_removes_the_other_parts=("if part == name", "if part != name"),
        influence_keeps_the_length_penalty=(" and name != OVERLONG", ""),
    ),
    *rows(
        "rlvr_jax/analysis/influence/command.py",
        _REPLAY,
        influence_of_the_next_problem=(
            "without_problems, replay.rollouts, [p]",
            "without_problems, replay.rollouts, [p - 1]",
        ),
        influence_compares_with_before=(
            "params, _ = replay.update(remove())",
            "params = replay.state.device.params",
        ),
        influence_batch_is_another_update=(
            "held_out.measure(replay.state.device.params)",
            "held_out.measure(params)",
        ),
        influence_estimates_in_reverse=(
            "float(found[at]) for name",
            "float(found[-1 - at]) for name",
        ),
        influence_tracin_without_rates=("rates_S @", "np.ones(len(steps)) @"),
    ),
    *rows(
        "rlvr_jax/analysis/influence/difficulty_scores.py",
        _REPLAY,
        influence_errors_are_squares=(
            "jnp.sqrt((error_BV**2).sum(axis=1))",
            "(error_BV**2).sum(axis=1)",
        ),
        influence_errors_of_the_next_token=(
            "(hidden_BTD.swapaxes(0, 1), tokens_BT.T)",
            "(hidden_BTD.swapaxes(0, 1), jnp.roll(tokens_BT, 1, axis=1).T)",
        ),
        influence_never_solved_is_never_forgotten=(
            "np.where(is_solved_P | (events_P > 0), events_P, np.inf)",
            "events_P",
        ),
        influence_forgotten_is_never_solved=(
            "is_solved_P | (events_P > 0)",
            "is_solved_P",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/influence/estimates.py",
        _REPLAY,
        influence_gradient_of_the_neighbor=(
            "np.array([p, *filler])",
            "np.array([p - 1, *filler])",
        ),
        influence_gradient_with_other_problems=(
            "filler = [-1] *",
            "filler = [0] *",
        ),
        influence_rate_of_the_last_step=(
            "schedule(step * train.optimizer_steps_per_batch)",
            "schedule(train.optimizer_steps)",
        ),
        influence_unverified_are_wrong=(
            "correct / num_verified if",
            "correct / len(statuses) if",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/influence/held_out.py",
        _REPLAY,
        influence_filler_counts=(
            "np.where(np.arange(len(rows)) < count, lengths_B, 0)",
            "np.where(np.arange(len(rows)) < 99, lengths_B, 0)",
        ),
        influence_gradient_of_sums=("seq_mean_token_mean", "token_mean"),
    ),
    *rows(
        "rlvr_jax/analysis/influence/replay.py",
        _REPLAY,
        influence_consumes_the_state=("device=self._copy_device()", ""),
        influence_compares_another_step=('or row["step"] != step', ""),
    ),
    *rows(
        "rlvr_jax/analysis/influence/replay.py",
        _RUN,
        influence_other_keys=(
            "collect_step(trainer, state, step, timer",
            "collect_step(trainer, dataclasses.replace(state, difficulty="
            "dataclasses.replace(state.difficulty, num_batches=0)), step, timer",
        ),
        influence_updates_as_another_step=(
            "state = resume_or_init(trainer, steps)",
            "state = resume_or_init(trainer, steps); "
            "state = dataclasses.replace(state, device=trainer.updater.init("
            "state.device.params))",
        ),
        influence_writes_to_the_run=(
            "MetricsWriter(fork) as writer",
            "MetricsWriter(source) as writer",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/influence/measure.py",
        _MEASURE,
        influence_has_the_other_sign=(
            "as_it_was.logprobs - without.logprobs",
            "without.logprobs - as_it_was.logprobs",
        ),
        influence_on_pass_at_1_has_the_other_sign=(
            "as_it_was.pass_at_1 - without.pass_at_1",
            "without.pass_at_1 - as_it_was.pass_at_1",
        ),
        influence_correlates_sorted=(
            "estimate_P = np.array([problem.estimates[name] for problem in known])",
            "estimate_P = np.array(sorted(one.estimates[name] for one in known))",
        ),
        influence_correlates_the_silent=("if problem.has_signal]", "]"),
        influence_correlates_two_values=("MIN_VALUES = 3", "MIN_VALUES = 2"),
        influence_resamples_each_side=(
            "exact[drawn_RP])",
            "exact[drawn_RP[:, ::-1]])",
        ),
        influence_intervals_of_five=("_MIN_PROBLEMS = 6", "_MIN_PROBLEMS = 5"),
        influence_rounding_counts=(
            "exact_P.round(DIGITS).tolist()",
            "exact_P.tolist()",
        ),
    ),
    *rows(
        "rlvr_jax/analysis/influence/tables.py",
        _MEASURE,
        influence_most_harmful_first=(
            "-one.outcomes[name].value",
            "one.outcomes[name].value",
        ),
        influence_hides_another_end=("if gap == 0:", "if gap is not None:"),
    ),
    *rows(
        "rlvr_jax/analysis/influence/request.py",
        _REQUEST,
        influence_takes_any_place=("or int(mark) >= batch_size", ""),
        influence_takes_the_last_step=(
            "if step >= train.steps:",
            "if step > train.steps:",
        ),
        influence_takes_guided_runs=("if train.rfgo.changes_updates:", "if False:"),
        influence_always_removes_the_batch=(
            "batch=flags.batch or names_nothing",
            "batch=True",
        ),
    ),
]
