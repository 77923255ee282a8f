"""The subcommand `features`: what RL did to each feature, from workdirs."""

import dataclasses
from collections.abc import Sequence

from job_jax.checkpoint import CheckpointReadError
from job_jax.command import load_config, run_command
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.schema import check
from job_jax.steps import StopSignal
from rlvr_jax.analysis.features.by_layer import compute_by_layer
from rlvr_jax.analysis.features.by_layer_text import format_layers
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
from rlvr_jax.analysis.features.policies import BY_LAYER_DIR
from rlvr_jax.analysis.features.text import (
    format_dynamics,
    format_seed_groups,
)
from rlvr_jax.config import Config
from rlvr_jax.probe.weight_noise import noise_file, write_noise
from rlvr_jax.report.run_files import read_run
from rlvr_jax.run.fetch import local_run
from rlvr_jax.run.lineage import CONFIG_FILE
from rlvr_jax.run.load import load_params_before_rl, load_policy
from sae_jax.stats.dynamics import Thresholds

_USAGE = """\
usage: python -m rlvr_jax.analysis features WORKDIR ... [--step=N] [--delta=X ...]
           [--null_runs=WORKDIR,...]
       python -m rlvr_jax.analysis features WORKDIR --layers=L,... [--pooled]
           [--step=N] [--null_runs=WORKDIR,...]

Compares the last logged step (or --step) with step 0 on the same texts, prints tables
and writes WORKDIR/features/dynamics.json. Readings under weight noise are taken from
WORKDIR/features, or computed there from the step's checkpoint. --null_runs names runs
that should have learned nothing, such as with a random reward; their claims are listed
for comparison. Several workdirs that were read with the same T-SAE are also compared
with each other: which features each gained that the others did not. Runs that differ
only in their seed count as one.

With --layers it trains a T-SAE at each layer and compares the policies there. The T-SAE
is trained on the policy before RL, or with --pooled on all that are compared. The same
command resumes. docs/method/features.md says how to read the tables.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeaturesFlags(Thresholds, Flags):
    """The flags of this command."""

    step: int | None = None  # RL steps done; by default the last logged or kept
    null_runs: tuple[str, ...] = ()  # workdirs of runs that learned nothing
    layers: tuple[int, ...] = ()  # counted from 0; a T-SAE is trained at each
    pooled: bool = False  # train these T-SAEs on the policies after RL too

    def __post_init__(self) -> None:
        """Refuses to pool without layers."""
        super().__post_init__()
        check(
            bool(self.layers) or not self.pooled,
            "--pooled is for --layers; name layers",
        )


def main(argv: Sequence[str]) -> int:
    """Returns 0, or 1 if a file is broken, or 2 if features or runs are missing."""
    return run_command(
        lambda: _run_command(argv),
        (CheckpointReadError, OSError, RuntimeError, ValueError),
    )


def _run_command(argv: Sequence[str]) -> None:
    flags, workdirs = parse_flags(
        argv, FeaturesFlags, usage=_USAGE, arguments=["WORKDIR"], at_least=True
    )
    names = [field.name for field in dataclasses.fields(Thresholds)]
    thresholds = Thresholds(**{name: vars(flags)[name] for name in names})
    if flags.layers:
        _compare_layers(flags, thresholds, workdirs)
        return
    logs, null_logs = (
        [read_feature_log(read_run(local_run(workdir))) for workdir in paths]
        for paths in (workdirs, flags.null_runs)
    )
    check_same_sae([*logs, *null_logs])
    dynamics = [_compute(log, thresholds, step=flags.step) for log in logs]
    others = [_compute(log, thresholds, step=flags.step) for log in null_logs]
    groups = compare_seed_groups(dynamics, thresholds) if len(logs) > 1 else []
    parts = [format_dynamics(run, others) for run in dynamics]
    if groups:
        parts.append(format_seed_groups(groups))
    parts.append(
        "\n".join(f"written: {write_dynamics(run, groups)}" for run in dynamics)
    )
    print("\n\n".join(parts))


def _compare_layers(
    flags: FeaturesFlags, thresholds: Thresholds, workdirs: Sequence[str]
) -> None:
    """Prints what RL did at each layer, by T-SAEs that are trained here."""
    if len(workdirs) > 1:
        raise UsageError(f"--layers compares one run, not {len(workdirs)}")
    workdir = local_run(workdirs[0], with_checkpoints=True)
    stop = StopSignal()
    stop.install()
    layer_changes = compute_by_layer(
        workdir,
        flags.layers,
        pooled=flags.pooled,
        thresholds=thresholds,
        step=flags.step,
        null_workdirs=[
            local_run(path, with_checkpoints=True) for path in flags.null_runs
        ],
        stop=stop,
    )
    print(format_layers(layer_changes))
    print(f"\nwritten: {workdir / BY_LAYER_DIR}")


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
