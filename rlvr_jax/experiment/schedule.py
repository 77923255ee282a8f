"""Which runs an experiment takes, in order, and which of them have ended."""

import dataclasses
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from job_jax.command import UsageError
from job_jax.config_io import override, override_faults
from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.analysis.compare.run_metrics import METRIC_NAMES
from rlvr_jax.analysis.experiment.record import has_scores, read_summary, workdir_of
from rlvr_jax.config import Config
from rlvr_jax.config.experiment import Arm, Experiment, Overrides
from rlvr_jax.metrics.power import POWER, detectable_difference


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run of an experiment: an arm's, or one stage of what arms go on from."""

    name: str
    seed: int
    config: Path
    workdir: Path
    overrides: Overrides
    stage: str = "all"
    start: Path | None = None  # the workdir that an arm goes on from

    @property
    def arguments(self) -> list[str]:
        """Returns the arguments of `python -m rlvr_jax.main`."""
        return [
            f"--config={self.config}",
            f"--workdir={self.workdir}",
            f"--stage={self.stage}",
            *([f"--continue_from={self.start}@sft"] if self.start else []),
            *(f"--config.{key}={text}" for key, text in self.overrides.items()),
        ]

    @property
    def command(self) -> str:
        """Returns the command as it is typed."""
        return shlex.join(["python", "-m", "rlvr_jax.main", *self.arguments])

    @property
    def argv(self) -> list[str]:
        """Returns the command as it is started: by this interpreter."""
        return [sys.executable, "-m", "rlvr_jax.main", *self.arguments]

    def has_ended(self) -> bool:
        """Returns whether the stage is done: of all, the scores after RL are there."""
        if self.stage == "all":
            return has_scores(self.workdir)
        return self.stage in read_summary(self.workdir).get("stages", {})


def plan_runs(
    experiment: Experiment,
    config: Path,
    folder: Path,
    *,
    arms: Sequence[str],
    seeds: Sequence[int],
    is_reduced: bool,
) -> list[PlannedRun]:
    """Returns the runs, seed by seed: first what the arms go on from, then the arms."""
    shared = experiment.reduced if is_reduced else {}
    chosen = {name: experiment.arms[name] for name in arms}
    starts = [s for s in experiment.starts if s in {a.start for a in chosen.values()}]

    def plan(name: str, seed: int, start: str, **how: Any) -> PlannedRun:
        workdir = workdir_of(folder, name, seed)
        arm = chosen.get(name, Arm())
        overrides = {
            **experiment.starts.get(start, {}),
            **arm.overrides,
            **shared,
            "seed": str(seed),
        }
        begin = workdir_of(folder, start, seed) if name in chosen and start else None
        return PlannedRun(
            name=name,
            seed=seed,
            config=config,
            workdir=workdir,
            overrides={
                key: text.replace("{start}", str(begin))
                for key, text in overrides.items()
            },
            start=begin,
            **how,
        )

    return [
        run
        for seed in seeds
        for run in (
            *(
                plan(name, seed, name, stage=stage)
                for name in starts
                for stage in experiment.start_stages
            ),
            *(plan(name, seed, arm.start) for name, arm in chosen.items()),
        )
    ]


def check_runs(
    config: Config, experiment: Experiment, runs: Sequence[PlannedRun]
) -> None:
    """Raises UsageError where overrides give no config, or nobody measures an outcome.

    A line for each fault.
    """
    faults = []
    for outcome in experiment.outcomes:
        name = re.sub(r"@\d+", "@k", outcome.split(",")[0])
        if name not in METRIC_NAMES:
            faults.append(
                f"outcomes: {outcome!r} is nothing that runs are compared in"
                f"{did_you_mean(name, METRIC_NAMES)}"
            )
    for run_name, overrides in {run.name: run.overrides for run in runs}.items():
        wrong = override_faults(config, overrides)
        try:
            if not wrong:
                override(config, overrides)
        except ConfigError as error:
            wrong = str(error).splitlines()
        faults += [f"{run_name}: {line}" for line in wrong]
    if faults:
        raise UsageError("\n".join(faults))


def describe_plan(experiment: Experiment, runs: Sequence[PlannedRun]) -> str:
    """Returns the question, what its seeds can show, and the runs as commands."""
    ended = sum(run.has_ended() for run in runs)
    num_seeds = len({*experiment.seeds, *(run.seed for run in runs)})
    found = detectable_difference(experiment.seed_sd, num_seeds)
    power = (
        f"{num_seeds} seeds find a difference of {found:.1f} with {100 * POWER:.0f} % "
        f"power, where it varies by {experiment.seed_sd} from seed to seed "
        f"({experiment.seed_sd_source})"
        if num_seeds > 1
        else "one seed cannot tell a difference from what varies between seeds"
    )
    return "\n".join(
        [
            f"{experiment.question} ({experiment.reference})",
            f"decided by {experiment.outcomes[0]}, less {experiment.baseline}'s; "
            f"{power}",
            f"{len(runs)} runs, of which {ended} have ended:",
            *(f"  {run.command}" for run in runs if not run.has_ended()),
        ]
    )
