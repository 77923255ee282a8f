"""One-line mutants of rlvr_jax/stages/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_TRACE = ("tests/integration/test_trace.py",)
_STALE = ("tests/integration/test_staleness.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/stages/context.py",
        ("tests/stages/test_context.py",),
        forgets_the_features=(
            'old.get("rfgo") or rfgo_summary(None)',
            "rfgo_summary(None)",
        ),
    ),
    *rows(
        "rlvr_jax/stages/difficulty.py",
        _TRACE,
        estimates_another_policy=(
            'place_params(load_stage_params(ctx, "sft"))',
            "place_params(ctx.setup.initial_params())",
        ),
    ),
    *rows(
        "rlvr_jax/stages/difficulty.py",
        ("tests/rollouts/test_difficulty_rollouts.py",),
        keeps_every_completion=("for row in rows[: len(kept)]", "for row in rows"),
        one_file_for_all_batches=(
            '        "difficulty",\n        step,\n',
            '        "difficulty",\n        0,\n',
        ),
    ),
    *rows(
        "rlvr_jax/stages/eval.py",
        _TRACE,
        evaluates_one_policy_twice=('("after", "train")', '("after", "sft")'),
    ),
    *rows(
        "rlvr_jax/stages/probe.py",
        _TRACE,
        probes_another_policy=(
            'params = load_stage_params(ctx, "sft")',
            "params = ctx.setup.initial_params()",
        ),
    ),
    *rows(
        "rlvr_jax/stages/probe.py",
        ("tests/stages/test_probe.py",),
        captures_the_first_layer=(
            "params=params, layer=config.probe.layer",
            "params=params, layer=0",
        ),
        says_it_captured_the_first_layer=(
            "layer=config.probe.layer,\n        model=",
            "layer=0,\n        model=",
        ),
        noise_around_the_policy_after_rl=(
            'for stage in ("sft", "train"))',
            'for stage in ("train", "sft"))',
        ),
    ),
    *rows(
        "rlvr_jax/stages/probe_hooks.py",
        _TRACE,
        one_shuffle=("jax.random.fold_in(self.key, step)", "self.key"),
        no_scale=("            rfgo.scale,", "            [1.0] * len(rfgo.scale),"),
        never_shuffles=(
            "shuffle_weights=self.ctx.setup.config.probe.shuffles_weights",
            "shuffle_weights=False",
        ),
    ),
    *rows(
        "rlvr_jax/stages/sft.py",
        ("tests/integration/test_environments.py",),
        sft_fits_what_the_environment_says=(
            "if not config.environment.enabled:",
            "if config.environment.enabled:",
        ),
    ),
    *rows(
        "rlvr_jax/stages/sft.py",
        _TRACE,
        one_batch_of_solutions=(
            "loader.next_batch(step, rows)",
            "loader.next_batch(0, rows)",
        ),
        learns_of_prompts_alone=(
            "encode_prompt(problem, tokenizer),",
            "encode_prompt(problem, tokenizer)[1:],",
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer.py",
        _TRACE,
        starts_from_nothing=(
            'lambda: load_stage_params(ctx, "sft")',
            "lambda: ctx.setup.initial_params()",
        ),
        turns_advantages=(
            "        rollouts.advantages,\n        bands_P",
            "        -rollouts.advantages,\n        bands_P",
        ),
        evaluates_the_reference=(
            "merge_frozen(state.device.params)",
            "merge_frozen(trainer.reference)",
        ),
        forgets_estimates=(
            "            initial_difficulty(trainer.ctx, trainer.pool),",
            "            trainer.pool.initial(),",
        ),
        remembers_no_verdicts=(
            "        difficulty=update_difficulty(",
            "        difficulty=state.difficulty or update_difficulty(",
        ),
        remembers_no_scale=("        rfgo=update.rfgo,", "        rfgo=state.rfgo,"),
        remembers_no_alarms=(
            "dataclasses.replace(state, doctor=doctor_state)",
            "state",
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer.py",
        ("tests/stages/test_trainer.py",),
        learns_from_the_truncated=(
            "mask_truncated=setup.config.train.loss.mask_truncated,",
            "mask_truncated=False,",
        ),
        alarms_have_the_limits_of_another_config=(
            "doctor.alarm_limits(config)",
            "doctor.alarm_limits(type(config)())",
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer_rollouts.py",
        _TRACE,
        stale_difficulty=(
            "            state.difficulty,\n            step",
            "            trainer.pool.initial(),\n            step",
        ),
        one_step_for_all=(
            "            step=step,\n            batch",
            "            step=0,\n            batch",
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer_rollouts.py",
        _STALE,
        counts_none_ahead=(
            "pending=pending,\n                weight_version",
            "pending=[],\n                weight_version",
        ),
        asks_as_an_older_step=("step=step + len(pending),", "step=step,"),
        grades_other_problems=(
            "setup, drawn.problems, rollouts",
            "setup, later[0].problems if later else drawn.problems, rollouts",
        ),
        draws_nothing_ahead=("count = 1 + setup.config.train.staleness", "count = 1"),
    ),
    *rows(
        "rlvr_jax/stages/trainer_state.py",
        _STALE,
        resumes_nothing_drawn=(
            'pending=tuple(DrawnBatch.from_json(pool, one) for one in data["pending"])',
            "pending=()",
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer_state.py",
        _TRACE,
        resumes_a_fresh_doctor=(
            'doctor=DoctorState.from_json(data["doctor"])',
            "doctor=DoctorState()",
        ),
        resumes_no_estimates=(
            'difficulty.from_json(data["difficulty"])',
            'difficulty.init_difficulty(data["difficulty"]["size"])',
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer_rollouts.py",
        ("tests/stages/test_trainer_rollouts.py",),
        draws_beyond_the_last_step=(
            "count = min(count, setup.config.train.steps - step)",
            "count = min(count, setup.config.train.steps)",
        ),
    ),
]
