"""Mutants that confuse seeds, sampling settings, policies or sides of the data."""

from tests.mutants.mutant import rows

_SETTINGS = ("tests/integration/test_settings.py",)
_TRAINER = ("tests/stages/test_trainer.py",)
_SFT = ("tests/stages/test_sft.py",)
_DIFFICULTY = ("tests/stages/test_difficulty.py",)
_EVAL = ("tests/stages/test_eval.py",)
_PROBE = ("tests/stages/test_probe.py",)
_HOOKS = ("tests/stages/test_probe_hooks.py",)
_TRAIN = ("tests/stages/test_train.py",)
_ROLLOUTS = ("tests/stages/test_trainer_rollouts.py",)
_STATE = ("tests/stages/test_trainer_state.py",)
_CONTEXT = ("tests/stages/test_context.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/run/setup.py",
        _SETTINGS,
        one_start_for_all_seeds=(
            "_init_policy(self.config, self.tokenizer, self.config.seed)",
            "_init_policy(self.config, self.tokenizer, 0)",
        ),
        one_key_for_all_seeds=(
            "jax.random.key(self.config.seed), number",
            "jax.random.key(0), number",
        ),
        one_stream=(
            "jax.random.key(self.config.seed), number",
            "jax.random.key(self.config.seed), 0 * number",
        ),
        one_set_of_problems=(
            "task.problems(stage, seed=config.seed)",
            "task.problems(stage, seed=0)",
        ),
        asks_train_problems_held_out=(
            "stage: task.problems(stage, seed=config.seed)",
            'stage: task.problems("train", seed=config.seed)',
        ),
        ignores_temperature=(
            "layout.replicate(sampling),",
            "layout.replicate(SamplingParams.unmodified()),",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/request.py",
        _SETTINGS,
        samples_as_training_does=(
            "SamplingParams.from_config(request.sampling)",
            "SamplingParams.from_config(setup.config.train.sampling)",
        ),
    ),
    *rows(
        "rlvr_jax/metrics/scores.py",
        _EVAL,
        evaluates_as_training_samples=(
            "sampling=config.sampling,",
            "sampling=setup.config.train.sampling,",
        ),
        evaluates_on_trainings_keys=('stream="eval"', 'stream="train"'),
        takes_trainings_group_size=(
            "num_samples=config.num_samples,\n        batch_size",
            "num_samples=setup.config.train.group_size,\n        batch_size",
        ),
    ),
    *rows(
        "rlvr_jax/stages/difficulty.py",
        _DIFFICULTY,
        samples_as_evaluation_does=(
            "sampling=run.config.train.sampling",
            "sampling=run.config.eval.sampling",
        ),
        takes_evaluations_samples=(
            "num_samples=config.num_samples,",
            "num_samples=run.config.eval.num_samples,",
        ),
        shares_trainings_key=(
            'run.stream_key("difficulty")',
            'run.stream_key("train")',
        ),
        estimates_held_out_problems=(
            'Pool(run.sources["train"], run.config)',
            'Pool(run.sources["eval"], run.config)',
        ),
        begins_anew=(
            'difficulty.from_json(saved["difficulty"]) if saved else pool.initial()',
            "pool.initial()",
        ),
        asks_the_policy_after_rl=(
            'load_stage_params(ctx, "sft")',
            'load_stage_params(ctx, "train")',
        ),
    ),
    *rows(
        "rlvr_jax/stages/sft.py",
        _SFT,
        one_order_for_all_seeds=(
            "batch_size=config.batch_size, seed=setup.config.seed",
            "batch_size=config.batch_size, seed=0",
        ),
        one_rounding_for_all_seeds=(
            "        seed=setup.config.seed,\n    )\n    sampling",
            "        seed=0,\n    )\n    sampling",
        ),
        fits_with_the_optimizer_of_rl=(
            "optimizer=config.optimizer,",
            "optimizer=setup.config.train.optimizer,",
        ),
        schedules_over_the_steps_of_rl=(
            "total_steps=config.steps,",
            "total_steps=setup.config.train.steps,",
        ),
        fits_at_the_temperature_of_rl=(
            "SamplingParams.unmodified()",
            "SamplingParams.from_config(setup.config.train.sampling)",
        ),
        fits_train_problems=(
            'setup.sources["sft"], batch_size',
            'setup.sources["train"], batch_size',
        ),
    ),
    *rows(
        "rlvr_jax/stages/eval.py",
        _EVAL,
        memorizes_what_nobody_asked=(
            "if any(step != INITIAL_STEP for step",
            "if any(step == INITIAL_STEP for step",
        ),
        pairs_with_train_problems=(
            'setup.problems("eval", _FRESH_PER_SEEN * count)',
            'setup.problems("train", _FRESH_PER_SEEN * count)',
        ),
        cuts_by_the_policy_after_rl=(
            'if when != "before":',
            'if when == "before":',
        ),
        remembers_before_and_after_alike=(
            "_measure_memorization(ctx, params)",
            '_measure_memorization(ctx, load_stage_params(ctx, "sft"))',
        ),
        gains_what_was_lost=(
            "_summarize_gain(ctx.setup.config, initial, own)",
            "_summarize_gain(ctx.setup.config, own, initial)",
        ),
        evaluates_twice=("if name in done:", "if name in ():"),
    ),
    *rows(
        "rlvr_jax/stages/held_out.py",
        _EVAL,
        scores_train_problems=(
            'ctx.setup.problems("eval", ctx',
            'ctx.setup.problems("train", ctx',
        ),
    ),
    *rows(
        "rlvr_jax/stages/probe.py",
        _PROBE,
        reads_train_problems_again=(
            'setup.problems("eval", config.probe.num_problems)',
            'setup.problems("train", config.probe.num_problems)',
        ),
        fits_to_held_out_problems=(
            'setup.problems("train", config.probe.num_problems)',
            'setup.problems("eval", config.probe.num_problems)',
        ),
        reads_texts_as_evaluation_samples=(
            "    sampling = config.train.sampling\n    # A",
            "    sampling = config.eval.sampling\n    # A",
        ),
        fits_to_what_evaluation_samples=(
            "sampling=config.train.sampling,\n            num",
            "sampling=config.eval.sampling,\n            num",
        ),
        labels_by_id=(
            'index = {text: i for i, text in enumerate(dict.fromkeys(r["prompt"]',
            'index = {text: 0 * i for i, text in enumerate(dict.fromkeys(r["prompt"]',
        ),
        takes_the_last_completion=("graded[::G]", "graded[G - 1 :: G]"),
        reads_texts_of_the_policy_after_rl=(
            '        load_stage_params(ctx, "sft"),\n        problems',
            '        load_stage_params(ctx, "train"),\n        problems',
        ),
    ),
    *rows(
        "rlvr_jax/plan/step_programs.py",
        ("tests/plan/test_estimates.py",),
        plans_without_the_references_features=(
            "num_features = abstract[1] if abstract else 0",
            "num_features = 0",
        ),
    ),
    *rows(
        "rlvr_jax/stages/probe_hooks.py",
        _HOOKS,
        no_features_of_a_reference=(', features_of="policy"', ""),
    ),
    *rows(
        "rlvr_jax/stages/probe_hooks.py",
        _HOOKS,
        times_the_slowest=("name: min(trials)", "name: max(trials)"),
        times_the_first_call=(
            "                jax.block_until_ready(updater.gradient(*arguments))\n"
            "                start",
            "                start",
        ),
        logs_the_steps_between=("step % every == 0", "step % every == 1"),
        reads_the_base_alone=(
            "self.trainable.merge_frozen(params)",
            "params",
        ),
        guides_without_features=("if self.probe.weights:", "if True:"),
        strengthens_forever=(
            "rfgo.proxy_strength(step, config)",
            "rfgo.proxy_strength(0, config)",
        ),
        ignores_what_it_found=(
            "state = rfgo.update(result.feature_sums, config, proxy_strength=strength)",
            "state = rfgo",
        ),
        tells_every_step=(
            "state.is_proxy_on(config) != rfgo.is_proxy_on(config):",
            "state.is_proxy_on(config):",
        ),
        writes_the_step_before=(
            "self._write_step(num_steps, None,",
            "self._write_step(num_steps - 1, None,",
        ),
        costs_less_than_nothing=(
            'share * (value / seconds["no_probe"] - 1.0)',
            'share * (1.0 - value / seconds["no_probe"])',
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer.py",
        _TRAINER,
        ends_the_schedule_early=(
            "total_steps=config.optimizer_steps,",
            "total_steps=config.steps,",
        ),
        scores_at_temperature_one=(
            "SamplingParams.from_config(config.sampling)",
            "SamplingParams.unmodified()",
        ),
        scores_as_evaluation_samples=(
            "SamplingParams.from_config(config.sampling)",
            "SamplingParams.from_config(setup.config.eval.sampling)",
        ),
        one_rounding_for_all_seeds=(
            "seed=setup.config.seed,",
            "seed=0,",
        ),
        shares_evaluations_keys=(
            'setup.stream_key("train")',
            'setup.stream_key("eval")',
        ),
        updates_with_the_optimizer_of_sft=(
            "optimizer=config.optimizer,",
            "optimizer=setup.config.sft.optimizer,",
        ),
        needs_no_reference=(
            "config.loss.kl_coef > 0 or config.rfgo.needs_reference_policy",
            "config.loss.kl_coef > 0",
        ),
        evaluates_a_step_early=(
            "(step + 1) % config.eval.every",
            "step % config.eval.every",
        ),
        saves_no_last_step=(
            "and step + 1 != config.train.steps",
            "",
        ),
        saves_every_step=(
            "if step % config.log.rollouts_every and",
            "if False and",
        ),
        repeats_earlier_batches=(
            "num_batches=count_earlier_batches(workdir),",
            "num_batches=0,",
        ),
        drops_the_optimizer_taken_along=(
            "if lineage and lineage.has_optimizer:",
            "if False:",
        ),
        times_every_step=("    if is_timed:", "    if True:"),
    ),
    *rows(
        "rlvr_jax/stages/trainer.py",
        _SETTINGS,
        halves_the_reward=(
            "        rewards_PG=rollouts.rewards,\n        judged_PG",
            "        rewards_PG=rollouts.rewards / 2,\n        judged_PG",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/step_rewards.py",
        _SETTINGS,
        one_coin_for_all_seeds=("seed=setup.config.seed,", "seed=0,"),
        coins_by_another_group=(
            "group_size=setup.config.train.group_size,",
            "group_size=setup.config.eval.num_samples,",
        ),
    ),
    *rows(
        "rlvr_jax/rollouts/collect.py",
        _SETTINGS,
        samples_as_evaluation_does=(
            "sampling=config.train.sampling,",
            "sampling=config.eval.sampling,",
        ),
    ),
    *rows(
        "rlvr_jax/learn/run_updates.py",
        _SETTINGS,
        one_order_for_all_seeds=(
            "seed=(config.seed, version, epoch)",
            "seed=(0, version, epoch)",
        ),
        one_order_for_all_steps=(
            "seed=(config.seed, version, epoch)",
            "seed=(config.seed, 0, epoch)",
        ),
        keeps_the_curriculums_order=("if num_minibatches > 1:", "if False:"),
    ),
    *rows(
        "rlvr_jax/data/pool.py",
        _SETTINGS,
        one_order_for_all_seeds=("seed=self._config.seed,", "seed=0,"),
    ),
    *rows(
        "rlvr_jax/stages/train.py",
        _TRAIN,
        times_the_compilation=("is_timed=not is_first", "is_timed=True"),
        evaluates_before_the_update=(
            "evaluate_if_due(trainer, state, step)",
            "evaluate_if_due(trainer, state, step - 1)",
        ),
        saves_as_the_step_before=(
            "save_if_due(trainer, step, rollouts, update)",
            "save_if_due(trainer, max(step - 1, 0), rollouts, update)",
        ),
        keeps_no_metrics_of_evaluation=(
            "metrics |= seconds | evaluate_if_due(trainer, state, step)",
            "metrics |= seconds",
        ),
        logs_no_alarms=("(*warnings, *update.messages, *alarms)", "update.messages"),
        nothing_is_frozen=("frozen=bool(trainer.trainable.frozen),", "frozen=False,"),
    ),
    *rows(
        "rlvr_jax/stages/trainer_rollouts.py",
        _ROLLOUTS,
        samples_from_adapters_alone=(
            "trainer.trainable.merge_frozen(state.device.params)",
            "state.device.params",
        ),
        draws_beyond_the_end=(
            "min(count, setup.config.train.steps - step)",
            "count",
        ),
        waits_for_every_sampler=(
            "if not setup.sampler_layout.has_own_devices:",
            "if True:",
        ),
        learns_from_the_newest=(
            "drawn, *later = state.pending",
            "*later, drawn = state.pending",
        ),
    ),
    *rows(
        "rlvr_jax/stages/trainer_state.py",
        _STATE,
        forgets_its_time=(
            'timing=Timing(**data["timing"])',
            "timing=Timing()",
        ),
        forgets_rfgo=(
            "rfgo=RFGOState.from_json(rfgo) if rfgo else None",
            "rfgo=None",
        ),
    ),
    *rows(
        "rlvr_jax/stages/context.py",
        _CONTEXT,
        reads_the_first_checkpoint=(
            "checkpoints / stage, config.train.steps)",
            "checkpoints / stage, 1)",
        ),
        waits_for_no_steps=("finished = done == total", "finished = done > 0"),
        tells_seed_0=('"seed": config.seed,', '"seed": 0,'),
        forgets_what_the_probe_cost=(
            'old.get("probe_overhead")',
            "None",
        ),
    ),
]
