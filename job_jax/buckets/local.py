"""Where bucket workdirs are on the local disk, and which process works in them."""

import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable, Collection
from typing import IO

from job_jax import processes
from job_jax.buckets.commits import Commit, read_newest
from job_jax.buckets.fetch import OWN_DIR, LocalState, fetch, fetch_commit
from job_jax.buckets.joint import JointMirror, needed_files
from job_jax.buckets.mirror import Mirror
from job_jax.buckets.store import (
    BucketAccessError,
    BucketError,
    Store,
    access_error,
    open_store,
)
from job_jax.schema import check

STAGING_ENV = "BUCKET_STAGING_DIR"
_SCHEMES = ("gs", "s3")

_mirrors: dict[pathlib.Path, Mirror] = {}  # of this process, by staging directory
_locks: dict[pathlib.Path, IO[str]] = {}


def is_url(path: str) -> bool:
    """Returns whether a path is an address such as s3://bucket/run."""
    return re.match(r"[a-z0-9+]+://", path) is not None


def parse_url(url: str) -> str:
    """Returns the normalized address of a folder in a bucket.

    Raises ConfigError unless it is gs://bucket/path or s3://bucket/path.
    """
    scheme, _, rest = url.partition("://")
    parts = [part for part in rest.split("/") if part]
    check(
        scheme in _SCHEMES and len(parts) >= 2 and not {".", ".."} & {*parts},
        f"{url!r} is not a workdir in a bucket; write gs://bucket/run or "
        "s3://bucket/run",
    )
    return f"{scheme}://{'/'.join(parts)}"


def open_workdir(path: str) -> pathlib.Path:
    """Returns the directory to work in: `path`, or the staging directory of an address.

    A staging directory then holds the newest commit, plus the changes that a killed run
    made to it on this machine. It is locked until this process ends or leaves its
    mirror. In a run of several processes each has its own, which holds the newest
    commit and nothing else. Raises BucketAccessError if the bucket cannot be used, or
    if another process on this machine works in it.
    """
    if not is_url(path):
        return pathlib.Path(path)
    url = parse_url(path)
    is_joint = processes.asks_for_several()
    if is_joint and not url.startswith("gs://"):
        raise BucketAccessError(
            f"--workdir={url}: several processes write a checkpoint together, which "
            "orbax can do on gs:// and not on s3://; give an address on gs://, or a "
            "directory that all of them share"
        )
    own = f"work-{processes.expected_index()}" if is_joint else "work"
    directory = _local_directory(url, own)
    _lock(directory, url)
    store = open_store(url)
    try:
        newest, state = read_newest(store), LocalState(directory)
        if state.commit and newest.number < state.commit.number:
            raise BucketAccessError(
                f"{url} holds no commit {state.commit.number}, and {directory} may be "
                "the last copy of it; to start over, remove that directory too"
            )
        is_other = state.commit is None or state.commit.number != newest.number
        if is_other and newest.number:
            print(f"{url}: fetching commit {newest.number}", file=sys.stderr)
        if is_joint:
            # Local files ahead of the commit are useless here: checkpoints go straight
            # to the bucket, so this disk has none to match them.
            fetch_commit(store, newest, directory, needed_files(newest.files))
        elif is_other:
            fetch_commit(store, newest, directory, newest.files)
    except BucketError as error:
        raise _refusal(store, error) from error
    _mirrors[directory] = (JointMirror if is_joint else Mirror)(store, directory)
    return directory


def mirror_of(directory: pathlib.Path) -> Mirror | None:
    """Returns the mirror of a directory that `open_workdir` returned for an address."""
    return _mirrors.get(directory)


def close_workdir(directory: pathlib.Path) -> None:
    """Releases a staging directory for other processes on this machine."""
    _mirrors.pop(directory, None)
    if lock := _locks.pop(directory, None):
        lock.close()


def fetch_copy(url: str, select: Callable[[Commit], Collection[str]]) -> pathlib.Path:
    """Returns a local copy of the files that `select` names of a bucket's workdir.

    For reading only: nothing is uploaded, and a run that writes there is not disturbed.
    Raises BucketAccessError, also if no run has committed.
    """
    directory = _local_directory(url, "read")
    with _open_lock(directory) as lock:  # others may fetch the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        _fetch(url, directory, select)
    return directory


def _fetch(
    url: str, directory: pathlib.Path, select: Callable[[Commit], Collection[str]]
) -> Commit:
    store = open_store(parse_url(url))
    try:
        commit = fetch(store, directory, select)
    except BucketError as error:
        raise _refusal(store, error) from error
    if not commit.number:
        raise BucketAccessError(
            f"{url} holds no run: nothing was committed there; check the address"
        )
    return commit


def download_workdir(url: str, directory: pathlib.Path) -> Commit:
    """Downloads a run from a bucket to an empty directory, as if it had run there.

    Raises BucketAccessError.
    """
    commit = _fetch(url, directory, lambda commit: commit.files)
    shutil.rmtree(directory / OWN_DIR)
    return commit


def local_record(path: str) -> pathlib.Path:
    """Returns `path`, or a local copy of it if it is a config.json in a bucket.

    Raises BucketAccessError.
    """
    if not is_url(path):
        return pathlib.Path(path)
    workdir, _, name = path.rpartition("/")
    check(
        name == "config.json",
        f"{path}: only a run's config.json can be read from a bucket; give a local "
        "recipe",
    )
    return fetch_copy(workdir, lambda commit: commit.files.keys() & {name}) / name


def _refusal(store: Store, error: BucketError) -> BucketAccessError:
    """Returns the error for a bucket that cannot be read; damage keeps its message."""
    if error.__cause__ is None or isinstance(error.__cause__, BucketError):
        return BucketAccessError(str(error))
    return access_error(store.url, error)


def _local_directory(url: str, purpose: str) -> pathlib.Path:
    """Returns where a bucket's files are on this disk; the last name is the run's."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    root = pathlib.Path(os.environ.get(STAGING_ENV) or f"{cache}/rlvr_jax/buckets")
    url = parse_url(url)
    digest = hashlib.sha256(url.encode()).hexdigest()[:8]
    parent, _, name = url.rpartition("/")
    readable = re.sub(r"[^A-Za-z0-9.-]+", "-", parent)
    return root.absolute() / purpose / f"{readable[:80]}-{digest}" / name


def _lock(directory: pathlib.Path, url: str) -> None:
    """Locks the staging directory until this process ends. Raises."""
    if directory in _locks:
        return
    lock = _open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise BucketAccessError(
            f"{url}: another process on this machine works in it; wait for it, or give "
            "another --workdir"
        ) from error
    _locks[directory] = lock


def _open_lock(directory: pathlib.Path) -> IO[str]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    return directory.with_name(f"{directory.name}.lock").open("w")
