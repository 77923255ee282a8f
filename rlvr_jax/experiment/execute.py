"""The runs of an experiment as processes: one at a time, or several seeds at once."""

import collections
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from job_jax.command import STOPPED, StoppedError
from job_jax.metrics import format_duration
from job_jax.steps import StopSignal
from rlvr_jax.experiment.schedule import PlannedRun

_POLL_S = 0.2
_AT_HOME = object()  # what a worker gives that has nothing left to do


class RunFailedError(RuntimeError):
    """A run of the experiment has failed; it has said why."""


def execute_runs(
    runs: Sequence[PlannedRun], *, parallel: int = 1, logs: Path | None = None
) -> Iterator[PlannedRun]:
    """Runs what has not ended, and yields each run once it has.

    The runs of a seed one after the other, in order; as many seeds at once as
    `parallel` says, each worker on its share of the cores. What a run says goes where
    this process's words go, or with `logs` to worker_0.log and so on in that folder. A
    signal to stop is handed on. Raises StoppedError once every run has saved what it
    needs, RunFailedError where one fails, for an arm that is left out would be no
    result: the others are stopped.
    """
    left = [run for run in runs if not run.has_ended()]
    seeds = collections.deque(
        [run for run in left if run.seed == seed]
        for seed in dict.fromkeys(run.seed for run in left)
    )
    stop, announce = StopSignal(), _Announcer(len(left))
    stop.install()
    workers = [
        _work(
            seeds,
            cores=cores,
            log=logs / f"worker_{number}.log" if logs else None,
            announce=announce,
            stop=stop,
        )
        for number, cores in enumerate(_share_cores(parallel))
    ]
    try:
        while workers:
            for worker in [*workers]:
                run = next(worker, _AT_HOME)
                if run is _AT_HOME:
                    workers.remove(worker)
                elif isinstance(run, PlannedRun):
                    announce.done += 1
                    yield run
            time.sleep(_POLL_S)
    finally:
        for worker in workers:
            worker.close()


class _Announcer:
    """Says which run begins, of how many, and when all will have ended."""

    def __init__(self, total: int):
        self.total, self.begun, self.done = total, 0, 0
        self._began = time.monotonic()

    def __call__(self, run: PlannedRun) -> None:
        self.begun += 1
        eta = ""
        if self.done:
            passed = time.monotonic() - self._began
            seconds = passed / self.done * (self.total - self.done)
            eta = f"  ETA {format_duration(seconds)}"
        what = run.name if run.stage == "all" else f"{run.name} ({run.stage})"
        print(
            f"run {self.begun}/{self.total}  {what}, seed {run.seed}{eta}",
            file=sys.stderr,
        )


def _work(
    seeds: collections.deque[list[PlannedRun]],
    *,
    cores: set[int],
    log: Path | None,
    announce: _Announcer,
    stop: StopSignal,
) -> Generator[PlannedRun | None]:
    """Takes a seed after the other; yields each run that has ended, None meanwhile."""
    while seeds:
        for run in seeds.popleft():
            stop.check()
            announce(run)
            for argv in run.commands:
                code = yield from _run_command(argv, cores=cores, log=log, stop=stop)
                if code == STOPPED or (code and stop.requested()):
                    raise StoppedError
                if code:
                    raise RunFailedError(
                        f"{run.name}, seed {run.seed}, ended with exit code {code}; "
                        f"what it said stands {f'in {log}' if log else 'above'}. Mend "
                        "it and run the same command again; by itself it is: "
                        f"{run.command}"
                    )
            yield run


def _run_command(
    argv: Sequence[str], *, cores: set[int], log: Path | None, stop: StopSignal
) -> Generator[None, None, int]:
    """Returns the exit code of a command; a signal to stop is handed on once."""
    with contextlib.ExitStack() as stack:
        output = None
        if log:
            log.parent.mkdir(exist_ok=True)
            output = stack.enter_context(log.open("ab"))
        # In a session of its own: a terminal's Ctrl-C comes by this process alone.
        process = subprocess.Popen(
            argv, start_new_session=True, stdout=output, stderr=output
        )
        stack.enter_context(process)
        if cores:  # at once: what makes threads by their number is imported later
            os.sched_setaffinity(process.pid, cores)
        try:
            while process.poll() is None and not stop.requested():
                yield
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            return process.wait()
        except GeneratorExit:  # another run was stopped, or has failed
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
        except BaseException:
            process.kill()
            raise


def _share_cores(parallel: int) -> list[set[int]]:
    """Returns each worker's cores, evenly; empty for all, or where none can be set."""
    if parallel == 1 or not hasattr(os, "sched_getaffinity"):
        return [set() for _ in range(parallel)]
    cores = sorted(os.sched_getaffinity(0))
    return [{*cores[number::parallel]} for number in range(parallel)]
