"""One run as several processes: the same run, and all end the same way.

A single chain, because each process compiles for itself: two processes, one of them
killed, then one process to the end.
"""

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from job_jax import processes
from job_jax.schema import ConfigError
from tests.integration.test_probe_runs import GUIDED, PROBED
from tests.support.command import ROOT, Ended, metrics, rollouts, summary, tiny
from tests.support.several import AT_MOST_S, environment, started

_DEVICES = 4
_LOCAL = ROOT / "launch" / "local.sh"
_SHORT = (
    "--config.sft.steps=0",
    "--config.train.steps=4",
    "--config.eval.every=0",
    "--config.checkpoint.every=1",
)


@contextlib.contextmanager
def _local(command, count: object, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Yields a running launch/local.sh; stops it if the test does not see its end."""
    with subprocess.Popen(
        ["bash", str(_LOCAL), f"--processes={count}", *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(command.cache),
    ) as launcher:
        try:
            yield launcher
        finally:
            if launcher.poll() is None:
                launcher.terminate()


def _launched(command, count: object, *more: str) -> tuple[int, str, str]:
    """Returns exit code, output and errors of launch/local.sh."""
    with _local(command, count, *more) as launcher:
        out, said = launcher.communicate(timeout=AT_MOST_S)
        return launcher.returncode, out, said


def _asked(workdir: Path, devices: int, *more: str) -> list[str]:
    return tiny(workdir, *_SHORT, f"--config.mesh.cpu_devices={devices}", *more)


@dataclasses.dataclass(frozen=True)
class Chain:
    """A run that was delayed and cut, and the same run by one process."""

    alone: Path
    cut: Path
    killed: tuple[list[int], list[str]]
    ended: Ended


@pytest.fixture(scope="module")
def chain(command, tmp_path_factory) -> Chain:
    alone, cut, logs = (tmp_path_factory.mktemp(n) for n in ("alone", "cut", "logs"))
    one = command.run(*_asked(alone, _DEVICES))
    assert one.code == 0, one.err
    with started(command, logs, *([_asked(cut, _DEVICES // 2)] * 2)) as two:
        two.wait_for("train  1/4")
        two.all[1].send_signal(signal.SIGSTOP)
        two.wait_for("process 1 has been 12 s silent")
        two.all[1].send_signal(signal.SIGCONT)
        two.wait_for("train  3/4")
        two.all[1].kill()
        killed = two.ends()
    return Chain(
        alone=alone,
        cut=cut,
        killed=killed,
        ended=command.run(*_asked(cut, _DEVICES)),
    )


def _children(parent: int, variable: str) -> list[int]:
    """Returns the children of a process that have `variable` in their environment."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for pid in map(int, listed.stdout.split()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # has ended
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            environment = Path(f"/proc/{pid}/environ").read_text().split("\0")
            if b"rlvr_jax.main" in command and variable in environment:
                found.append(pid)
    return found


def test_where_one_process_is_killed_the_other_ends_and_says_so(chain):
    codes, said = chain.killed
    assert codes == [1, -signal.SIGKILL]
    *_, last = said[0].splitlines()  # no line on a silent process follows
    assert last.startswith("error: ")
    assert "another process of this run has died" in last


@pytest.mark.exhaustive
@pytest.mark.parametrize("staleness", [0, 2])
def test_a_signal_to_one_process_stops_all_after_the_same_step(
    command, tmp_path, staleness
):
    """The launcher starts two; the run then resumes as if it was never cut."""
    alone, cut = tmp_path / "alone", tmp_path / "cut"
    warm = [
        "--config.sft.steps=2",
        f"--config.train.staleness={staleness}",
        "--config.train.loss.tis_cap=2",
    ]
    one = command.run(*_asked(alone, 2, *warm))
    assert one.code == 0, one.err
    with _local(command, 2, *_asked(cut, 1, *warm)) as launcher:
        for line in launcher.stderr:
            if line.startswith("[0] train  3/4"):
                break
        # To one process only: it tells the other.
        (second,) = _children(launcher.pid, "JAX_PROCESS_ID=1")
        os.kill(second, signal.SIGTERM)
        _, said = launcher.communicate(timeout=AT_MOST_S)
    assert launcher.returncode == 75, said
    assert said.count("stopped; run the same command again to continue") == 1
    code, _, said = _launched(command, 2, *_asked(cut, 1, *warm))
    assert code == 0, said
    assert rollouts(cut) == rollouts(alone)


def test_a_run_goes_on_with_another_number_of_processes(chain):
    assert chain.ended.code == 0, chain.ended.err
    # It resumed where the two had stopped, and did not start again.
    assert not re.search(r"^train  1/4", chain.ended.err, re.MULTILINE)


def test_cut_and_spread_over_processes_a_run_is_that_of_one(chain):
    """Token for token, and up to rounding: gradients are summed in another order."""
    assert rollouts(chain.cut) == rollouts(chain.alone)
    for ours, theirs in zip(metrics(chain.cut), metrics(chain.alone), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5), (ours["stage"], ours["step"])
    cut, alone = summary(chain.cut), summary(chain.alone)
    for name in ("eval", "verdicts", "alarms", "params"):
        assert cut[name] == alone[name]


def test_processes_asked_for_different_runs_refuse(command, tmp_path):
    other = _asked(tmp_path / "run", 1, "--config.train.steps=5")
    with started(command, tmp_path, _asked(tmp_path / "run", 1), other) as two:
        codes, said = two.ends()
    assert codes == [2, 2]
    for text in said:
        assert "train.steps: 4 -> 5; start all with the same command" in text


def test_a_workdir_that_only_one_process_sees_is_refused(command, tmp_path):
    own = [_asked(tmp_path / name, 1) for name in ("here", "there")]
    with started(command, tmp_path, *own) as two:
        codes, said = two.ends()
    assert codes == [2, 2]
    for text in said:
        assert "use one on a shared file system" in text


def test_an_error_of_one_process_ends_all_with_its_cause(command, tmp_path):
    """Only the first one looks into the workdir."""
    (tmp_path / "config.json").write_text("{}")
    with started(command, tmp_path, *([_asked(tmp_path, 1)] * 2)) as two:
        codes, said = two.ends()
    assert codes == [2, 2]
    cause = f"{tmp_path}/config.json is not a config that this version"
    assert f"\nerror: {cause}" in f"\n{said[0]}"
    assert f"\nerror: process 0 has failed: {cause}" in f"\n{said[1]}"


@pytest.mark.parametrize("count", ["0", "two", "", "-1", "1.5"])
def test_the_launcher_refuses_an_invalid_number_of_processes(command, count):
    code, out, said = _launched(command, count, "--config=x", "--workdir=y")
    assert (code, out) == (2, "")
    assert said.startswith("error: --processes=")
    assert said.count("\n") == 1


def test_the_launcher_has_help(command):
    code, out, said = _launched(command, 2, "--help")
    assert (code, said) == (0, "")
    assert "--processes=N --config=FILE --workdir=DIR" in out


@pytest.mark.exhaustive
def test_with_a_probe_a_run_is_that_of_one_process(command, tmp_path):
    arguments = [*PROBED, *GUIDED]
    alone, both = tmp_path / "alone", tmp_path / "both"
    one = command.run(*_asked(alone, 2, *arguments))
    assert one.code == 0, one.err
    code, _, said = _launched(command, 2, *_asked(both, 1, *arguments))
    assert code == 0, said
    assert rollouts(both) == rollouts(alone)
    for ours, theirs in zip(metrics(both), metrics(alone), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-4), (ours["stage"], ours["step"])
    assert {p.name for p in (both / "features").iterdir()} == {
        p.name for p in (alone / "features").iterdir()
    }


def test_several_processes_write_a_report_that_is_missing(command, tmp_path):
    """All else has ended: only the report needs devices, in one process."""
    asked = command.run(*_asked(tmp_path, 2, *PROBED))
    assert asked.code == 0, asked.err
    page = tmp_path / "report/index.html"
    page.unlink()
    code, _, said = _launched(command, 2, *_asked(tmp_path, 1, *PROBED))
    assert code == 0, said
    assert page.is_file()


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        ({"JAX_NUM_PROCESSES": "2"}, "JAX_COORDINATOR_ADDRESS, JAX_PROCESS_ID"),
        (
            dict(zip(processes.ENV_VARS, ("h:1", "2", "2"), strict=True)),
            "numbered 0..N-1",
        ),
        (
            dict(zip(processes.ENV_VARS, ("h:1", "two", "0"), strict=True)),
            "JAX_NUM_PROCESSES='two'",
        ),
        (
            dict(zip(processes.ENV_VARS, ("host", "2", "0"), strict=True)),
            "write host:port",
        ),
    ],
)
def test_a_place_that_cannot_be_is_refused(monkeypatch, told, complaint):
    for name in processes.ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        processes.initialize()


def test_commands_of_one_process_refuse_more(monkeypatch):
    for name, value in zip(processes.ENV_VARS, ("h:1", "2", "0"), strict=True):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="runs as one process"):
        processes.require_single_process()


def test_one_process_of_one_is_no_service(monkeypatch):
    for name, value in zip(processes.ENV_VARS, ("h:1", "1", "0"), strict=True):
        monkeypatch.setenv(name, value)
    processes.initialize()
    assert (processes.process_count(), processes.process_index()) == (1, 0)
    assert processes.all_gather_json({"a": 1}) == [{"a": 1}]
    assert processes.map_across_processes(
        [1, 2, 3], lambda own: [2 * x for x in own]
    ) == [2, 4, 6]
