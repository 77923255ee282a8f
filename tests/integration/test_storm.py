"""The storm: what counts as a loss, and a minute of it."""

import contextlib
import json
import os
import random
import subprocess
import sys

import pytest

from benchmarks.storm import faults, flips, trial
from benchmarks.storm.faults import Site, Struck
from benchmarks.storm.job import find_differences


class FakeJob:
    """Runs a Python program instead of a training run."""

    def __init__(self, code):
        self.code = code

    def start(self, workdir, said, *arguments, **environment):
        workdir.mkdir(parents=True, exist_ok=True)
        with said.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-c", self.code, *arguments],
                stderr=file,
                cwd=workdir,
                env=os.environ | environment,
            )

    def start_several(self, workdir, said):
        return [self.start(workdir, own, str(n)) for n, own in enumerate(said)]


def site(tmp_path, code, *, seconds=0.01):
    return Site(
        job=FakeJob(code),
        workdir=tmp_path / "disk" / "run",
        said=tmp_path / "said",
        seconds=seconds,
        rng=random.Random(0),
    )


def test_a_killed_run_is_struck_where_its_last_line_was(tmp_path):
    code = (
        "import sys, time\n"
        "print('train  3/8  mean 0', file=sys.stderr, flush=True); time.sleep(60)"
    )
    assert faults.kill(site(tmp_path, code, seconds=2.0)) == Struck(place="train")


def test_a_run_that_is_over_is_not_counted_and_one_that_fails_is_a_loss(tmp_path):
    assert faults.kill(site(tmp_path, "", seconds=60.0)).place == faults.FINISHED
    failed = faults.kill(site(tmp_path, "raise SystemExit(3)", seconds=60.0))
    assert failed == Struck(place="start", fault=f"exit code 3: {tmp_path / 'said'}")


SAID = "import sys; print({said!r}, file=sys.stderr); sys.exit({code})"


@pytest.mark.parametrize(
    ("said", "code", "is_loss"),
    [
        ("error: /a: No space left on device", 1, False),
        ("error: the disk of /a has 0.0 MiB free", 2, False),
        ("error: /a: No space left on device", 75, True),
        ("OSError: No space left on device", 1, True),
        ("Traceback (most recent call last):\nerror: /a: No space left", 1, True),
        ("", 1, True),
    ],
)
def test_a_full_disk_must_end_in_an_error_line(
    tmp_path, monkeypatch, said, code, is_loss
):
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(faults, "free_bytes", lambda path: 1 << 20)
    struck = faults.fill_disk(site(tmp_path, SAID.format(said=said, code=code)))
    assert bool(struck.fault) is is_loss
    assert list((tmp_path / "disk").iterdir()) == [tmp_path / "disk" / "run"]


def test_a_disk_is_filled_but_for_a_little(tmp_path, monkeypatch):
    """It fills at least 700 KiB of a free megabyte."""
    (tmp_path / "disk").mkdir()
    monkeypatch.setattr(faults, "free_bytes", lambda path: 1 << 20)
    wait = (
        "import os, signal, sys\n"
        "signal.alarm(60)\n"
        "while not os.path.exists('../ballast'): pass\n"
        "while os.path.getsize('../ballast') < 700 << 10: pass\n"
        "sys.exit('error: full')"
    )
    assert faults.fill_disk(site(tmp_path, wait)) == Struck(place="start")


def test_only_a_runs_own_disk_is_filled(tmp_path, monkeypatch):
    """Also a run that begins near the end of the schedule gets its own."""
    mounted = []

    def mount(directory):
        mounted.append(directory.name)
        return contextlib.nullcontext()

    def work_off(trial, tally, disk, rng):
        while tally.next_kind():
            pass

    monkeypatch.setattr(faults, "mounted", mount)
    monkeypatch.setattr(trial, "_strike_runs", work_off)
    field = trial.Trial(job=None, folder=tmp_path, seconds=0.0, expected={})
    trial.strike(field, {"full_disk": 1, "kill": 1}, minutes=1, seed=0, at_once=3)
    assert sorted(mounted) == ["disk0", "disk1", "disk2"]


