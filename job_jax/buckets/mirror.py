"""A job's staging directory, carried to its bucket commit by commit."""

import contextlib
import os
import pathlib
import secrets
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import NamedTuple, Self

from job_jax.buckets.commits import (
    OBJECTS,
    Commit,
    StoredFile,
    TakenOverError,
    add_commit,
    describe_owner,
    remove_replaced,
    remove_unnamed,
)
from job_jax.buckets.fetch import (
    NUM_TRANSFERS,
    OWN_DIR,
    LocalState,
    Stamp,
    local_files,
    stamp_of,
)
from job_jax.buckets.store import BucketError, Store, access_error
from job_jax.files import digest_of


class _Snapshot(NamedTuple):
    """The files at one moment: of each its stamp, and a copy of those that changed."""

    stamps: dict[str, Stamp]
    copies: dict[str, pathlib.Path]
    checkpoints: frozenset[str]  # that were complete


class Mirror:
    """Uploads what changes in `directory`, which holds a commit of `store` already.

    Used by one thread, at moments at which that writes no file: what it finds then is
    kept (checkpoints by hard links, all else by copies) and uploaded by another thread
    while the job goes on. As a context manager: on leaving, all is uploaded, however
    the job ended.
    """

    def __init__(self, store: Store, directory: pathlib.Path):
        self.url = store.url
        self.directory = directory
        self._store = store
        self._state = LocalState(directory)
        assert self._state.commit is not None, f"{directory} holds no commit"
        self._first_number = self.commit.number
        self._is_claimed = False
        self._is_failed = False
        self._seen = self._checkpoints()
        self._uploader = ThreadPoolExecutor(1, thread_name_prefix="bucket")
        self._upload: Future[None] | None = None

    @property
    def commit(self) -> Commit:
        """Returns the newest commit that this mirror knows of."""
        assert self._state.commit is not None
        return self._state.commit

    def claim(self) -> None:
        """Makes a commit of no change: from here on no other run can commit.

        A run that had the bucket before finds that out at its next commit. What its
        uploads, or those of a killed one, left there is removed. Raises
        BucketAccessError where nothing can be written.
        """
        if self._is_claimed:
            return
        before = self.commit
        claim = Commit(
            number=before.number + 1, owner=describe_owner(), files=before.files
        )
        try:
            add_commit(self._store, claim)
        except TakenOverError:
            self._is_failed = True
            raise
        except BucketError as error:
            self._is_failed = True
            raise access_error(self.url, error) from error
        self._state.save(claim, self._state.stamps)
        self._is_claimed = True
        with self._untidy():
            remove_unnamed(self._store, claim)

    def publish_checkpoint(self) -> None:
        """Starts uploading if a checkpoint was completed since, and none is under way.

        Cheap enough to be called after every step. Raises BucketError if the upload
        before has failed.
        """
        if self._upload and not self._upload.done():
            return
        if (found := self._checkpoints()) != self._seen:
            self._seen = found
            self.publish()

    def publish(self) -> None:
        """Starts uploading what has changed, once the upload before has ended.

        Raises BucketError if that has failed.
        """
        self.wait()
        self._upload = self._uploader.submit(self._commit, self._take_snapshot())

    def share(self) -> None:
        """Starts uploading; every process sees all files so far when this returns.

        All processes call it together. Raises BucketError.
        """
        self.publish()

    def drop_checkpoints(self, stage: str) -> None:
        """Leaves a stage's checkpoints so far, once removed, out of the next commit."""

    def wait(self) -> None:
        """Returns when the upload under way is committed. Raises BucketError."""
        if self._upload:
            upload, self._upload = self._upload, None
            upload.result()

    def __enter__(self) -> Self:
        """Returns the mirror itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Uploads what has changed; if the job failed, as far as that can be done.

        Nothing if the process was told to end at once.
        """
        try:
            if not self._is_failed and isinstance(error, Exception | None):
                with contextlib.nullcontext() if error is None else self._said():
                    self.publish()
                    self.wait()
        finally:
            self._uploader.shutdown()
        if self.commit.number != self._first_number:
            files = len(self.commit.files)
            print(
                f"{self.url}: commit {self.commit.number}, {files} files",
                file=sys.stderr,
            )

    @contextlib.contextmanager
    def _said(self) -> Iterator[None]:
        """Turns a failed upload into a line: what ended the job counts for more."""
        try:
            yield
        except BucketError as error:
            print(f"bucket: {error}", file=sys.stderr)

    @contextlib.contextmanager
    def _untidy(self) -> Iterator[None]:
        """Lets removing fail: the next run that claims the bucket does it again."""
        try:
            yield
        except BucketError as error:
            print(f"bucket: {error}; what is not needed stays there", file=sys.stderr)

    def _checkpoints(self) -> frozenset[str]:
        found = self.directory.glob("checkpoints/*/*")
        return frozenset(str(path) for path in found if path.name.isdigit())

    def _mirrored_files(self) -> list[str]:
        return local_files(self.directory)

    def _unmirrored_files(self, checkpoints: frozenset[str]) -> dict[str, StoredFile]:
        """Returns what the next commit names beside the snapshot's files."""
        return {}

    def _take_snapshot(self) -> _Snapshot:
        """Keeps the files of this moment from what the job does to them next.

        Complete checkpoints are never written again, only removed: a link is enough.
        """
        folder = self.directory / OWN_DIR / "snapshot"
        shutil.rmtree(folder, ignore_errors=True)
        snapshot = _Snapshot({}, {}, self._checkpoints())
        for path in self._mirrored_files():
            source, copy = self.directory / path, folder / path
            stamp = stamp_of(source)
            snapshot.stamps[path] = stamp
            if self._state.stamps.get(path) == stamp and path in self.commit.files:
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.startswith("checkpoints/"):
                os.link(source, copy)
            else:
                shutil.copyfile(source, copy)
            snapshot.copies[path] = copy
        return snapshot

    def _commit(self, snapshot: _Snapshot) -> None:
        """Uploads a snapshot's copies and makes the commit that names them."""
        before = self.commit
        try:
            number = before.number + 1
            folder = f"{OBJECTS}/{number:08d}-{secrets.token_hex(3)}"
            with ThreadPoolExecutor(NUM_TRANSFERS) as pool:
                changed = dict(
                    pool.map(
                        lambda path: (path, self._store_file(path, snapshot, folder)),
                        snapshot.copies,
                    )
                )
            files = {p: changed.get(p) or before.files[p] for p in snapshot.stamps}
            files |= self._unmirrored_files(snapshot.checkpoints)
            if files == before.files:
                return
            after = Commit(number=number, owner=describe_owner(), files=files)
            add_commit(self._store, after)
            self._state.save(after, snapshot.stamps)
        except TakenOverError:
            self._is_failed = True
            raise
        except BucketError as error:
            self._is_failed = True
            raise BucketError(
                f"{error}; all that is done is in {self.directory}: mend that, run "
                "the same command again on this machine, and it goes on from there"
            ) from error
        finally:
            shutil.rmtree(self.directory / OWN_DIR / "snapshot", ignore_errors=True)
        with self._untidy():
            remove_replaced(self._store, before, after)

    def _store_file(self, path: str, snapshot: _Snapshot, folder: str) -> StoredFile:
        """Returns where a file's bytes are, uploaded unless they are there already."""
        copy, before = snapshot.copies[path], self.commit.files.get(path)
        digest, name = digest_of(copy), f"{folder}/{path}"
        if before and before.digest == digest:
            name = before.object
        else:
            self._store.upload(name, copy)
        return StoredFile(
            object=name,
            size=copy.stat().st_size,
            digest=digest,
            mtime_ns=snapshot.stamps[path][1],
        )
