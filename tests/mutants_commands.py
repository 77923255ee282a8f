"""One-line mutants of rlvr_jax/*.py; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

_GENERATE = "tests/test_generate.py"
_ACTIVATIONS = "tests/test_activations.py"

MUTANTS = [
    *rows(
        "rlvr_jax/activations.py",
        (f"{_ACTIVATIONS}::test_the_command_writes_what_its_flags_name",),
        writes_the_first_layer=("layer=flags.layer,", "layer=0,"),
        one_completion_of_each_problem=(
            "num_samples=flags.num_samples,",
            "num_samples=1,",
        ),
    ),
    *rows(
        "rlvr_jax/generate.py",
        (
            f"{_GENERATE}::"
            "test_texts_are_steered_in_the_scope_that_is_checked_and_recorded",
        ),
        steers_completions_alone=(
            "with policy.steer(*edits, scope=flags.scope):",
            "with policy.steer(*edits):",
        ),
    ),
    *rows(
        "rlvr_jax/convert.py",
        ("tests/models/test_tied.py",),
        forgets_the_head=(
            '        "tie_word_embeddings": policy.config.tie_embeddings,\n',
            "",
        ),
    ),
    *rows(
        "rlvr_jax/__init__.py",
        ("tests/test_readme.py",),
        completion_without_version=('[*__all__, "__version__"]', "__all__"),
    ),
    *rows(
        "rlvr_jax/generate.py",
        ("tests/test_generate.py",),
        seed_is_ignored=("seed=flags.seed or 0", "seed=0"),
        writes_the_first_batch_alone=(
            "range(0, len(asked), size)",
            "range(0, 1, size)",
        ),
    ),
    *rows(
        "rlvr_jax/pipeline.py",
        ("tests/integration/test_processes.py",),
        devices_of_one_alone=("            jax.devices()  #", "            pass  #"),
    ),
    *rows(
        "rlvr_jax/pipeline.py",
        ("tests/run/test_checkpoint_settings.py",),
        leaves_it_open=(
            "config = settle_config(config, recorded_config(path, None))",
            "recorded_config(path, None)",
        ),
    ),
    *rows(
        "rlvr_jax/pipeline.py",
        ("tests/integration/test_runs.py::test_the_record_counts_the_cpu_devices",),
        forgets_the_cpu_devices=(
            "more=lineage_record(lineage) | cpu_devices.record(),",
            "more=lineage_record(lineage),",
        ),
    ),
    *rows(
        "rlvr_jax/tracking.py",
        ("tests/test_tracking.py",),
        tells_no_parent=(
            "parent=_describe_parent(lineage)",
            "parent=None",
        ),
        tracks_everywhere=(
            "if is_primary() and config.log.trackers:",
            "if config.log.trackers:",
        ),
        a_stop_is_a_failure=(
            "error is None or isinstance(error, StoppedError)",
            "error is None",
        ),
        asks_no_login=("check_ready(offline=", "check_ready(offline=True or "),
    ),
]