# Each holds a lock on its file; getting another's lock means that it died.
WRITER = """
import os, sys
while not os.path.exists(os.environ["STORM_SWITCH"]): pass
open(os.environ["STORM_SWITCH"] + "2", "w").write("beside the workdir")
try:
    open("file", "wb", buffering=0).write(b"below it")
except OSError as error:
    sys.exit(f"error: {error}")
"""


def test_a_disk_that_fails_fails_what_is_written_to_the_workdir(tmp_path):
    if not faults.compile_bad_disk(tmp_path):
        pytest.skip("no C compiler")
    where = site(tmp_path, WRITER)
    assert faults.break_disk(where) == Struck(place="start")
    assert where.said.read_text() == "error: [Errno 5] Input/output error\n"
    assert (tmp_path / "disk" / "broken2").read_text() == "beside the workdir"


SEVERAL = """
import fcntl, pathlib, signal, sys
signal.alarm(60)
own = open(sys.argv[1], "w")
fcntl.flock(own, fcntl.LOCK_EX)
own.write("locked")
own.flush()
print("sft  1/2", file=sys.stderr, flush=True)
while True:
    for path in pathlib.Path().iterdir():
        if path.name == sys.argv[1] or not path.read_text():
            continue
        try:
            fcntl.flock(path.open(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        print({said!r}, file=sys.stderr)
        sys.exit({code})
"""


@pytest.mark.parametrize(
    ("said", "code", "place", "fault"),
    [
        ("error: another process of this run has died", 1, "sft", ""),
        ("RuntimeError: Gloo", 1, "sft", "did not say why"),
        ("error: another process of this run has died", 75, "sft", "exit codes"),
        ("eval after  8/8", 0, faults.FINISHED, ""),
    ],
)
def test_where_one_of_several_dies_the_others_must_say_so(
    tmp_path, said, code, place, fault
):
    several = SEVERAL.format(said=said, code=code)
    struck = faults.kill_one_of_several(site(tmp_path, several, seconds=2.0))
    assert struck.place == place
    assert fault in struck.fault
    assert bool(struck.fault) is bool(fault)


def test_several_processes_may_differ_from_one_only_in_last_bits():
    one = {"metrics": [{"loss": 1.0, "step": 3}], "rollouts": b"a", "params_sha256": 1}
    two = one | {"metrics": [{"loss": 1.00001, "step": 3}], "params_sha256": 2}
    assert find_differences(one, two, is_exact=False) == []
    assert find_differences(one, two) == ["metrics", "params_sha256"]
    for other in ({"loss": 1.001, "step": 3}, {"loss": 1.0, "step": 4}, {"loss": 1.0}):
        found = two | {"metrics": [other]}
        assert find_differences(one, found, is_exact=False) == ["metrics"]
    assert find_differences(one, two | {"metrics": []}, is_exact=False) == ["metrics"]
    found = two | {"rollouts": b"b"}
    assert find_differences(one, found, is_exact=False) == ["rollouts"]


def test_a_flipped_bit_that_nobody_notices_is_not_counted(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"abc")
    read = []

    def notice_none():
        read.append(file.read_bytes())

    assert not flips._is_noticed([file], notice_none, random.Random(0))
    assert read[0] != b"abc"
    assert file.read_bytes() == b"abc"


def test_a_minute_of_the_storm_loses_nothing(command):
    asked = (
        "--kills=3",
        "--full_disks=2",
        "--bad_disks=1",
        "--flips=25",
        "--answers=100",
        "--deaths=0",
    )
    storm = [sys.executable, "-m", "benchmarks.storm", *asked]
    done = subprocess.run(
        [*storm, f"--programs={command.cache}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, struck, *found, graded = map(json.loads, done.stdout.splitlines())
    kinds = [kind.split("/")[0] for kind, n in struck.items() for _ in range(n)]
    assert kinds.count("kill") == 3
    assert kinds.count("full_disk") in (0, 2)  # none where no disk may be mounted
    assert kinds.count("bad_disk") in (0, 1)  # none without a C compiler
    assert kinds.count("runs") > 0
    assert [(f["found"], f["of"]) for f in found] == [(25, 25)] * 5
    assert graded["hostile_answers"] == 100
    judged = ("correct", "incorrect", "unverified")
    assert sum(graded.get(status, 0) for status in judged) == 100
