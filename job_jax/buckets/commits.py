"""Commits: one small object says which objects are the files of a workdir.

    objects/00000007-3fa9c1/metrics.jsonl     written once, never changed
    commits/00000007.json                     names the objects of all files

A bucket cannot rename, so no object is ever overwritten. Changed files go to new
objects; then the commit with the next number is created, which fails if that number
exists. A reader takes the highest number, so it sees either the previous commit or the
new one, each complete.
"""

import dataclasses
import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from job_jax.buckets.store import BucketError, ObjectExistsError, Store

COMMITS, OBJECTS = "commits", "objects"


class TakenOverError(BucketError):
    """Another run has taken over the bucket, so this one can no longer commit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a commit: where its bytes are, and how to verify them."""

    object: str
    size: int  # bytes
    digest: str  # "sha256:" or "md5:", and the digest in hex
    mtime_ns: int  # of the original file on disk


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commit:
    """All files of a workdir at one moment. Number 0 means: no commit exists yet."""

    number: int
    owner: str  # which process made it, for people to read
    files: Mapping[str, StoredFile]  # by path in the workdir

    def to_json(self) -> dict[str, Any]:
        """Returns the commit as plain JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Commit":
        """Returns the commit that `to_json` wrote."""
        files = {path: StoredFile(**each) for path, each in data["files"].items()}
        return cls(number=data["number"], owner=data["owner"], files=files)


def describe_owner() -> str:
    """Returns a readable name of this process: process id, host and time."""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()}, {now}"


def read_newest(store: Store) -> Commit:
    """Returns the newest commit, or number 0 without files if there is none."""
    for _ in range(5):
        names = store.list(COMMITS)
        if not names:
            return Commit(number=0, owner="", files={})
        try:
            data = store.read(names[-1])
        except BucketError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue  # a newer commit replaced it after we listed
            raise
        try:
            return Commit.from_json(json.loads(data))
        except (KeyError, TypeError, ValueError) as error:
            raise BucketError(
                f"{names[-1]} in {store.url} is not a commit that this version can "
                f"read ({error}); use another --workdir"
            ) from error
    raise BucketError(
        f"{store.url}: every commit was removed before it could be read, because "
        "another run commits quickly; try again"
    )


def add_commit(store: Store, commit: Commit) -> None:
    """Makes a commit that follows the newest. Raises TakenOverError if it does not.

    It lists the commits again afterwards: if another run has used this number and then
    removed it, creating it a second time would succeed. If the answer to a request was
    lost, the store's library repeats it and finds the commit that it made itself.
    """
    name = _name(commit.number)
    data = json.dumps(commit.to_json(), indent=1).encode()
    try:
        store.create(name, data)
    except ObjectExistsError as error:
        if not _has_content(store, name, data):
            raise taken_over(store) from error
    if store.list(COMMITS)[-1] != name:
        store.remove([name])
        raise taken_over(store)


def _has_content(store: Store, name: str, data: bytes) -> bool:
    try:
        return store.read(name) == data
    except BucketError:  # removed meanwhile, by another run
        return False


def taken_over(store: Store) -> TakenOverError:
    """Returns the error for a bucket whose newest commit is another run's."""
    newest = read_newest(store)
    return TakenOverError(
        f"{store.url} was taken over by another run ({newest.owner}), which made "
        f"commit {newest.number}; of two runs in one workdir only the later continues, "
        "so this one stops: give it another --workdir"
    )


def remove_unnamed(store: Store, newest: Commit) -> None:
    """Removes older commits, and objects that the newest commit does not name.

    Only the owner of the newest commit may call it. It is safe, because no other run's
    uploads can be committed any more.
    """
    named = {each.object for each in newest.files.values()}
    old = [name for name in store.list(COMMITS) if name < _name(newest.number)]
    store.remove([*old, *(n for n in store.list(OBJECTS) if n not in named)])


def remove_replaced(store: Store, before: Commit, after: Commit) -> None:
    """Removes the commit before `after`, and the objects that only it named."""
    named = {each.object for each in after.files.values()}
    gone = {each.object for each in before.files.values()} - named
    store.remove([_name(before.number), *sorted(gone)])


def _name(number: int) -> str:
    return f"{COMMITS}/{number:08d}.json"
