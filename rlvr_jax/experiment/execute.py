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
from job_jax.steps import StopSignal
from job_jax.working import format_duration
from rlvr_jax.experiment.schedule import PlannedRun

_POLL_S = 0.2
_DONE = object()  # marks a worker that has finished


class RunFailedError(RuntimeError):
    """A run of the experiment has failed; its output says why."""


def execute_runs(
    runs: Sequence[PlannedRun], *, parallel: int = 1, logs: Path | None = None
) -> Iterator[PlannedRun]:
    """Runs the unfinished runs, and yields each once it has ended.

    The runs of a seed go one after another, in order. `parallel` seeds run at once,
    each worker on its share of the cores. A run's output goes to this process's output,
    or with `logs` to worker_0.log and so on in that folder.

    A signal to stop is passed on to all runs; once each has saved its state, this
    raises StoppedError. If a run fails, the others are stopped and this raises
    RunFailedError, because an experiment with a missing arm has no result.
    """
    left = [run for run in runs if not run.has_ended()]
    seeds = collections.deque(
        [run for run in left if run.seed == seed]
        for seed in dict.fromkeys(run.seed for run in left)
    )
    progress = _Progress(len(left))
    workers = [
        _work(
            seeds,
            cores=cores,
            log=logs / f"worker_{number}.log" if logs else None,
            progress=progress,
        )
        for number, cores in enumerate(_share_cores(min(parallel, len(seeds))))
    ]
    try:
        while workers:
            for worker in [*workers]:
                run = next(worker, _DONE)
                if run is _DONE:
                    workers.remove(worker)
                elif isinstance(run, PlannedRun):
                    progress.num_ended += 1
                    yield run
            time.sleep(_POLL_S)
    finally:
        for worker in workers:
            worker.close()
    if progress.error:
        raise progress.error
    if progress.num_ended < len(left):
        raise StoppedError


class _Progress:
    """Counts the runs that have begun and ended, and whether all must stop."""

    def __init__(self, num_runs: int):
        self.num_runs, self.num_begun, self.num_ended = num_runs, 0, 0
        self.error: RunFailedError | StoppedError | None = None
        self._began = time.monotonic()
        self._signal = StopSignal()
        self._signal.install()

    def is_over(self) -> bool:
        """Returns whether a signal came, or a run has ended with an error."""
        return self.error is not None or self._signal.requested()

    def announce(self, run: PlannedRun) -> str:
        """Prints which run begins and when all will end; returns the line."""
        self.num_begun += 1
        what = run.name if run.stage == "all" else f"{run.name} ({run.stage})"
        line = f"run {self.num_begun}/{self.num_runs}  {what}, seed {run.seed}"
        if self.num_ended:
            passed = time.monotonic() - self._began
            seconds = passed / self.num_ended * (self.num_runs - self.num_ended)
            line += f"  ETA {format_duration(seconds)}"
        print(line, file=sys.stderr)
        return line


def _work(
    seeds: collections.deque[list[PlannedRun]],
    *,
    cores: set[int],
    log: Path | None,
    progress: _Progress,
) -> Generator[PlannedRun | None]:
    """Runs one seed after another; yields each run that has ended, None meanwhile."""
    while seeds:
        for run in seeds.popleft():
            if progress.is_over():
                return
            line = progress.announce(run)
            if log:
                log.parent.mkdir(exist_ok=True)
                with log.open("a") as output:
                    print(line, file=output)
            for argv in run.commands:
                code = yield from _run_command(
                    argv, cores=cores, log=log, progress=progress
                )
                if code == 0:
                    continue
                if code != STOPPED and not progress.is_over():
                    progress.error = RunFailedError(
                        f"{run.name}, seed {run.seed}, ended with exit code {code}; "
                        f"its output is {f'in {log}' if log else 'above'}. Fix it and "
                        "run the same command again. This run alone is: "
                        f"{run.command}"
                    )
                progress.error = progress.error or StoppedError()
                return
            yield run


def _run_command(
    argv: Sequence[str], *, cores: set[int], log: Path | None, progress: _Progress
) -> Generator[None, None, int]:
    """Returns the exit code of a command; if all must stop, signals it once."""
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(log.open("ab")) if log else None
        with _confine(cores):
            # In a new session, so a terminal's Ctrl-C reaches only this process.
            process = subprocess.Popen(
                argv, start_new_session=True, stdout=output, stderr=output
            )
        stack.enter_context(process)
        is_told = False
        try:
            while (code := process.poll()) is None:
                if progress.is_over() and not is_told:
                    process.send_signal(signal.SIGTERM)
                    is_told = True
                yield
            return code
        except BaseException:
            process.kill()
            raise


def _share_cores(num_workers: int) -> list[set[int]]:
    """Returns each worker's cores, evenly; an empty set means no restriction."""
    if num_workers < 2 or sys.platform != "linux":
        return [set() for _ in range(num_workers)]
    cores = sorted(os.sched_getaffinity(0))
    return [
        {*cores[number % len(cores) :: num_workers]} for number in range(num_workers)
    ]


@contextlib.contextmanager
def _confine(cores: set[int]) -> Iterator[None]:
    """Confines processes started within to these cores; an empty set: no limit."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
