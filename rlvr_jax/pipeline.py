"""A run from its command line to its report: which stages, in which order.

`main` imports this only after it has parsed the command line, because the libraries
behind it load slowly, and a mistyped flag should be refused at once.
"""

import pathlib
import signal
import sys
from collections.abc import Sequence
from typing import Any

import jax

from job_jax.buckets import open_workdir
from job_jax.calls import CallError
from job_jax.checkpoint import CheckpointReadError
from job_jax.config_io import to_json
from job_jax.mesh import describe_devices, start_jax
from job_jax.metrics import CompileCounter, MetricsWriter, NonFiniteMetricError
from job_jax.processes import assert_equal_across, is_primary, process_count
from job_jax.schema import ConfigError
from job_jax.steps import STOP_SIGNALS, StopSignal
from job_jax.working import working
from rlvr_jax.config import Config
from rlvr_jax.learn.optimizer import DivergedError
from rlvr_jax.learn.run_updates import LogprobMismatchError, StaleRolloutsError
from rlvr_jax.plan import compile_only, dry_run
from rlvr_jax.plan.memory import check_room
from rlvr_jax.plan.topology import stand_in_mesh
from rlvr_jax.report.page import is_report_stale, write_report
from rlvr_jax.report.run_files import read_run
from rlvr_jax.rewards.parts import load_reward, verifiers_of_rewards
from rlvr_jax.rollouts.try_rewards import try_setup_rewards
from rlvr_jax.run import cpu_devices
from rlvr_jax.run.checkpoint_settings import recorded_config, settle_config
from rlvr_jax.run.checks import check_new_run
from rlvr_jax.run.cli import Invocation
from rlvr_jax.run.cpu_devices import choose_mesh
from rlvr_jax.run.lineage import Lineage, lineage_record
from rlvr_jax.run.setup import RunSetup, open_setup
from rlvr_jax.run.stage_table import (
    REPORT,
    STAGES,
    describe_pending,
    is_finished,
)
from rlvr_jax.run.start import copy_start, copy_tokenizer
from rlvr_jax.run.start_warnings import describe_start
from rlvr_jax.run.workdir import Workdir
from rlvr_jax.stages.context import RunContext
from rlvr_jax.tracking import RunTrackers, check_trackers
from rlvr_jax.verifiers.grader import Grader

# Errors that a user can fix; commands print them in one line, without a traceback.
EXPECTED_ERRORS = (
    CallError,
    CheckpointReadError,
    DivergedError,
    LogprobMismatchError,
    NonFiniteMetricError,
    OSError,
    StaleRolloutsError,
)


def train(
    config: Config, *, workdir: str | pathlib.Path, stage: str = "all"
) -> dict[str, Any]:
    """Runs a recipe as `python -m rlvr_jax.main` does; returns the workdir's summary.

    For notebooks and scripts: `rlvr_jax.train(config, workdir="runs/mine")`. Call it in
    the main thread, before anything has started JAX's devices. Progress goes to
    standard error, the report to the workdir. On SIGINT the run finishes its step,
    saves a checkpoint and raises StoppedError; call it again with the same config to
    resume. Raises ConfigError if the config or the workdir cannot be used, and
    EXPECTED_ERRORS.
    """
    if stage not in ("all", *STAGES):
        raise ConfigError(f"stage={stage!r} is not one of all, {', '.join(STAGES)}")
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    check_trackers(config)
    path = open_workdir(str(workdir))
    config = settle_config(config, recorded_config(path, None))
    run = Workdir(path, config)
    try:
        start_jax(choose_mesh(config, run.path))
        _run_stages(run, config, stage)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return run.read_summary()


def execute(invocation: Invocation) -> None:
    """Runs the stages that the command line names, or prints the plan of a run."""
    config, topology = invocation.config, invocation.topology
    if invocation.compile_only and topology:
        start_jax(config.mesh)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        compile_only.print_report(config, topology, programs=invocation.programs)
    elif invocation.dry_run or invocation.workdir is None:
        mesh = choose_mesh(config, invocation.workdir)
        start_jax(stand_in_mesh(config.mesh, topology) if topology else mesh)
        print(
            dry_run.describe(
                config,
                topology,
                lineage=invocation.lineage,
                workdir=invocation.workdir,
                verbose=invocation.verbose,
            )
        )
    else:
        start_jax(choose_mesh(config, invocation.workdir), multi_process=True)
        asked = {"stage": invocation.stage, "config": to_json(config)}
        assert_equal_across(asked | lineage_record(invocation.lineage))
        if invocation.stage == REPORT:
            read_run(invocation.workdir)  # refuses a bad workdir before writing to it
        check_trackers(config)
        workdir = Workdir(invocation.workdir, config)
        _run_stages(workdir, config, invocation.stage, lineage=invocation.lineage)


def _run_stages(
    workdir: Workdir, config: Config, stage: str, *, lineage: Lineage | None = None
) -> None:
    """Runs one stage or all, except those already finished; then writes the report."""
    with working(config.name), workdir.mirrored():
        _run_pending(workdir, config, stage, lineage=lineage)


