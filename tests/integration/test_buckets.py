"""A run in a bucket ends like one in a directory, even if disks are lost."""

import functools
import json
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest

from job_jax.buckets.store import open_store
from tests.support.command import ROOT, outcome, tiny
from tests.support.emulators import emulator
from tests.support.several import started

SCHEMES = ["s3", "gs"]


@pytest.fixture(params=SCHEMES)
def bucket(request, monkeypatch, tmp_path):
    """An empty bucket's address; staged files are below tmp_path."""
    with emulator(request.param) as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BUCKET_STAGING_DIR", str(tmp_path / "staging"))
        yield f"{request.param}://bucket"


def staged(tmp_path, purpose="work"):
    """Returns the one directory of a bucket on this disk."""
    (config,) = (tmp_path / "staging" / purpose).glob("*/*/config.json")
    return config.parent


def forget(tmp_path):
    """Deletes this machine's disk."""
    shutil.rmtree(tmp_path / "staging")


def test_a_run_killed_and_moved_to_another_machine_ends_as_one_never_cut(
    command, whole, bucket, tmp_path
):
    run = functools.partial(tiny, f"{bucket}/run")
    for line in ("sft  6/6", "train  3/4"):
        assert command.cut(line, signal.SIGKILL, *run()).code == -signal.SIGKILL
        forget(tmp_path)
    ended = command.cut("train  4/4", signal.SIGTERM, *run())
    assert ended.code == 75, ended.err
    forget(tmp_path)
    assert command.cut("eval before", signal.SIGKILL, *run()).code == -signal.SIGKILL
    forget(tmp_path)
    ended = command.run(*run())
    assert ended.code == 0, ended.err
    assert "sft  " not in ended.err  # its checkpoint was in the bucket
    assert outcome(staged(tmp_path)) == outcome(whole)
    # The bucket has that run, finished, and every command can read it.
    forget(tmp_path)
    ended = command.run(*run())
    assert ended.out == (
        f"finished: {bucket}/run has nothing left to do for --stage=all\n"
    )
    assert outcome(staged(tmp_path)) == outcome(whole)
    _read_by_every_command(command, f"{bucket}/run", whole, tmp_path)


def _read_by_every_command(command, run, whole, tmp_path):
    scores = command.run(
        f"--config={run}/config.json", f"--checkpoint={run}", module="rlvr_jax.evaluate"
    )
    assert scores.code == 0, scores.err
    after = json.loads((whole / "summary.json").read_text())["eval"]["after"]
    assert json.loads(scores.out) == after
    report = command.run("report", run, module="rlvr_jax.analysis")
    page = staged(tmp_path, "read") / "report" / "index.html"
    assert report.out == f"{page}\n", report.err
    shown = command.run("show", run, "--step=3", module="rlvr_jax.rollouts")
    assert shown.out.startswith("train, step 3: 32 completions"), shown.err
    model = command.run(
        "to-hf", f"{run}/checkpoints/sft", tmp_path / "hf", module="rlvr_jax.convert"
    )
    assert model.out == f"{tmp_path / 'hf'}: step 6\n", model.err
    longer = tiny(f"{run}-on", f"--continue_from={run}@2", "--config.train.steps=1")
    ended = command.run(*longer)
    assert ended.code == 0, ended.err
    assert f"starts from {run}, step 2 of RL" in ended.err
    record = tmp_path / "staging" / "work"
    (config,) = record.glob("*/run-on/config.json")
    assert json.loads(config.read_text())["continued_from"]["workdir"] == run
    # The same command again: the lineage is recorded, and matches.
    assert command.run(*longer).out.startswith(f"finished: {run}-on")


def _two(workdir):
    """Returns the arguments of one of two processes."""
    return tiny(
        workdir,
        "--config.mesh.cpu_devices=1",
        "--config.sft.steps=2",
    )


