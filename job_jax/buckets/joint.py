"""Buckets for a run of several processes that cannot see each other's disks.

Each process has its own staging directory. Process 0 uploads its files as a run of one
process does, and the others fetch them from its commits. All processes write a
checkpoint together, straight to the bucket. Below

    objects/00000005-3fa9c1/checkpoints/train/100/

orbax writes each process's shards, and commit_success.txt last. Process 0's next commit
names the files it finds there, and only then does the checkpoint count. If the run is
killed before that, the previous commit stays valid, and the new objects are removed
like all objects that no commit names.
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
from job_jax.config import CheckpointConfig

CHECKPOINTS = "checkpoints"
_COMPLETE = "commit_success.txt"  # orbax writes it last where it cannot rename
_STEP = re.compile(rf"{CHECKPOINTS}/([^/]+)/(\d+)/")

Value = TypeVar("Value")


class JointMirror(Mirror):
    """Uploads the files of a run of several processes; each process has one.

    In every process but the first, the methods inherited from `Mirror` do nothing. The
    exceptions are `claim` and `share`, which all processes call together.
    """

    def __init__(self, store: Store, directory: pathlib.Path):
        self._folder = ""  # for this run's checkpoints; set by `claim`
        self._begun: set[str] = set()  # such as checkpoints/train/100
        self._named: set[str] = set()  # the begun ones that a commit names
        self._dropped: set[str] = set()  # objects
        self._configs: dict[str, CheckpointConfig] = {}  # by stage
        super().__init__(store, directory)

    def claim(self) -> None:
        """Makes a commit without changes, which all processes then hold. Raises."""
        if self._folder:
            return
        if processes.is_primary():
            super().claim()
        name = f"{self.commit.number:08d}-{secrets.token_hex(3)}"
        self._folder = processes.broadcast(lambda: f"{OBJECTS}/{name}")
        self.share()

    def share(self) -> None:
        """Commits; every process sees the first one's files when this returns.

        Each process gets only the newest checkpoint of each stage. Raises BucketError.
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
        """Starts uploading changes, as `Mirror.publish`, from process 0 alone."""
        if processes.is_primary():
            super().publish()

    def checkpoint_url(self, stage: str) -> str:
        """Returns where the processes write a stage's checkpoints."""
        assert self._folder, "the bucket has not been claimed"
        return f"{self.url}/{self._folder}/{CHECKPOINTS}/{stage}"

    def begin_checkpoint(self, stage: str, step: int, config: CheckpointConfig) -> None:
        """Records that a checkpoint is being written to `checkpoint_url`."""
        self._begun.add(f"{CHECKPOINTS}/{stage}/{step}")
        self._configs[stage] = config

    def drop_checkpoints(self, stage: str) -> None:
        """Leaves a stage's existing checkpoints out of the next commit."""
        files = self.commit.files
        folder = f"{CHECKPOINTS}/{stage}/"
        self._dropped |= {files[p].object for p in files if p.startswith(folder)}

    def _checkpoints(self) -> frozenset[str]:
        return frozenset(self._begun)

    def _mirrored_files(self) -> list[str]:
        """Returns the files except checkpoints, which are only copies on this disk."""
        files = local_files(self.directory)
        return [path for path in files if not path.startswith(f"{CHECKPOINTS}/")]

    def _unmirrored_files(self, checkpoints: frozenset[str]) -> dict[str, StoredFile]:
        """Returns the checkpoint files of the next commit, each stage's newest.

        `checkpoints` had begun when the snapshot was taken. Later ones are left out,
        because they would be ahead of the snapshot's files.
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
        return kept_checkpoints(files, self._configs)

    def _list_checkpoint(self, step: str) -> dict[str, StoredFile]:
        """Returns the files of a checkpoint, or none if a kill left it incomplete."""
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
        """Downloads to process 0 the checkpoints that were never on its disk."""
        missing = [
            path
            for path in needed_files(self.commit.files)
            if path.startswith(f"{CHECKPOINTS}/")
            and not (self.directory / path).exists()
        ]
        download_files(self._store, self.commit, self.directory, missing)

    def _follow(self, number: int) -> None:
        """Fetches process 0's commit into another process. Raises BucketError.

        Files that only this process has written stay.
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
        self._first_number = number  # process 0 alone reports commits


def needed_files(files: Collection[str]) -> list[str]:
    """Returns the files a process needs: each stage's newest checkpoint, all else."""
    stages = {path.split("/")[1] for path in files if _STEP.match(path)}
    newest = dict.fromkeys(stages, CheckpointConfig(max_to_keep=1))
    return list(kept_checkpoints(dict.fromkeys(files), newest))


def kept_checkpoints(
    files: Mapping[str, Value], configs: Mapping[str, CheckpointConfig]
) -> dict[str, Value]:
    """Returns the files, with only the checkpoints that each stage's config keeps."""
    steps: dict[str, set[int]] = {}
    place = {path: found for path in files if (found := _STEP.match(path))}
    for found in place.values():
        steps.setdefault(found[1], set()).add(int(found[2]))
    kept = {
        stage: configs[stage].choose_kept(numbers) if stage in configs else numbers
        for stage, numbers in steps.items()
    }
    return {
        path: value
        for path, value in files.items()
        if path not in place or int(place[path][2]) in kept[place[path][1]]
    }
