"""The runs of an experiment, one process after the other."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from job_jax.command import STOPPED, StoppedError
from job_jax.metrics import format_duration
from job_jax.steps import StopSignal
from rlvr_jax.experiment.schedule import PlannedRun

_POLL_S = 0.2


class RunFailedError(RuntimeError):
    """A run of the experiment has failed; it has said why."""


def execute_runs(runs: Sequence[PlannedRun]) -> Iterator[PlannedRun]:
    """Runs what has not ended, in order, and yields each run once it has.

    What a run says goes where this process's words go. A signal to stop is handed on.
    Raises StoppedError once the run has saved what it needs, RunFailedError where one
    fails: the others wait, for an arm that is left out would be no result.
    """
    left = [run for run in runs if not run.has_ended()]
    stop, began = StopSignal(), time.monotonic()
    stop.install()
    for done, run in enumerate(left):
        stop.check()
        seconds = (time.monotonic() - began) / done * (len(left) - done) if done else 0
        eta = f"  ETA {format_duration(seconds)}" if done else ""
        what = run.name if run.stage == "all" else f"{run.name} ({run.stage})"
        print(
            f"run {done + 1}/{len(left)}  {what}, seed {run.seed}{eta}", file=sys.stderr
        )
        code = _run(run, stop)
        if code == STOPPED or (code and stop.requested()):
            raise StoppedError
        if code:
            raise RunFailedError(
                f"{run.name}, seed {run.seed}, ended with exit code {code}; what it "
                "said stands above. Mend it and run the same command again; by itself "
                f"it is: {run.command}"
            )
        yield run


def _run(run: PlannedRun, stop: StopSignal) -> int:
    """Returns the exit code of a run's commands: of the first that fails, or 0."""
    codes = (_run_command(command, stop) for command in run.commands)
    return next((code for code in codes if code), 0)


def _run_command(argv: Sequence[str], stop: StopSignal) -> int:
    """Returns the exit code of a command; a signal to stop is handed on once."""
    # In a session of its own: a terminal's Ctrl-C comes by this process alone.
    with subprocess.Popen(argv, start_new_session=True) as process:
        try:
            while process.poll() is None and not stop.requested():
                time.sleep(_POLL_S)
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            return process.wait()
        except BaseException:
            process.kill()
            raise
