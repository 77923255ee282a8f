"""The command `python -m rlvr_jax.experiment --config=FILE --workdir=DIR`."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from job_jax.buckets import is_url
from job_jax.command import call_recipe, load_config, run_command
from job_jax.flags import Flags, UsageError, parse_flags
from job_jax.recipes import find_config
from job_jax.schema import PositiveInt, did_you_mean
from rlvr_jax.analysis.experiment.page import write_results
from rlvr_jax.analysis.experiment.record import (
    check_record,
    make_record,
    write_record,
)
from rlvr_jax.analysis.experiment.results import NoResultsError, read_results
from rlvr_jax.config import Config
from rlvr_jax.config.experiment import LOG_FOLDER, RESULT_FOLDER, Experiment
from rlvr_jax.experiment.execute import RunFailedError, execute_runs
from rlvr_jax.experiment.schedule import (
    PlannedRun,
    check_runs,
    describe_plan,
    plan_runs,
)

_USAGE = """\
usage: python -m rlvr_jax.experiment --config=FILE --workdir=DIR [--arms=NAME,NAME]
           [--seeds=0,1] [--reduced] [--dry_run] [--parallel=N]

Runs the experiment of a recipe: every arm for every seed. Runs go one after another, or
N seeds at once, each on its share of the CPU cores (DIR/log/ then has their output).
If it was stopped, run it again to resume. After each seed it writes the table and the
figures of the results so far to DIR/result/. To write them again from the runs:
python -m rlvr_jax.analysis experiment DIR
"""
_REDUCED_SEEDS = 2
_Name = TypeVar("_Name", str, int)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExperimentFlags(Flags):
    """The flags of this command."""

    # a recipe's name, or a Python file with get_config() and get_experiment()
    config: str
    workdir: str  # where the runs live; made if missing
    arms: tuple[str, ...] = ()  # some of the arms; all by default
    seeds: tuple[int, ...] = ()  # some of the seeds; all by default
    reduced: bool = False  # 2 seeds in minutes: only shows that it runs
    parallel: PositiveInt = 1  # seeds at once, on CPUs
    # print the question, the detectable difference and the commands; start nothing
    dry_run: bool = False


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if a run failed, 2 for bad usage, 75 if stopped."""
    expected = (OSError, ValueError, RunFailedError)
    return run_command(lambda: _run_command(argv), expected)


def _run_command(argv: Sequence[str]) -> None:
    flags, _ = parse_flags(argv, ExperimentFlags, usage=_USAGE)
    if is_url(flags.workdir):
        raise UsageError(
            f"--workdir={flags.workdir} is in a bucket; give a directory, and copy it "
            "to the bucket when the runs have ended"
        )
    # Absolute, because arms keep this path in their configs.
    path, folder = find_config(flags.config), Path(flags.workdir).resolve()
    config = load_config(path, Config)
    experiment = call_recipe(path, "get_experiment", Experiment)
    if flags.reduced and not experiment.reduced:
        raise UsageError(
            f"--reduced: the experiment of {path} has no overrides `reduced`, so a "
            "trial would be the whole experiment; set them in get_experiment()"
        )
    seeds = experiment.seeds[: _REDUCED_SEEDS if flags.reduced else None]
    runs = plan_runs(
        experiment,
        path,
        folder,
        arms=_choose("arms", flags.arms, [*experiment.arms]),
        seeds=_choose("seeds", flags.seeds, seeds),
        is_reduced=flags.reduced,
    )
    check_runs(config, experiment, runs)
    record = make_record(experiment, config, is_reduced=flags.reduced)
    check_record(folder, record, config)
    plan = describe_plan(experiment, runs, with_commands=flags.dry_run)
    print(plan, flush=True)
    if not flags.dry_run:
        write_record(folder, record)
        _execute(runs, folder, parallel=flags.parallel)


def _execute(runs: Sequence[PlannedRun], folder: Path, *, parallel: int) -> None:
    """Runs the unfinished runs, and writes results after each seed and at the end.

    If the results of a seed cannot be written, it prints the error and continues.
    """
    left = [run for run in runs if not run.has_ended()]
    last_of_seed = {run.seed: run for run in left}.values()
    logs = folder / LOG_FOLDER if parallel > 1 else None
    for run in execute_runs(left, parallel=parallel, logs=logs):
        if run in last_of_seed:
            try:
                write_results(folder / RESULT_FOLDER, read_results(folder))
            except NoResultsError:
                continue
            except (OSError, ValueError) as error:
                print(f"no results yet: {error}", file=sys.stderr)
    try:
        print(write_results(folder / RESULT_FOLDER, read_results(folder)))
    except NoResultsError as error:
        print(error)


def _choose(flag: str, asked: Sequence[_Name], known: Sequence[_Name]) -> list[_Name]:
    """Returns the known names that the flag chose, or all if it chose none."""
    texts = [*map(str, known)]
    for name in asked:
        if name not in known:
            nearest = "" if str(name).isdigit() else did_you_mean(str(name), texts)
            raise UsageError(
                f"--{flag}={name} does not exist"
                f"{nearest or '; there are ' + ', '.join(texts)}"
            )
    return [name for name in known if not asked or name in asked]
