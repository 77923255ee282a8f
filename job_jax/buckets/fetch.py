"""Downloads the files of a commit, checks their digests, and puts them in place."""

import contextlib
import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from job_jax.buckets.commits import Commit, StoredFile, read_newest
from job_jax.buckets.store import BucketError, Store
from job_jax.files import digest_of, write_json

OWN_DIR = ".bucket"  # the mirror's own files in a local directory
NUM_TRANSFERS = 8  # concurrent transfers
_TRIES = 5

Stamp = tuple[int, int, int]  # size, mtime_ns, inode: changes if the content changes


def stamp_of(path: pathlib.Path) -> Stamp:
    """Returns a file's stamp, which changes whenever the file is written."""
    stat = path.stat()
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def local_files(directory: pathlib.Path) -> list[str]:
    """Returns the relative paths of the files that belong to the workdir, sorted.

    Leaves out files that are still being written (`*.partial`, orbax's `*tmp*`
    directories) and top-level names that begin with a dot.
    """
    found = []
    for folder, folders, names in os.walk(directory):
        inside = pathlib.Path(folder).relative_to(directory)
        folders[:] = [name for name in folders if "orbax-checkpoint-tmp" not in name]
        found += [inside / name for name in names if not name.endswith(".partial")]
        if inside == pathlib.Path():
            folders[:] = [name for name in folders if not name.startswith(".")]
    paths = (path.as_posix() for path in found)
    return sorted(path for path in paths if not path.startswith("."))


def is_intact(path: pathlib.Path, stored: StoredFile) -> bool:
    """Returns whether a file's digest matches the one in the commit."""
    return digest_of(path, stored.digest.partition(":")[0]) == stored.digest


class LocalState:
    """Which commit a local directory holds, and the stamps of its files then.

    Kept in `.bucket/state.json`; without it, nothing in the directory is trusted.
    """

    def __init__(self, directory: pathlib.Path):
        self._path = directory / OWN_DIR / "state.json"
        self.commit: Commit | None = None
        self.stamps: dict[str, Stamp] = {}
        with contextlib.suppress(FileNotFoundError, KeyError, TypeError, ValueError):
            data = json.loads(self._path.read_text())
            self.stamps = {p: tuple(stamp) for p, stamp in data["stamps"].items()}
            self.commit = Commit.from_json(data["commit"])

    def distrust(self) -> None:
        """Forgets the commit, on disk: the files are about to change."""
        self._path.unlink(missing_ok=True)

    def save(self, commit: Commit, stamps: dict[str, Stamp]) -> None:
        """Records that the directory holds a commit."""
        self.commit, self.stamps = commit, stamps
        self._path.parent.mkdir(parents=True, exist_ok=True)
        data: dict[str, Any] = {"commit": commit.to_json(), "stamps": stamps}
        write_json(self._path, data)


def fetch(
    store: Store,
    directory: pathlib.Path,
    select: Callable[[Commit], Collection[str]] = lambda commit: commit.files,
    *,
    keeps_unknown: bool = False,
) -> Commit:
    """Makes `directory` hold the files of the newest commit that `select` names.

    Removes files that do not belong to the commit; with `keeps_unknown`, only those
    that belonged to the previous commit. Files of the commit that `select` does not
    name may stay. If a run commits meanwhile, the newer commit is fetched. Raises
    BucketError, also if the bytes do not match the commit.
    """
    for attempt in range(1, _TRIES + 1):
        commit = read_newest(store)
        try:
            fetch_commit(
                store, commit, directory, select(commit), keeps_unknown=keeps_unknown
            )
            return commit
        except BucketError as error:
            is_gone = isinstance(error.__cause__, FileNotFoundError)
            if not is_gone or attempt == _TRIES:
                raise
            if read_newest(store).number == commit.number:
                raise BucketError(
                    f"{store.url} is damaged: commit {commit.number} names an object "
                    f"that does not exist ({error}); restore it from a copy, or use "
                    "another workdir"
                ) from error
    raise AssertionError("unreachable")


def fetch_commit(
    store: Store,
    commit: Commit,
    directory: pathlib.Path,
    wanted: Iterable[str],
    *,
    keeps_unknown: bool = False,
) -> None:
    """Makes `directory` hold the `wanted` files of a commit, and none of another.

    With `keeps_unknown`, files that belong to no commit stay.
    """
    state = LocalState(directory)
    known = state.commit.files if state.commit else {}
    stamps = {}
    for path in local_files(directory):
        file, stored = directory / path, commit.files.get(path)
        stamp = stamp_of(file)
        is_unchanged = path in known and state.stamps.get(path) == stamp
        if stored and (
            known[path].digest == stored.digest
            if is_unchanged
            else is_intact(file, stored)
        ):
            stamps[path] = stamp
        elif stored or path in known or not keeps_unknown:
            state.distrust()
            file.unlink()
    _remove_empty_folders(directory)
    (directory / OWN_DIR).mkdir(parents=True, exist_ok=True)
    missing = [path for path in wanted if path not in stamps]
    if missing or state.commit is None or state.commit.number != commit.number:
        state.distrust()
    state.save(commit, stamps | download_files(store, commit, directory, missing))


def download_files(
    store: Store, commit: Commit, directory: pathlib.Path, paths: Iterable[str]
) -> dict[str, Stamp]:
    """Downloads files of a commit, each atomically; returns their stamps."""

    def download(path: str) -> tuple[str, Stamp]:
        return path, _download(store, commit, directory, path)

    with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
        return dict(pool.map(download, paths))


def _download(
    store: Store, commit: Commit, directory: pathlib.Path, path: str
) -> Stamp:
    stored, target = commit.files[path], directory / path
    handle, name = tempfile.mkstemp(dir=directory / OWN_DIR)
    os.close(handle)
    partial = pathlib.Path(name)
    try:
        store.download(stored.object, partial)
        if not is_intact(partial, stored):
            raise BucketError(
                f"{stored.object} in {store.url} is damaged: its digest differs from "
                f"commit {commit.number}, so something else wrote it; restore it from "
                "a copy, or use another workdir"
            )
        os.utime(partial, ns=(stored.mtime_ns, stored.mtime_ns))
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return stamp_of(target)


def _remove_empty_folders(directory: pathlib.Path) -> None:
    """Removes empty folders and orbax's half-written ones, which look like steps."""
    for folder, _, _ in os.walk(directory, topdown=False):
        path = pathlib.Path(folder)
        if "orbax-checkpoint-tmp" in path.name:
            shutil.rmtree(path, ignore_errors=True)
        elif path != directory and path.name != OWN_DIR and not any(path.iterdir()):
            path.rmdir()
