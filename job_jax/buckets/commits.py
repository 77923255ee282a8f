"""Commits: which objects are the files of a workdir, decided by one small object.

    objects/00000007-3fa9c1/metrics.jsonl     made once, never written again
    commits/00000007.json                     names the objects of all files

A bucket cannot rename, so nothing is written over. The files that changed go to new
objects; then the next number's commit is made, which fails if there is one. Whoever
reads takes the highest number: the commit before, or the new one, whole.
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
    """Another run works in the bucket since: this one can commit no more."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a commit: where its bytes are, and how to know them."""

    object: str
    size: int  # bytes
    digest: str  # "sha256:" or "md5:", and the digest in hex
    mtime_ns: int  # of the file on the disk it came from


@dataclasses.dataclass(frozen=True, kw_only=True)
class Commit:
    """All files of a workdir at one moment. Number 0: none was made yet."""

    number: int
    owner: str  # who made it, for people
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
    """Returns this process for people: host, process and time."""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return f"process {os.getpid()} on {socket.gethostname()}, {now}"


def read_newest(store: Store) -> Commit:
    """Returns the newest commit; number 0 without files where there is none."""
    for _ in range(5):
        names = store.list(COMMITS)
        if not names:
            return Commit(number=0, owner="", files={})
        try:
            data = store.read(names[-1])
        except BucketError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                continue  # a newer one is there, and this one was removed
            raise
        try:
            return Commit.from_json(json.loads(data))
        except (KeyError, TypeError, ValueError) as error:
            raise BucketError(
                f"{names[-1]} in {store.url} is no commit of this version ({error})"
            ) from error
    raise BucketError(f"the commits in {store.url} go before they can be read")


def add_commit(store: Store, commit: Commit) -> None:
    """Makes a commit that follows the newest. Raises TakenOverError if it does not.

    Looked at again behind it: a number that another run has used and removed since
    could be made a second time.
    """
    name = _name(commit.number)
    data = json.dumps(commit.to_json(), indent=1).encode()
    try:
        store.create(name, data)
    except ObjectExistsError as error:
        raise taken_over(store) from error
    if store.list(COMMITS)[-1] != name:
        store.remove([name])
        raise taken_over(store)


def taken_over(store: Store) -> TakenOverError:
    """Returns what to say of a bucket whose newest commit is another run's."""
    newest = read_newest(store)
    return TakenOverError(
        f"{store.url} was taken over by another run ({newest.owner}): commit "
        f"{newest.number} is not of this one, which stops; of two runs in one workdir "
        "the later goes on, so give this one another --workdir"
    )


def remove_unnamed(store: Store, newest: Commit) -> None:
    """Removes what the newest commit does not need: older commits, other objects.

    For the owner of the newest commit alone: uploads for a commit of any other can
    never be committed.
    """
    named = {each.object for each in newest.files.values()}
    old = [name for name in store.list(COMMITS) if name < _name(newest.number)]
    store.remove([*old, *(n for n in store.list(OBJECTS) if n not in named)])


def remove_replaced(store: Store, before: Commit, after: Commit) -> None:
    """Removes a commit that `after` follows, and the objects that only it named."""
    named = {each.object for each in after.files.values()}
    gone = {each.object for each in before.files.values()} - named
    store.remove([_name(before.number), *sorted(gone)])


def _name(number: int) -> str:
    return f"{COMMITS}/{number:08d}.json"
