"""Runs one after the other: which are run, and how they end."""

import dataclasses
import os
import pathlib
import sys

import pytest

from job_jax.command import StoppedError
from rlvr_jax.experiment.execute import RunFailedError, execute_runs
from rlvr_jax.experiment.schedule import PlannedRun

pytestmark = pytest.mark.usefixtures("restored_signals")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script(PlannedRun):
    """A run that is a few lines of Python, and has ended once its file is there."""

    lines: str = ""

    @property
    def commands(self):
        """Returns the lines as a command."""
        text = f"import pathlib, os, signal, sys, time\n{self.lines}\n"
        text += f"pathlib.Path({str(self.workdir)!r}).touch()"
        return [[sys.executable, "-c", text]]

    def has_ended(self):
        """Returns whether the file is there."""
        return self.workdir.exists()


def script(path, lines="", name="arm"):
    return Script(
        name=name,
        seed=0,
        config=pathlib.Path("recipe.py"),
        workdir=path,
        overrides={},
        lines=lines,
    )


def test_what_has_ended_is_not_run_again(tmp_path, capfd):
    runs = [script(tmp_path / name, name=name) for name in "abc"]
    runs[1].workdir.touch()
    assert [run.name for run in execute_runs(runs)] == ["a", "c"]
    assert [run.name for run in execute_runs(runs)] == []
    said = capfd.readouterr().err
    assert "run 1/2  a, seed 0\n" in said
    assert "run 2/2  c, seed 0  ETA " in said


def test_a_run_that_fails_ends_all_and_names_its_command(tmp_path):
    runs = [script(tmp_path / "a", "sys.exit(1)"), script(tmp_path / "b")]
    with pytest.raises(RunFailedError, match=r"exit code 1; .*python -c"):
        list(execute_runs(runs))
    assert not runs[1].workdir.exists()


def test_a_signal_is_handed_on_and_the_run_saves_what_it_needs(tmp_path):
    """The run tells this process to stop, as a terminal would, and waits for it."""
    saved = tmp_path / "saved"
    saves = (
        f"def save(*_): pathlib.Path({str(saved)!r}).touch(); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"os.kill({os.getpid()}, signal.SIGINT)\n"
        "time.sleep(15)"
    )
    runs = [script(tmp_path / "a", saves), script(tmp_path / "b")]
    with pytest.raises(StoppedError):
        list(execute_runs(runs))
    assert saved.exists()
    assert not runs[1].workdir.exists()


def test_a_run_that_was_stopped_by_itself_stops_the_experiment(tmp_path):
    with pytest.raises(StoppedError):
        list(execute_runs([script(tmp_path / "a", "sys.exit(75)")]))
