"""The bucket of a run of several processes, none of which sees the others' disks.

Each process has a staging directory of its own. Process 0 carries its files to the
bucket as a run of one process does; the others fetch them from its commits. Checkpoints
come from all at once and go straight to the bucket: below

    objects/00000005-3fa9c1/checkpoints/train/100/

orbax writes each process's shards, and commit_success.txt last; process 0's next commit
names what it finds there. Only then does a checkpoint count: where a run is killed in
between, the commit before stands, and the objects go as all that no commit names.
"""

import pathlib
import re
import secrets
import time
from collections.abc import Collection, Mapping
from typing import TypeVar

from job_jax import processes
from job_jax.buckets.commits import OBJECTS, StoredFile, taken_over
from job_jax.buckets.fetch import LocalState, download_files, fetch, local_files
from job_jax.buckets.mirror import Mirror
from job_jax.buckets.store import Store

CHECKPOINTS = "checkpoints"
_COMPLETE = "commit_success.txt"  # which orbax puts last where it cannot rename
_STEP = re.compile(rf"{CHECKPOINTS}/([^/]+)/(\d+)/")

Value = TypeVar("Value")


class JointMirror(Mirror):
    """Carries the files of a run of several processes; each process has one.

    Methods that are `Mirror`'s do nothing in processes other than the first, but for
    `claim` and `share`, which all call together.
    """

    def __init__(self, store: Store, directory: pathlib.Path):
        self._folder = ""  # of this run's checkpoints, from `claim` on
        self._begun: set[str] = set()  # such as checkpoints/train/100
        self._named: set[str] = set()  # those of them that a commit names
        self._dropped: set[str] = set()  # objects
        self._max_to_keep: dict[str, int] = {}  # by stage
        super().__init__(store, directory)

    def claim(self) -> None:
        """Makes a commit of no change, which all processes then have. Raises."""
        if self._folder:
            return
        if processes.is_primary():
            super().claim()
        name = f"{self.commit.number:08d}-{secrets.token_hex(3)}"
        self._folder = processes.broadcast(lambda: f"{OBJECTS}/{name}")
        self.share()

    def share(self) -> None:
        """Commits; every process sees the first one's files when this returns.

        Of checkpoints the newest of each stage. Raises BucketError.
        """
        if processes.is_primary():
            self.publish()
            self.wait()
        number = processes.broadcast(lambda: self.commit.number)
        if processes.is_primary():
            self._fetch_checkpoints()
        else:
            self._follow(number)
        processes.barrier()  # the next commit removes objects of this one

    def publish(self) -> None:
        """Starts uploading what has changed, as of one process."""
        if processes.is_primary():
            super().publish()

    def checkpoint_url(self, stage: str) -> str:
        """Returns where the processes write a stage's checkpoints."""
        assert self._folder, "the bucket has not been claimed"
        return f"{self.url}/{self._folder}/{CHECKPOINTS}/{stage}"

    def begin_checkpoint(self, stage: str, step: int, max_to_keep: int) -> None:
        """Takes note of a checkpoint that is being written to `checkpoint_url`."""
        self._begun.add(f"{CHECKPOINTS}/{stage}/{step}")
        self._max_to_keep[stage] = max_to_keep

    def drop_checkpoints(self, stage: str) -> None:
        """Leaves a stage's checkpoints so far out of the next commit."""
        files = self.commit.files
        folder = f"{CHECKPOINTS}/{stage}/"
        self._dropped |= {files[p].object for p in files if p.startswith(folder)}

    def _checkpoints(self) -> frozenset[str]:
        return frozenset(self._begun)

    def _mirrored_files(self) -> list[str]:
        """Returns the files but for checkpoints: on a disk those are copies."""
        files = local_files(self.directory)
        return [path for path in files if not path.startswith(f"{CHECKPOINTS}/")]

    def _unmirrored_files(self, checkpoints: frozenset[str]) -> dict[str, StoredFile]:
        """Returns the checkpoints of the next commit, each stage's newest.

        `checkpoints` were complete at the snapshot: later ones would be ahead of it.
        """
        files = {
            path: stored
            for path, stored in self.commit.files.items()
            if path.startswith(f"{CHECKPOINTS}/") and stored.object not in self._dropped
        }
        for step in sorted(checkpoints - self._named):
            if found := self._list_checkpoint(step):
                old = {path for path in files if path.startswith(f"{step}/")}
                files = {p: files[p] for p in files if p not in old} | found
                self._named.add(step)
        return newest_checkpoints(files, self._max_to_keep)

    def _list_checkpoint(self, step: str) -> dict[str, StoredFile]:
        """Returns the files of a checkpoint; none where a kill has cut it short."""
        folder = f"{self._folder}/{step}"
        found = self._store.list_digests(folder)
        if f"{folder}/{_COMPLETE}" not in found:
            return {}
        now = time.time_ns()
        return {
            name.removeprefix(f"{self._folder}/"): StoredFile(
                object=name, size=size, digest=f"md5:{md5}", mtime_ns=now
            )
            for name, (size, md5) in found.items()
        }

    def _fetch_checkpoints(self) -> None:
        """Makes the first process see the checkpoints that went past its disk."""
        missing = [
            path
            for path in needed_files(self.commit.files)
            if path.startswith(f"{CHECKPOINTS}/")
            and not (self.directory / path).exists()
        ]
        download_files(self._store, self.commit, self.directory, missing)

    def _follow(self, number: int) -> None:
        """Makes another process see what the first has committed. Raises BucketError.

        What this process alone has written stays.
        """
        commit = fetch(
            self._store,
            self.directory,
            lambda commit: needed_files(commit.files),
            keeps_unknown=True,
        )
        if commit.number != number:
            raise taken_over(self._store)
        self._state = LocalState(self.directory)
        self._first_number = number  # process 0 says what was committed


def needed_files(files: Collection[str]) -> list[str]:
    """Returns what a process needs of a commit: of checkpoints each stage's newest."""
    stages = {path.split("/")[1] for path in files if _STEP.match(path)}
    kept = newest_checkpoints(dict.fromkeys(files), dict.fromkeys(stages, 1))
    return list(kept)


def newest_checkpoints(
    files: Mapping[str, Value], max_to_keep: Mapping[str, int]
) -> dict[str, Value]:
    """Returns the files without checkpoints older than the newest N of their stage."""
    steps: dict[str, set[int]] = {}
    place = {path: found for path in files if (found := _STEP.match(path))}
    for found in place.values():
        steps.setdefault(found[1], set()).add(int(found[2]))
    kept = {
        stage: sorted(numbers)[-max_to_keep.get(stage, len(numbers)) :]
        for stage, numbers in steps.items()
    }
    return {
        path: value
        for path, value in files.items()
        if path not in place or int(place[path][2]) in kept[place[path][1]]
    }
