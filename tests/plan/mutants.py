"""One-line mutants of rlvr_jax/plan/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_ESTIMATES = ("tests/plan/test_estimates.py",)

MUTANTS = [
    *rows(
        "rlvr_jax/plan/dry_run.py",
        ("tests/plan/test_dry_run.py",),
        shows_no_beginning=(
            "ids = tokenizer.encode_prompt(problem.prompt)",
            "ids = tokenizer.encode(problem.prompt)",
        ),
        hides_special_tokens=(
            "tokenizer.show(ids).split",
            "tokenizer.decode(ids).split",
        ),
    ),
    *rows(
        "rlvr_jax/plan/dry_run.py",
        ("tests/plan/test_dry_run.py",),
        always_verbose=("if verbose else []", "if True else []"),
    ),
    *rows(
        "rlvr_jax/plan/topology.py",
        ("tests/plan/test_dry_run.py", "tests/plan/test_compile_only.py"),
        all_of_a_gpus_memory=("_GPU_SHARE = 0.75", "_GPU_SHARE = 1.0"),
        one_gpu=("num_chips=int(shape)", "num_chips=1"),
        zero_gpus=('r"[1-9]\\d*"', 'r"\\d+"'),
        gpus_are_chips=('"GPU" if self', '"chip" if self'),
    ),
    *rows(
        "rlvr_jax/plan/verdict.py",
        ("tests/plan/test_verdict.py",),
        fits_to_the_brim=("_TIGHT = 0.85", "_TIGHT = 0.95"),
        tight_beyond_the_brim=("if share <= 1 else", "if share <= 1.1 else"),
        forgets_other_cpu_devices=(
            "(1 + self.overhead) * self.devices * largest",
            "(1 + self.overhead) * largest",
        ),
        names_the_smallest=("reverse=True)[:2]", "reverse=False)[:2]"),
    ),
    *rows(
        "rlvr_jax/plan/peak_memory.py",
        _ESTIMATES,
        no_activations=(
            '"activations": -(-groups // devices) * stored',
            '"activations": 0 * stored',
        ),
        gradients_while_sampling=('del resident["gradients"]', "pass"),
        limits_every_device=("if self.run.on_cpu else 0.0", "if True else 0.0"),
        no_copy_for_a_slot=("(slots if slots < rows else 0)", "0"),
        learns_frozen_weights=(
            "shard_bytes(self.run.parts.trained, itemsize=1)",
            "shard_bytes(self.run.params, itemsize=1)",
        ),
        samples_of_another_stage=(
            '"train", config.eval.batch_size, samples',
            '"train", config.eval.batch_size, config.eval.num_samples',
        ),
    ),
    *rows(
        "rlvr_jax/plan/duration.py",
        _ESTIMATES,
        one_evaluation=("1 + bool(steps) +", "1 +"),
        frozen_weights_cost_as_much=("2 if train.lora.rank else 4", "4"),
        waits_for_nothing=("step = max(", "step = min("),
        batches_not_filled=("-(-problems // batch)", "problems // batch"),
        no_epochs=("train.num_epochs * (2 + backward)", "2 + backward"),
    ),
    *rows(
        "rlvr_jax/plan/widths.py",
        ("tests/plan/test_widths.py",),
        only_the_first=("range(0, len(source), stride)", "range(1)"),
    ),
]
