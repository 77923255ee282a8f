"""Signs of a full or failing disk, before a write and after."""

import asyncio
import errno
import gc
import shutil
import sys
import warnings

import jax.numpy as jnp
import pytest
from orbax.checkpoint._src.serialization import serialization

from job_jax import checkpoint, disk
from job_jax.checkpoint import StageCheckpoints
from job_jax.command import run_command
from job_jax.config import CheckpointConfig
from job_jax.disk import describe_failure, describe_lack, name_file, used_bytes

FULL = "No space left on device"


def raising(error, cause=None):
    with name_file("/runs/a/file"):
        raise error from cause


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ENOSPC, FULL), None),
        (OSError(errno.ENOSPC, "kein Platz"), None),
        (
            ValueError(f"RESOURCE_EXHAUSTED: Failed writing: /x: {FULL} [os_error]"),
            None,
        ),
        (RuntimeError("a save has failed"), OSError(errno.ENOSPC, FULL, "/x")),
    ],
)
def test_a_full_disk_is_reported_with_the_file(error, cause):
    with pytest.raises(OSError, match=FULL) as caught:
        raising(error, cause)
    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == "/runs/a/file"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, FULL, "/another"),
        OSError(errno.ENOENT, "No such file or directory"),
        ValueError("shapes differ"),
        KeyboardInterrupt(),
    ],
)
def test_what_names_a_file_or_is_no_trouble_of_a_disk_passes(error):
    with pytest.raises(type(error)) as caught:
        raising(error)
    assert caught.value is error


def test_the_line_names_the_problem_the_path_the_free_space_and_the_fix(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 8, 3 << 19)
    )
    file = tmp_path / "not" / "there"

    def write():
        with name_file(file):
            raise OSError(errno.ENOSPC, FULL)

    assert run_command(write, (OSError,)) == 1
    assert capsys.readouterr().err == (
        f"error: {file}: {FULL} (1.5 MiB free); make room, then run the same command "
        "again\n"
    )
    read_only = OSError(errno.EROFS, "Read-only file system", str(file))
    assert describe_failure(read_only) == (
        f"{file}: Read-only file system; make its file system writable, then run the "
        "same command again"
    )
    other = FileNotFoundError(errno.ENOENT, "No such file", "a")
    assert describe_failure(other) == str(other)


def test_room_is_lacking_from_the_first_byte_on(monkeypatch, tmp_path):
    monkeypatch.setattr(disk, "free_bytes", lambda path: 3 << 20)
    assert describe_lack(tmp_path, 3 << 20) is None
    assert describe_lack(tmp_path, (3 << 20) + 1) == (
        f"the disk of {tmp_path} has 3.0 MiB free, and 3.0 MiB are needed"
    )


def test_the_size_of_files_is_counted_at_any_depth(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(bytes(5))
    (tmp_path / "a" / "b" / "two").write_bytes(bytes(7))
    assert used_bytes(tmp_path) == 12
    assert used_bytes(tmp_path / "a" / "one") == 5
    assert used_bytes(tmp_path / "nowhere") == 0


async def async_serialize_from_host(*args, **kwargs):
    """Fails as orbax's function does on a full disk, while other writes begin."""

    async def write_fragment():
        pass

    async def begin_writes():
        while True:
            writes.append(asyncio.ensure_future(write_fragment()))
            await asyncio.sleep(0)

    writes = [asyncio.ensure_future(begin_writes())]
    raise OSError(errno.ENOSPC, FULL)


def errno_of_save(directory):
    """Saves, and keeps no reference to the error: it holds the coroutines."""
    try:
        with StageCheckpoints(directory, CheckpointConfig()) as checkpoints:
            checkpoints.save(1, {"params": jnp.ones(3)}, {})
    except OSError as error:
        return error.errno


def test_a_failed_save_does_not_warn_of_writes_that_never_began(monkeypatch, tmp_path):
    monkeypatch.setattr(
        serialization, async_serialize_from_host.__name__, async_serialize_from_host
    )
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    checkpoint._hush_libraries.cache_clear()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        assert errno_of_save(tmp_path) == errno.ENOSPC
        gc.collect()
    assert [str(each.message) for each in told] == []
    checkpoint._hush_libraries.cache_clear()
