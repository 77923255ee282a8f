"""The faults: kill a run, kill one of its processes, fill its disk, break its disk.

Each function returns the stage in which the fault hit the run.
"""

import contextlib
import dataclasses
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.storm.job import Job
from job_jax.disk import free_bytes

_POLL_S = 0.002
_ROOM = "64m"  # size of a disk in memory
_MAX_SLACK_KIB = 300  # left on a disk that is almost full
_MAX_START_S = 300.0  # until several processes have connected
_MAX_DEATH_S = 60.0  # from the death of one process to the end of the others
FINISHED = "finished"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Struck:
    """How a run ended after a fault.

    `place` is the first word of its last line of progress ("train"), or FINISHED if the
    fault came too late. `fault` is "" if the run ended as it should.
    """

    place: str
    fault: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Site:
    """A run for a fault to hit. `seconds` is the time of an undisturbed run."""

    job: Job
    workdir: Path
    said: Path
    seconds: float
    rng: random.Random

    def random_delay(self) -> float:
        """Returns a random time, after the start-up; a resumed run is shorter."""
        return self.rng.uniform(0.3, 0.8) * self.seconds


def kill(site: Site) -> Struck:
    """Sends SIGKILL at a random time, half of them while a checkpoint is written."""
    process = site.job.start(site.workdir, site.said)
    deadline = time.monotonic() + site.random_delay()
    if site.rng.random() < 0.5:
        seen = _partial_checkpoints(site.workdir)
        _wait(process, deadline, lambda: _partial_checkpoints(site.workdir) - seen)
        time.sleep(site.rng.uniform(0, 0.1))
    else:
        _wait(process, deadline, lambda: False)
    process.send_signal(signal.SIGKILL)
    code = process.wait()
    if code == -signal.SIGKILL:
        return Struck(place=_place(site.said))
    if code == 0:
        return Struck(place=FINISHED)
    return Struck(place=_place(site.said), fault=f"exit code {code}: {site.said}")


def fill_disk(site: Site) -> Struck:
    """Fills the disk at a random time, so that almost nothing can be written.

    The run must end with exit code 1 (or 2 before it begins), and one line that names a
    file.
    """
    process = site.job.start(site.workdir, site.said)
    _wait(process, time.monotonic() + site.random_delay(), lambda: False)
    slack = site.rng.randrange(0, _MAX_SLACK_KIB) << 10
    ballast = site.workdir.parent / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        file.write(bytes(max(0, free_bytes(ballast) - slack)))
    code = process.wait()
    ballast.unlink(missing_ok=True)
    return _judge_end(site, code)


def break_disk(site: Site) -> Struck:
    """Makes every write to the workdir fail with EIO after a random time.

    The run must end as with a full disk. Needs the library from `compile_bad_disk`.
    """
    switch = site.workdir.with_name("broken")
    process = site.job.start(
        site.workdir,
        site.said,
        LD_PRELOAD=str(bad_disk(site.workdir.parent.parent)),
        STORM_SWITCH=str(switch),
        STORM_DIR=str(site.workdir),
    )
    _wait(process, time.monotonic() + site.random_delay(), lambda: False)
    switch.touch()
    code = process.wait()
    switch.unlink()
    return _judge_end(site, code)


def _judge_end(site: Site, code: int) -> Struck:
    """Returns how a run ended after its disk failed."""
    if code == 0:
        return Struck(place=FINISHED)
    is_told = _says_why(site.said) and "Traceback" not in site.said.read_text()
    fault = "" if code in (1, 2) and is_told else f"exit code {code}: {site.said}"
    return Struck(place=_place(site.said), fault=fault)


def bad_disk(folder: Path) -> Path:
    """Returns the path of the library that `compile_bad_disk` makes."""
    return folder / "bad_disk.so"


def compile_bad_disk(folder: Path) -> bool:
    """Compiles the library that makes writes fail; returns whether that worked."""
    flags = ("-shared", "-fPIC", "-o", str(bad_disk(folder)))
    source = Path(__file__).with_name("bad_disk.c")
    with contextlib.suppress(OSError):
        done = subprocess.run(["cc", *flags, str(source), "-ldl"], check=False)
        return done.returncode == 0
    return False


def kill_one_of_several(site: Site) -> Struck:
    """Sends SIGKILL to one of 2 or 4 processes at a random time; `seconds` is for 2.

    The others must end within a minute, with exit code 1 and a line that says why. All
    have connected before: for a missing process they would wait some minutes.
    """
    count = site.rng.choice((2, 4))
    said = [site.said.with_name(f"{site.said.name}{n}") for n in range(count)]
    processes = site.job.start_several(site.workdir, said)
    # Half as late as for one process, because a resumed run ends soon.
    struck_at = time.monotonic() + site.random_delay() * count / 4
    _wait(processes[0], struck_at, lambda: False)
    _wait(processes[0], struck_at + _MAX_START_S, lambda: said[0].stat().st_size)
    victim = site.rng.randrange(count)
    processes[victim].send_signal(signal.SIGKILL)
    deadline = time.monotonic() + _MAX_DEATH_S
    for process in processes:
        _wait(process, deadline, lambda: False)
    left = [n for n, process in enumerate(processes) if process.poll() is None]
    for process in processes:
        process.kill()
        process.wait()
    place = _place(said[0])
    codes = [process.returncode for process in processes]
    others = {code for n, code in enumerate(codes) if n != victim}
    if codes[victim] == 0 or others == {0}:  # the others no longer needed it
        return Struck(place=FINISHED)
    silent = [n for n in range(count) if n != victim and not _says_why(said[n])]
    if left or silent or others != {1}:
        what = f"{victim} was killed, {left} did not end, {silent} did not say why"
        return Struck(place=place, fault=f"exit codes {codes}; {what}: {site.said}*")
    for file in said:
        file.unlink()
    return Struck(place=place)


def can_fill_disks(directory: Path) -> bool:
    """Returns whether this user may mount a disk in memory."""
    try:
        with mounted(directory):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextlib.contextmanager
def mounted(directory: Path) -> Iterator[Path]:
    """Mounts a small disk in memory at the directory, and yields the directory."""
    directory.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}", "storm", str(directory)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=False)


def _wait(
    process: subprocess.Popen[bytes], deadline: float, happened: Callable[[], object]
) -> None:
    while process.poll() is None and time.monotonic() < deadline and not happened():
        time.sleep(_POLL_S)


def _partial_checkpoints(workdir: Path) -> set[str]:
    """Returns the names of checkpoints that are being written."""
    folder = workdir / "checkpoints"
    if not folder.is_dir():
        return set()
    return {
        f"{stage.name}/{step.name}"
        for stage in os.scandir(folder)
        for step in os.scandir(stage.path)
        if "tmp" in step.name
    }


def _says_why(said: Path) -> bool:
    """Returns whether the last line is an error message."""
    *_, last = said.read_text().splitlines() or [""]
    return last.startswith("error: ")


def _place(said: Path) -> str:
    """Returns the stage in the last line of progress."""
    words = [line.split(maxsplit=1)[:1] for line in said.read_text().splitlines()]
    known = ("sft", "difficulty", "probe:", "tsae", "train", "eval")
    seen = [word[0] for word in words if word and word[0] in known]
    return seen[-1].strip(":") if seen else "start"