def _has_checkpoint(env, stage):
    """Returns whether the newest commit has a checkpoint of a stage."""
    url = f"{env['STORAGE_EMULATOR_HOST']}/storage/v1/b/bucket/o"
    with urllib.request.urlopen(f"{url}?prefix=run/commits/") as reply:
        names = [item["name"] for item in json.load(reply).get("items") or ()]
    if not names:
        return False
    commit = f"{url}/{urllib.parse.quote(max(names), safe='')}?alt=media"
    try:
        with urllib.request.urlopen(commit) as reply:
            return f"checkpoints/{stage}/" in reply.read().decode()
    except urllib.error.HTTPError:  # a newer one has replaced it
        return False


def test_two_hosts_killed_and_a_disk_lost_end_as_ones_never_cut(
    command, monkeypatch, tmp_path
):
    uncut, run = tmp_path / "uncut", "gs://bucket/run"
    with emulator("gs") as env:
        disks = [tmp_path / "host0", tmp_path / "host1"]
        hosts = [env | {"BUCKET_STAGING_DIR": str(disk)} for disk in disks]
        with started(command, tmp_path, *[_two(run)] * 2, hosts=hosts) as both:
            both.wait_until(lambda: _has_checkpoint(env, "train"))
            for process in both.all:
                process.kill()
            both.ends()
        shutil.rmtree(disks[0])
        with started(command, tmp_path, *[_two(run)] * 2, hosts=hosts) as both:
            codes, said = both.ends()
        assert codes == [0, 0], said
        for line in ("sft", "train  1/4"):  # their checkpoints were in the bucket
            assert f"\n{line}" not in said[0]
        with started(command, tmp_path, *[_two(uncut)] * 2) as both:
            assert both.ends()[0] == [0, 0]
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("BUCKET_STAGING_DIR", str(tmp_path / "third"))
        ended = command.run(run, tmp_path / "copy", module="job_jax.download")
        assert ended.code == 0, ended.err
        assert outcome(tmp_path / "copy") == outcome(uncut)
        # One process has nothing left to do with it.
        ended = command.run(*_two(run))
        assert ended.out.startswith(f"finished: {run}"), ended.err


def test_an_object_has_all_bytes_of_its_file_whatever_the_last_ones_are(
    bucket, tmp_path
):
    """One of 256 checkpoint files ends in a carriage return; gcsfs once dropped it."""
    store = open_store(f"{bucket}/run")
    for number, ending in enumerate((b"\r", b"\n", b"\n\r", b"\n--==0==--\n", b"")):
        source, target = tmp_path / f"{number}.in", tmp_path / f"{number}.out"
        source.write_bytes(b"\xff\x00 ==\r\n" * bool(ending) + ending)
        store.upload(str(number), source)
        store.download(str(number), target)
        assert target.read_bytes() == source.read_bytes(), ending


def test_what_cannot_be_begun_is_refused_in_one_line(command, bucket, tmp_path):
    scheme = bucket.partition("://")[0]
    ended = command.run(*tiny(f"{scheme}://nobody-made-this/run"))
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert ended.err.startswith(
        f"error: {scheme}://nobody-made-this/run cannot be used"
    )
    assert "make the bucket" in ended.err
    ended = command.run("report", f"{bucket}/none", module="rlvr_jax.analysis")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        f"error: {bucket}/none holds no run: nothing was committed there; "
        "check the address\n"
    )
    shutil.rmtree(tmp_path / "staging", ignore_errors=True)


def test_no_extra_is_imported_before_it_is_asked_for():
    code = (
        "import sys, rlvr_jax.pipeline, rlvr_jax.evaluate, rlvr_jax.analysis.__main__\n"
        "import job_jax.buckets, job_jax.trackers, rlvr_jax.stages.train\n"
        "import rlvr_jax.verifiers.judge\n"
        "extras = {'s3fs', 'gcsfs', 'aiobotocore', 'httpx', 'trackio', 'wandb'}\n"
        "print(extras & sys.modules.keys())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "set()\n"
