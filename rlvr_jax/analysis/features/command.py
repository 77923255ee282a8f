"""The subcommand `features`: what RL did to each feature, from workdirs."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from absl import flags

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import UsageError, load_config, parse_flags, run_command
from rlvr_jax.analysis.features.dynamics import (
    FeatureDynamics,
    check_step,
    compare_seed_groups,
    compute_dynamics,
    write_dynamics,
)
from rlvr_jax.analysis.features.log import (
    FeatureLog,
    check_same_sae,
    read_feature_log,
)
from rlvr_jax.analysis.features.text import format_dynamics, format_seed_groups
from rlvr_jax.config import Config
from rlvr_jax.probe.weight_noise import noise_file, write_noise
from rlvr_jax.report.run_files import read_run
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE
from rlvr_jax.run.load import load_params_before_rl, load_policy
from sae_jax.stats.dynamics import Thresholds

_THRESHOLD_HELP = {
    "delta": "smallest relative change of a mean activation",
    "e0": "firing rate below which a feature is silent",
    "e1": "firing rate from which a feature has emerged",
    "min_fired": "tokens that a tested feature must fire on",
    "min_prompts": "prompts that a tested feature must fire in",
    "fdr": "accepted fraction of false claims",
}


_USAGE = """\
usage: python -m rlvr_jax.analysis features WORKDIR ... [--step=N] [--delta=X ...]
           [--null_runs=WORKDIR,...]

Compares the last logged step (or --step) with step 0 on the same texts, prints tables
and writes WORKDIR/features/dynamics.json. Readings under weight noise are taken from
WORKDIR/features, or computed there from the step's checkpoint. --null_runs names runs
that should have learned nothing, such as with a random reward; their claims are listed
for comparison. Several workdirs that were read with the same T-SAE are also compared
with each other: which features each gained that the others did not. Runs that differ
only in their seed count as one. docs/method/features.md says how to read the tables.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if features or runs are missing."""
    return run_command(
        lambda: _run_command(argv), (CheckpointReadError, OSError, ValueError)
    )


def _define_flags() -> flags.FlagValues:
    values = flags.FlagValues()
    flags.DEFINE_integer(
        "step", None, "RL steps done; by default the last logged", flag_values=values
    )
    flags.DEFINE_list(
        "null_runs", [], "workdirs of runs that learned nothing", flag_values=values
    )
    for field in dataclasses.fields(Thresholds):
        define: Any = flags.DEFINE_integer if field.type is int else flags.DEFINE_float
        text = _THRESHOLD_HELP[field.name]
        define(field.name, field.default, text, flag_values=values)
    return values


def _run_command(argv: Sequence[str]) -> None:
    values = _define_flags()
    workdirs = parse_flags(
        argv, values, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    try:
        chosen: dict[str, Any] = {n: values[n].value for n in _THRESHOLD_HELP}
        thresholds = Thresholds(**chosen)
    except ValueError as error:
        raise UsageError(str(error)) from error
    logs, null_logs = (
        [read_feature_log(read_run(local_run(workdir))) for workdir in paths]
        for paths in (workdirs, values.null_runs)
    )
    check_same_sae([*logs, *null_logs])
    dynamics = [_compute(log, thresholds, step=values.step) for log in logs]
    others = [_compute(log, thresholds, step=None) for log in null_logs]
    groups = compare_seed_groups(dynamics, thresholds) if len(logs) > 1 else []
    parts = [format_dynamics(run, others) for run in dynamics]
    if groups:
        parts.append(format_seed_groups(groups))
    parts.append(
        "\n".join(f"written: {write_dynamics(run, groups)}" for run in dynamics)
    )
    print("\n\n".join(parts))


def _compute(
    log: FeatureLog, thresholds: Thresholds, *, step: int | None
) -> FeatureDynamics:
    """Returns a run's changes; first reads its texts under noise if still missing."""
    step, workdir = check_step(log, step), log.run.path
    checkpoints = workdir / "checkpoints"
    after = checkpoints / "train" / str(step)
    if not noise_file(workdir, step).is_file() and after.is_dir():
        config = load_config(workdir / CONFIG_FILE, Config)
        with load_policy(config, after, stage="eval") as loaded:
            write_noise(
                loaded.setup,
                workdir,
                before=load_params_before_rl(loaded.setup, checkpoints),
                after=loaded.params,
                step=step,
            )
    return compute_dynamics(log, thresholds, step=step)