def _run_pending(
    workdir: Workdir, config: Config, stage: str, *, lineage: Lineage | None
) -> None:
    config = workdir.resume_config(config)
    if stage != REPORT:
        workdir.record_steps(config)
    requested = [name for name in STAGES if stage in ("all", name)]
    pending = [
        name
        for name in requested
        if not is_finished(name, config=config, workdir=workdir)
    ]
    with RunTrackers(config, workdir, lineage) as trackers:
        if pending:
            plan = describe_pending(
                pending,
                config=config,
                workdir=workdir,
                ends_with=(REPORT,) if stage == "all" else (),
            )
            workdir.claim()
            _execute_stages(config, workdir, pending, lineage, trackers, plan=plan)
        if process_count() > 1:
            jax.devices()  # in every process: one that asks alone waits for the rest
        if is_primary():
            _end_run(config, workdir, stage, bool(pending), trackers)


def _end_run(
    config: Config,
    workdir: Workdir,
    stage: str,
    pending: bool,
    trackers: RunTrackers,
) -> None:
    """Writes the report if it is due, sends results to trackers, prints the outcome."""
    is_whole = stage in ("all", REPORT)
    if is_new := stage == REPORT or (is_whole and is_report_stale(workdir.path)):
        is_bucket = workdir.name != str(workdir.path)
        copied = f" (copied to {workdir.name}/report)" if is_bucket else ""
        with working("writing the report"):
            page = write_report(workdir.path)
        print(f"report: {page}{copied}")
    if is_whole and (is_new or trackers.lack_results):
        if not trackers.opened:
            trackers.open()
        trackers.finish()
    if is_new:
        return
    if stage != "all" and (setting := STAGES[stage].disabled_by(config)):
        print(f"nothing to do: the recipe has no stage {stage} ({setting})")
    elif not pending:
        print(f"finished: {workdir.name} has nothing left to do for --stage={stage}")


def _execute_stages(
    config: Config,
    workdir: Workdir,
    stages: Sequence[str],
    lineage: Lineage | None,
    trackers: RunTrackers,
    *,
    plan: str,
) -> None:
    stop_signal = StopSignal()
    stop_signal.install()
    compile_counter = CompileCounter()
    _check_rewards_ready(config)
    if lineage:
        copy_tokenizer(config, workdir, lineage)
    with working("reading the problems"):
        setup = open_setup(config, workdir.tokenizer_path, share=workdir.share)
    if not is_finished("probe", config=config, workdir=workdir):
        config.probe.check_before_run(config, setup.tokenizer.encode)
    if not workdir.has_config:
        check_new_run(setup.config, setup.sources, setup.first_by_verifier())
    is_trained = is_finished("train", config=config, workdir=workdir)
    reward_lines = [] if is_trained else try_setup_rewards(setup)
    check_room(setup, workdir, lineage)
    if lineage:
        if is_primary() and not workdir.has_config:
            print(f"starts from {lineage}; no SFT (sft.steps=0)", file=sys.stderr)
        with jax.set_mesh(setup.mesh):
            copy_start(setup, workdir, lineage)
    workdir.write_config(
        config,
        device=describe_devices(),
        more=lineage_record(lineage) | cpu_devices.record(),
    )
    workdir.share()
    if is_primary():
        choice = cpu_devices.describe_choice(config, workdir.path)
        for line in (*choice, *reward_lines, *describe_start(setup, lineage), plan):
            print(line, file=sys.stderr)
    trackers.open()
    with (
        jax.set_mesh(setup.mesh),
        setup.verifier,
        MetricsWriter(workdir.path, trackers=trackers.opened) as writer,
    ):
        _open_verifiers(setup, workdir)
        ctx = RunContext(
            setup=setup,
            workdir=workdir,
            writer=writer,
            stop_signal=stop_signal,
            compile_counter=compile_counter,
            lineage=lineage,
        )
        for stage in stages:
            stop_signal.check()
            with working(f"stage {stage}"):
                STAGES[stage].load_function()(ctx)
                workdir.share()


def _check_rewards_ready(config: Config) -> None:
    """Tests the rewards' verifiers and services before any data are read.

    Raises CallError if one does not answer.
    """
    with Grader(config.verifier, config.judge) as grader:
        for name in sorted(verifiers_of_rewards(config.train.reward)):
            grader.open_verifier(name).check_ready()
    for name in config.train.reward.names:
        load_reward(name).check_ready(config)


def _open_verifiers(setup: RunSetup, workdir: Workdir) -> None:
    """Opens the run's verifiers with their saved state; tests those not yet tested.

    Raises CallError if a judge does not answer, and ConfigError if its template does
    not fit the problems or this machine cannot jail programs.
    """
    rewards = verifiers_of_rewards(setup.config.train.reward)
    problems = setup.first_by_verifier()
    for name in rewards:
        problems.setdefault(name, setup.problems("train", 1)[0])
    for name, problem in sorted(problems.items()):
        verifier = setup.verifier.open_verifier(name)
        verifier.keep_state(workdir.path / name)
        verifier.check_problem(problem)
        if name not in rewards:  # the others were tested before data were read
            verifier.check_ready()
