"""Which runs an experiment needs, in order, and which of them have ended."""

import dataclasses
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from job_jax.config_io import diff, override, override_faults
from job_jax.flags import UsageError
from job_jax.schema import ConfigError, check, did_you_mean
from rlvr_jax.analysis.compare.metric import METRIC_NAMES
from rlvr_jax.analysis.experiment.record import has_scores, read_summary, workdir_of
from rlvr_jax.config import Config
from rlvr_jax.config.experiment import Experiment, Overrides
from rlvr_jax.metrics.power import POWER, detectable_difference
from rlvr_jax.run.fork import check_changes, kept_steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fork:
    """The run and RL step at which an arm's run forks, and the changes there."""

    run: Path
    step: int
    changes: Overrides


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run of an experiment: an arm's, or one stage of a start.

    `overrides` are relative to the recipe; they include the start's overrides.
    """

    name: str
    seed: int
    config: Path
    workdir: Path
    overrides: Overrides
    stage: str = "all"
    start: Path | None = None  # the workdir whose policy after SFT an arm starts from
    fork: Fork | None = None

    @property
    def arguments(self) -> list[str]:
        """Returns the arguments of `python -m rlvr_jax.main`."""
        return [
            f"--config={self.config}",
            f"--workdir={self.workdir}",
            f"--stage={self.stage}",
            *([f"--continue_from={self.start}@sft"] if self.start else []),
            *_as_flags(self.overrides),
        ]

    @property
    def commands(self) -> list[list[str]]:
        """Returns the commands left to run, in order.

        A fork is made once: its directory is complete, or does not exist.
        """
        go_on = [sys.executable, "-m", "rlvr_jax.main", *self.arguments]
        if self.fork is None or self.workdir.exists():
            return [go_on]
        make = [
            *(sys.executable, "-m", "rlvr_jax.fork"),
            f"--run={self.fork.run}@{self.fork.step}",
            f"--workdir={self.workdir}",
            *_as_flags(self.fork.changes),
        ]
        return [make, go_on]

    @property
    def command(self) -> str:
        """Returns the commands as a user would type them."""
        typed = (shlex.join(["python", *argv[1:]]) for argv in self.commands)
        return " && ".join(typed)

    def has_ended(self) -> bool:
        """Returns whether the stage is done; for "all": if it has scores after RL."""
        if self.stage == "all":
            return has_scores(self.workdir)
        return self.stage in read_summary(self.workdir).get("stages", {})


def _as_flags(overrides: Overrides) -> list[str]:
    return [f"--config.{key}={text}" for key, text in overrides.items()]


def plan_runs(
    experiment: Experiment,
    config: Path,
    folder: Path,
    *,
    arms: Sequence[str],
    seeds: Sequence[int],
    is_reduced: bool,
) -> list[PlannedRun]:
    """Returns the runs, seed by seed: first the starts, then the arms."""
    needed = _with_parents(experiment, arms)
    starts = {
        name: given for name, given in experiment.starts.items() if name in needed
    }
    shared = experiment.reduced if is_reduced else {}
    return [
        run
        for seed in seeds
        for run in (
            *(
                PlannedRun(
                    name=name,
                    seed=seed,
                    config=config,
                    workdir=workdir_of(folder, name, seed),
                    overrides={**given, **shared, "seed": str(seed)},
                    stage=stage,
                )
                for name, given in starts.items()
                for stage in experiment.start_stages
            ),
            *(
                _plan_arm(experiment, name, seed, config, folder, shared=shared)
                for name in experiment.arms
                if name in needed
            ),
        )
    ]


def _with_parents(experiment: Experiment, arms: Sequence[str]) -> set[str]:
    """Returns the names of the arms, and of everything that they start from."""
    needed = {*arms}
    for name in [*experiment.arms][::-1]:  # a parent is an earlier arm
        if name in needed:
            needed.add(experiment.arms[name].parent)
    return needed


def _plan_arm(
    experiment: Experiment,
    name: str,
    seed: int,
    config: Path,
    folder: Path,
    *,
    shared: Overrides,
) -> PlannedRun:
    """Returns the run of an arm; no arm changes the overrides in `shared`."""
    arm = experiment.arms[name]
    begin = workdir_of(folder, arm.parent, seed)
    own = {
        key: text.replace("{start}", str(begin))
        for key, text in arm.overrides.items()
        if key not in shared
    }
    of_parent = experiment.starts.get(arm.parent, {})
    if arm.parent in experiment.arms:
        parent = _plan_arm(experiment, arm.parent, seed, config, folder, shared=shared)
        of_parent = parent.overrides
    step = arm.fork_step
    return PlannedRun(
        name=name,
        seed=seed,
        config=config,
        workdir=workdir_of(folder, name, seed),
        overrides={**of_parent, **own, **shared, "seed": str(seed)},
        start=begin if arm.parent and step is None else None,
        fork=None if step is None else Fork(run=begin, step=step, changes=own),
    )


def check_runs(
    config: Config, experiment: Experiment, runs: Sequence[PlannedRun]
) -> None:
    """Raises UsageError for overrides without a valid config and unknown outcomes.

    The message has a line for each fault.
    """
    faults = []
    for outcome in experiment.outcomes:
        name = re.sub(r"@\d+", "@k", outcome.split(",")[0])
        if name not in METRIC_NAMES:
            faults.append(
                f"outcomes: {outcome!r} is not a measure that runs are compared in"
                f"{did_you_mean(name, METRIC_NAMES)}"
            )
    configs: dict[Path, Config] = {}
    for run in {run.name: run for run in runs}.values():
        wrong = override_faults(config, run.overrides)
        try:
            if not wrong:
                configs[run.workdir] = override(config, run.overrides)
            if run.fork and run.fork.run in configs:
                _check_fork(run.fork, configs[run.fork.run], configs[run.workdir])
        except (ConfigError, UsageError) as error:
            wrong = str(error).splitlines()
        faults += [f"{run.name}: {line}" for line in wrong]
    if faults:
        raise UsageError("\n".join(faults))


def _check_fork(fork: Fork, parent: Config, config: Config) -> None:
    """Raises ConfigError if the parent cannot be forked as planned."""
    check_changes(parent, config, diff(parent, config), fork.step)
    kept = kept_steps(parent)
    check(
        fork.step in (0, *kept),
        f"{fork.run.parent.name}@{fork.step}: this run keeps checkpoints of RL steps "
        f"{', '.join(map(str, kept))} only; see checkpoint.every and max_to_keep",
    )


def describe_plan(
    experiment: Experiment, runs: Sequence[PlannedRun], *, with_commands: bool
) -> str:
    """Returns the question, the detectable difference, and how many runs are done.

    With `with_commands`, also a command for each run that is left.
    """
    left = [run for run in runs if not run.has_ended()]
    num_seeds = len({*experiment.seeds, *(run.seed for run in runs)})
    found = detectable_difference(experiment.seed_sd, num_seeds)
    power = (
        f"{num_seeds} seeds detect a difference of {found:.1f} with "
        f"{100 * POWER:.0f} % power, if it varies by {experiment.seed_sd} from seed to "
        f"seed ({experiment.seed_sd_source})"
        if num_seeds > 1
        else "one seed cannot separate a difference from the variation between seeds"
    )
    first = experiment.outcomes[0]
    decides = (
        f"the slopes of {first}"
        if experiment.slopes
        else f"{first} minus {experiment.baseline}'s"
    )
    return "\n".join(
        [
            f"{experiment.question} ({experiment.reference})",
            f"decided by {decides}; {power}",
            f"{len(runs)} runs, {len(runs) - len(left)} of them done"
            + (
                "; still to run:"
                if with_commands
                else "; --dry_run prints the commands"
            ),
            *(f"  {run.command}" for run in left if with_commands),
        ]
    )
