"""Cloud TPU slices: every command, and starting over, with a fake gcloud."""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

from tests.support.launchers import (
    LAUNCH,
    ROOT,
    RUN,
    SLICE,
    TPU,
    launch,
    logged,
    script,
    stand_in,
)

_WHERE = "--project=p --zone=z"


def _verbs(stage):
    return [call[3] for call in logged(stage, "gcloud")]


def test_a_dry_run_prints_every_command_and_runs_none(stage):
    stand_in(stage, "gcloud")
    args = (*TPU, "--spot", "--print", "--config.name=it's", "--stage=train")
    done = launch("tpu_vm.sh", *args)
    bundle = f"{stage}/r.bundle"
    run = [*RUN, "--config.name=it's", "--stage=train"]
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    ssh = commands.pop(4)
    assert done.returncode == 0
    assert [" ".join(command) for command in commands] == [
        "gcloud compute tpus queued-resources list --filter=name~/r$ "
        f"--format=value(state.state) {_WHERE}",
        "gcloud compute tpus queued-resources create r --node-id=r "
        "--accelerator-type=v5litepod-16 --runtime-version=v2-alpha-tpuv5-lite "
        f"--spot {_WHERE}",
        f"git -C {ROOT} bundle create --quiet {bundle} HEAD",
        f"gcloud compute tpus tpu-vm scp {bundle} r:r.bundle --worker=all {_WHERE}",
        f"gcloud compute tpus queued-resources delete r --force --quiet {_WHERE}",
    ]
    assert ssh[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "r"]
    assert [ssh[6], *ssh[8:]] == ["--worker=all", *_WHERE.split()]
    worker = shlex.split(ssh[7].removeprefix("--command="))
    assert worker[-2 - len(run) :] == ["--attempt=FIRST", "--nfs=10.0.0.2:/d", *run]
    assert logged(stage, "gcloud") == []


@pytest.mark.parametrize(
    ("states", "codes", "verbs", "code"),
    [
        # Requested, waited for, run, deleted.
        (["", "PROVISIONING", "ACTIVE"], [0], "list create list list scp ssh", 0),
        # Taken over from an earlier launch; stopped after a checkpoint, run again.
        (["ACTIVE", "ACTIVE"], [75, 0], "list scp ssh list scp ssh", 0),
        # Preempted: the connection breaks, the rest is deleted and requested again.
        (
            ["ACTIVE", "SUSPENDING", "SUSPENDED", "", "ACTIVE"],
            [255, 0],
            "list scp ssh list list delete list create list scp ssh",
            0,
        ),
        # Failed because a machine was taken away; failed with all machines present.
        (
            ["ACTIVE", "SUSPENDED", "ACTIVE"],
            [1, 0],
            "list scp ssh list list scp ssh",
            0,
        ),
        (["ACTIVE", "ACTIVE"], [1], "list scp ssh list", 1),
        (["ACTIVE"], [2], "list scp ssh", 2),
    ],
)
def test_a_tpu_run_starts_over_until_it_ends(states, codes, verbs, code, stage):
    stand_in(stage, "gcloud")
    script(stage, "gcloud.list", *[f"echo '{state}'" for state in states])
    script(stage, "gcloud.ssh", *[f"exit {each}" for each in codes])
    done = launch("tpu_vm.sh", *TPU)
    assert _verbs(stage) == [*verbs.split(), "delete"]
    assert done.returncode == code
    assert (stage / "gcloud.list").read_text() == ""


def test_a_copy_that_fails_is_not_the_runs_failure(stage):
    stand_in(stage, "gcloud")
    script(stage, "gcloud.list", *["echo ACTIVE"] * 3)
    script(stage, "gcloud.scp", "exit 1", "exit 2", "exit 0")
    done = launch("tpu_vm.sh", *TPU)
    assert (done.returncode, _verbs(stage).count("ssh")) == (0, 1)


def test_a_recipe_may_be_named(stage):
    stand_in(stage, "gcloud")
    script(stage, "git.cat-file", "exit 128", "exit 0")
    done = launch("tpu_vm.sh", *TPU, "--config=quickstart", "--print")
    assert (done.returncode, done.stderr) == (0, "")
    asked = [call[-1] for call in logged(stage, "git") if "cat-file" in call]
    assert asked == ["HEAD:quickstart", "HEAD:configs/quickstart.py"]


@pytest.mark.parametrize("kept", [(), ("--keep",)])
def test_a_tpu_run_gives_up_after_its_restarts(kept, stage):
    stand_in(stage, "gcloud")
    script(stage, "gcloud.list", *["echo ACTIVE"] * 3)
    script(stage, "gcloud.ssh", *["exit 75"] * 3)
    done = launch("tpu_vm.sh", *TPU, "--restarts=2", *kept)
    assert (done.returncode, _verbs(stage).count("ssh")) == (1, 3)
    assert done.stderr.endswith("the same command continues from the checkpoint\n")
    assert _verbs(stage).count("delete") == (not kept)


