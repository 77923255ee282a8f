"""Runs one after the other: which start, and how they end."""

import dataclasses
import os
import pathlib
import sys
import textwrap

import pytest

from job_jax.command import StoppedError
from rlvr_jax.experiment.execute import RunFailedError, _share_cores, execute_runs
from rlvr_jax.experiment.schedule import PlannedRun

pytestmark = pytest.mark.usefixtures("restored_signals")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script(PlannedRun):
    """A run of a few lines of Python; it has ended once its file exists."""

    lines: str = ""

    @property
    def commands(self):
        """Returns the lines as a command."""
        text = f"import pathlib, os, signal, sys, time\n{self.lines}\n"
        text += f"pathlib.Path({str(self.workdir)!r}).touch()"
        return [[sys.executable, "-c", text]]

    def has_ended(self):
        """Returns whether the file exists."""
        return self.workdir.exists()


def script(path, lines="", name="arm", seed=0):
    return Script(
        name=name,
        seed=seed,
        config=pathlib.Path("recipe.py"),
        workdir=path,
        overrides={},
        lines=lines,
    )


def test_an_ended_run_is_not_repeated(tmp_path, capfd):
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


def test_a_signal_is_forwarded_and_the_run_saves_its_state(tmp_path):
    """The run signals this process to stop, like a terminal, and waits for it."""
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


def wait_for(path):
    """Returns lines that wait for the file of another run, and then continue."""
    return (
        f"path, end = pathlib.Path({str(path)!r}), time.monotonic() + 60\n"
        "while not path.exists():\n"
        "    time.sleep(0.01)\n"
        "    if time.monotonic() > end: sys.exit('nobody came')"
    )


def test_seeds_run_at_once_and_the_runs_of_a_seed_in_order(tmp_path):
    """First runs of both seeds wait for each other; second runs need the first."""
    runs = []
    for seed in (0, 1):
        begun, other = tmp_path / f"begun_{seed}", tmp_path / f"begun_{1 - seed}"
        meets = f"pathlib.Path({str(begun)!r}).touch()\n{wait_for(other)}"
        first = tmp_path / f"first_{seed}"
        follows = f"if not pathlib.Path({str(first)!r}).exists(): sys.exit(1)"
        runs += [
            script(first, meets, seed=seed),
            script(tmp_path / f"second_{seed}", follows, seed=seed),
        ]
    ended = list(execute_runs(runs, parallel=2, logs=tmp_path / "log"))
    assert {run.workdir for run in ended} == {run.workdir for run in runs}
    for seed in (0, 1):
        names = [run.workdir.name for run in ended if run.seed == seed]
        assert names == [f"first_{seed}", f"second_{seed}"]


def test_workers_share_the_cores_and_keep_what_runs_say(tmp_path, capfd):
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("nothing to share")
    cores = sorted(os.sched_getaffinity(0))
    says = "print(sorted(os.sched_getaffinity(0)), file=sys.stderr)\n"
    runs = []
    for seed in (0, 1):
        met, other = tmp_path / f"met_{seed}", tmp_path / f"met_{1 - seed}"
        meets = f"pathlib.Path({str(met)!r}).touch()\n{wait_for(other)}"
        runs.append(script(tmp_path / f"run_{seed}", f"{says}{meets}", seed=seed))
    # Two of the five run at once.
    list(execute_runs(runs, parallel=5, logs=tmp_path / "log"))
    said = [(tmp_path / f"log/worker_{number}.log").read_text() for number in (0, 1)]
    assert said == [
        f"run 1/2  arm, seed 0\n{cores[0::2]}\n",
        f"run 2/2  arm, seed 1\n{cores[1::2]}\n",
    ]
    assert "run 2/2  arm, seed 1\n" in capfd.readouterr().err
    assert sorted(os.sched_getaffinity(0)) == cores


def test_a_single_seed_has_all_cores_however_many_at_once(tmp_path):
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("nothing to share")
    says = "print(sorted(os.sched_getaffinity(0)), file=sys.stderr)\n"
    list(execute_runs([script(tmp_path / "run", says)], parallel=5, logs=tmp_path))
    said = (tmp_path / "worker_0.log").read_text()
    assert said == f"run 1/1  arm, seed 0\n{sorted(os.sched_getaffinity(0))}\n"


def test_more_workers_than_cores_have_one_each(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4, 7}, raising=False)
    assert _share_cores(4) == [{4}, {7}, {4}, {7}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)}, raising=False)
    assert _share_cores(3) == [{0, 3, 6}, {1, 4, 7}, {2, 5}]
    assert _share_cores(1) == [set()]


def test_a_signal_reaches_all_before_any_has_ended(tmp_path):
    """Each run saves once the other got the signal too; one signals this process."""
    runs = []
    for seed in (0, 1):
        told, other = tmp_path / f"told_{seed}", tmp_path / f"told_{1 - seed}"
        ready, others = tmp_path / f"ready_{seed}", tmp_path / f"ready_{1 - seed}"
        saves = (
            "def save(*_):\n"
            f"    pathlib.Path({str(told)!r}).touch()\n"
            f"{textwrap.indent(wait_for(other), '    ')}\n"
            f"    pathlib.Path({str(tmp_path / f'saved_{seed}')!r}).touch()\n"
            "    sys.exit(75)\n"
            "signal.signal(signal.SIGTERM, save)\n"
            f"pathlib.Path({str(ready)!r}).touch()\n"
            f"{wait_for(others)}\n"
            f"if {seed}: os.kill({os.getpid()}, signal.SIGINT)\n"
            "time.sleep(60)"
        )
        runs.append(script(tmp_path / f"run_{seed}", saves, seed=seed))
    with pytest.raises(StoppedError):
        list(execute_runs(runs, parallel=2, logs=tmp_path / "log"))
    assert (tmp_path / "saved_0").exists()
    assert (tmp_path / "saved_1").exists()


def test_where_one_of_several_fails_the_others_save_and_end(tmp_path):
    saved, ready = tmp_path / "saved", tmp_path / "ready"
    saves = (
        f"def save(*_): pathlib.Path({str(saved)!r}).touch(); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, save)\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "time.sleep(60)"
    )
    fails = f"{wait_for(ready)}\nsys.exit(3)"
    runs = [
        script(tmp_path / "a", saves, seed=0),
        script(tmp_path / "b", fails, seed=1),
        script(tmp_path / "c", seed=2),
    ]
    told = r"seed 1, ended with exit code 3; its output is in .*worker_1\.log"
    with pytest.raises(RunFailedError, match=told):
        list(execute_runs(runs, parallel=2, logs=tmp_path / "log"))
    assert saved.exists()
    assert not runs[0].workdir.exists()
    assert not runs[2].workdir.exists()
