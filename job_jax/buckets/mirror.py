"""Uploads a job's staging directory to its bucket, commit by commit."""

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
    """The files at one moment: a stamp for each, and a copy of each changed one."""

    stamps: dict[str, Stamp]
    copies: dict[str, pathlib.Path]
    checkpoints: frozenset[str]  # complete at that moment


class Mirror:
    """Uploads changes in `directory`, which already holds a commit of `store`.

    One thread uses it, while it writes no files itself. The files of that moment are
    kept (checkpoints by hard links, the rest by copies), and another thread uploads
    them while the job continues. As a context manager, it uploads everything on exit,
    however the job ended.
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
        """Makes a commit without changes; from then on no other run can commit.

        A run that used the bucket before learns of it at its next commit. Objects that
        it, or a killed run, left uncommitted are removed. Raises BucketAccessError if
        nothing can be written.
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
        """Starts uploading if there is a new checkpoint and no upload is running.

        It is cheap enough to call after every step. Raises BucketError if the previous
        upload failed.
        """
        if self._upload and not self._upload.done():
            return
        if (found := self._checkpoints()) != self._seen:
            self._seen = found
            self.publish()

    def publish(self) -> None:
        """Starts uploading changes, once the previous upload has ended.

        Raises BucketError if the previous upload failed.
        """
        self.wait()
        self._upload = self._uploader.submit(self._commit, self._take_snapshot())

    def share(self) -> None:
        """Starts uploading; every process sees all files so far when this returns.

        All processes call it together. Raises BucketError.
        """
        self.publish()

    def drop_checkpoints(self, stage: str) -> None:
        """Does nothing here: removed files are not in the next commit anyway."""

    def wait(self) -> None:
        """Waits until the running upload is committed. Raises BucketError."""
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
        """Uploads changes; after a failure of the job, as far as possible.

        If the process must end at once (KeyboardInterrupt, say), uploads nothing.
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
        """Prints a failed upload: the error that ended the job matters more."""
        try:
            yield
        except BucketError as error:
            print(f"bucket: {error}", file=sys.stderr)

    @contextlib.contextmanager
    def _untidy(self) -> Iterator[None]:
        """Lets a removal fail: the next run that claims the bucket repeats it."""
        try:
            yield
        except BucketError as error:
            print(f"bucket: {error}; unneeded objects stay there", file=sys.stderr)

    def _checkpoints(self) -> frozenset[str]:
        found = self.directory.glob("checkpoints/*/*")
        return frozenset(str(path) for path in found if path.name.isdigit())

    def _mirrored_files(self) -> list[str]:
        return local_files(self.directory)

    def _unmirrored_files(self, checkpoints: frozenset[str]) -> dict[str, StoredFile]:
        """Returns files that the next commit names in addition to the snapshot's."""
        return {}

    def _take_snapshot(self) -> _Snapshot:
        """Saves the files of this moment before the job changes them.

        A complete checkpoint is never written again, only removed, so a link is enough.
        """
        folder = self.directory / OWN_DIR / "snapshot"
        shutil.rmtree(folder, ignore_errors=True)
        snapshot = _Snapshot({}, {}, self._checkpoints())
        for path in self._mirrored_files():
            # Digests of removed checkpoints are removed in the background.
            with contextlib.suppress(FileNotFoundError):
                self._add_to_snapshot(snapshot, path, folder / path)
        return snapshot

    def _add_to_snapshot(
        self, snapshot: _Snapshot, path: str, copy: pathlib.Path
    ) -> None:
        source = self.directory / path
        stamp = stamp_of(source)
        if self._state.stamps.get(path) != stamp or path not in self.commit.files:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.startswith("checkpoints/"):
                os.link(source, copy)
            else:
                shutil.copyfile(source, copy)
            snapshot.copies[path] = copy
        snapshot.stamps[path] = stamp

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
                f"{error}; all work so far is in {self.directory}: fix the cause and "
                "run the same command again on this machine to continue"
            ) from error
        finally:
            shutil.rmtree(self.directory / OWN_DIR / "snapshot", ignore_errors=True)
        with self._untidy():
            remove_replaced(self._store, before, after)

    def _store_file(self, path: str, snapshot: _Snapshot, folder: str) -> StoredFile:
        """Uploads a file unless its bytes are there already; returns where they are."""
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