def test_a_slice_stays_where_it_is_to_be_looked_at_and_can_be_deleted(stage):
    stand_in(stage, "gcloud")
    script(stage, "gcloud.list", "echo FAILED", "echo ACTIVE")
    assert launch("tpu_vm.sh", *TPU).returncode == 1
    assert launch("tpu_vm.sh", *TPU, "--keep").returncode == 0
    assert _verbs(stage) == ["list", "list", "scp", "ssh"]
    assert launch("tpu_vm.sh", "--delete", *SLICE[:3]).returncode == 0
    assert _verbs(stage)[-1] == "delete"


def test_every_attempt_has_its_own_name(stage):
    stand_in(stage, "gcloud")
    script(stage, "gcloud.list", *["echo ACTIVE"] * 2)
    script(stage, "gcloud.ssh", "exit 75", "exit 0")
    assert launch("tpu_vm.sh", *TPU).returncode == 0
    names = re.findall(r"--attempt=(\S+)", (stage / "log").read_text())
    assert len(names) == len(set(names)) == 2


def test_words_of_the_share_are_one_word_on_the_worker_too(stage):
    """No command within them runs there."""
    share = "h:/d'; touch $HOME/owned; '"
    stand_in(stage, "gcloud")
    done = launch("tpu_vm.sh", *TPU, f"--nfs={share}", "--print")
    assert done.returncode == 0
    ssh = shlex.split(
        next(line for line in done.stdout.splitlines() if " ssh " in line)
    )
    worker = shlex.split(ssh[7].removeprefix("--command="))
    assert f"--nfs={share}" in worker


def test_the_bundle_has_a_unique_path_and_is_removed(stage):
    """Other users of the machine cannot place a file there first."""
    stand_in(stage, "gcloud")
    script(stage, "gcloud.list", "echo ACTIVE")
    assert launch("tpu_vm.sh", *TPU).returncode == 0
    (bundle,) = re.findall(
        r"bundle create --quiet (\S+) HEAD", (stage / "log").read_text()
    )
    assert not bundle.startswith(f"{stage}/r.bundle")
    assert bundle.endswith("/r.bundle")
    assert not (stage / bundle).parent.exists()


def test_a_workdir_in_a_bucket_needs_no_share(stage):
    stand_in(stage, "gcloud")
    done = launch("tpu_vm.sh", *TPU, "--nfs=", "--workdir=gs://b/run", "--print")
    assert done.returncode == 0
    assert "tpu_worker.sh --attempt=FIRST --config=" in done.stdout
    assert "--workdir=gs://b/run" in done.stdout
    assert "--nfs" not in done.stdout


@pytest.fixture
def worker(stage):
    """The script on a worker; its copy of the project has nothing to install."""
    folder, python = stage / "rlvr_jax/launch", stage / "rlvr_jax/.venv/bin/python"
    folder.mkdir(parents=True)
    for name in ("lib.sh", "tpu_worker.sh"):
        shutil.copy(LAUNCH / name, folder)
    (folder / "venv.sh").write_text('echo "venv.sh $PYTHON $*" >>"$STAGE/log"\n')
    stand_in(stage, "mountpoint", "python3.12")
    python.parent.mkdir(parents=True)
    shutil.copy(stage / "sudo", python)
    return folder / "tpu_worker.sh"


def test_a_worker_mounts_installs_and_runs_once_an_attempt(worker, stage):
    def start(attempt):
        flags = (f"--attempt={attempt}", "--nfs=h:/d", *RUN, "--config.name=a b")
        return launch(worker, *flags).returncode

    script(stage, "mountpoint.--quiet", "exit 1")
    script(stage, "python.-m", "exit 75")
    assert start("1") == 75
    log = (stage / "log").read_text()
    assert "sudo mount -t nfs h:/d /mnt/share\n" in log
    assert f"sudo chown {os.getuid()} /mnt/share\n" in log
    assert "sudo chmod" not in log
    assert "venv.sh python3.12 tpu\n" in log
    started = f"python -m rlvr_jax.main {' '.join(RUN)} --config.name=a b\n"
    assert log.count(started) == 1
    # Repeated on only this worker, an attempt starts nothing; a new attempt does.
    assert start("1") == 75
    assert (stage / "log").read_text().count(started) == 1
    assert start("2") == 0
    assert (stage / "log").read_text().count(started) == 2


@pytest.mark.parametrize(("name", "code"), [("rlvr_jax.main", -15), ("other", 0)])
def test_a_worker_stops_only_what_an_earlier_attempt_left(name, code, worker, stage):
    # Ends with its input; the process list shows it as `name`.
    command = [sys.executable, "-c", "input()", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as left:
        (stage / ".rlvr_jax_attempt").write_text(f"1 {left.pid}\n")
        assert launch(worker, "--attempt=2", "--nfs=h:/d", *RUN).returncode == 0
        left.communicate(b"\n")
        assert left.returncode == code


def test_a_worker_of_a_bucket_mounts_nothing(worker, stage):
    script(stage, "mountpoint.--quiet", "exit 1")
    assert (
        launch(worker, "--attempt=1", *RUN[:1], "--workdir=gs://b/run").returncode == 0
    )
    log = (stage / "log").read_text()
    assert "mount" not in log
    assert "venv.sh python3.12 tpu,gcs\n" in log
    assert (
        "python -m rlvr_jax.main --config=configs/smoke.py --workdir=gs://b/run" in log
    )
    assert launch(worker, "--attempt=2", *RUN).returncode == 2
