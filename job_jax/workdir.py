"""The files that every job keeps: config.json, checkpoints/, summary.json."""

import atexit
import contextlib
import fcntl
import importlib.metadata
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from job_jax import DISTRIBUTION
from job_jax.buckets import close_workdir, describe_owner, mirror_of
from job_jax.config_io import SectionT, diff, from_record, keep_earlier_values, to_json
from job_jax.files import write_json
from job_jax.machine import cpu_name
from job_jax.processes import (
    all_gather_json,
    barrier,
    broadcast,
    is_primary,
    process_count,
)
from job_jax.schema import ConfigError, ConfigSection

SUMMARY_FILE = "summary.json"
LOCK_FILE = ".lock"  # held by the process that uses the workdir; contains its name

_SHARED_FILE_TRIES, _SHARED_FILE_WAIT_S = 20, 0.25

_LIBRARIES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")


_locks: dict[pathlib.Path, int] = {}  # open files of this process, by directory


class WorkdirError(ConfigError):
    """A workdir that cannot be used. The message names it and the fix."""


class Workdir:
    """One job's directory.

    Opening it fails if the directory cannot be written or holds a job with another
    config. A job is recorded in it only after all other checks, so a refused job leaves
    nothing behind that would block the corrected one. `mutable_sections` ("mesh.",
    "log.") determine how a job runs and is watched, not its results, so they may change
    when it resumes. Only process 0 writes. All processes must see the same directory,
    unless it belongs to a bucket. Without `writes` it is only checked, for a plan.
    """

    def __init__(
        self,
        path: pathlib.Path,
        config: ConfigSection,
        *,
        mutable_sections: tuple[str, ...],
        subdirectories: tuple[str, ...] = (),
        writes: bool = True,
    ):
        self.path = path
        self._mutable_sections = mutable_sections
        self._mirror = mirror_of(path)  # None: an ordinary directory
        if not writes:
            self._check_recorded(config)
            return
        if is_primary():
            self._prepare(config, subdirectories)
        _check_same_bucket(self._mirror.url if self._mirror else None)
        if not self._mirror:
            check_shared(path)

    def _prepare(self, config: ConfigSection, subdirectories: tuple[str, ...]) -> None:
        path = self.path
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not self._mirror:
                _lock(path)
            for folder in subdirectories:
                (path / folder).mkdir(exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise WorkdirError(
                f"workdir {path} cannot be written ({error.strerror}); choose another "
                "with --workdir"
            ) from error
        self._check_recorded(config)

    def _check_recorded(self, config: ConfigSection) -> None:
        """Raises WorkdirError unless a job with `config` may use the directory."""
        if self.path.exists() and not self.path.is_dir():
            raise WorkdirError(f"workdir {self.name} is a file; name a directory")
        if self.has_config:
            saved = _read_config(self.config_path, type(config))
            self._check_config(saved, keep_earlier_values(saved, config))

    def resume_config(self, config: SectionT) -> SectionT:
        """Returns the config with which the job here continues."""
        if not self.has_config:
            return config
        return keep_earlier_values(_read_config(self.config_path, type(config)), config)

    def _find_changes(self, saved: ConfigSection, config: ConfigSection) -> list[str]:
        """Returns the differences in fields that must not change."""
        lines = diff(saved, config)
        return [line for line in lines if not line.startswith(self._mutable_sections)]

    def _check_config(self, saved: ConfigSection, config: ConfigSection) -> None:
        """Raises WorkdirError unless the job here may continue with `config`."""
        if changed := self._find_changes(saved, config):
            raise WorkdirError(
                f"workdir {self.name} holds a run of another config "
                f"({'; '.join(changed)}); {self.fix_other_config(changed)}"
            )

    def fix_other_config(self, changed: Sequence[str]) -> str:
        """Returns what to do about a directory that holds a job with another config.

        `changed` has the differences, each beginning with the field's name.
        """
        return "use another --workdir, or the config it was made with"

    @property
    def name(self) -> str:
        """Returns the name that the user gave: a directory, or a bucket's address."""
        return self._mirror.url if self._mirror else str(self.path)

    @contextlib.contextmanager
    def mirrored(self) -> Iterator[None]:
        """Uploads the directory to its bucket, if it has one; completes that on exit.

        Afterwards another process may work in the directory. Raises BucketError.
        """
        try:
            with self._mirror or contextlib.nullcontext():
                yield
        finally:
            if self._mirror:
                close_workdir(self.path)
            else:
                _unlock(self.path)

    def claim(self) -> None:
        """Keeps other runs from committing to the bucket. Raises BucketAccessError."""
        if self._mirror:
            self._mirror.claim()

    def share(self) -> None:
        """Returns once every process sees the files that process 0 has written so far.

        All processes call it together. If there is a bucket, the changes are then being
        uploaded. Raises BucketError.
        """
        if self._mirror:
            self._mirror.share()
        else:
            barrier()

    def remove_checkpoints(self, stage: str) -> None:
        """Removes a stage's checkpoints."""
        shutil.rmtree(self.checkpoints / stage, ignore_errors=True)
        if self._mirror:
            self._mirror.drop_checkpoints(stage)

    @property
    def after_step(self) -> Callable[[], None] | None:
        """Returns the function that uploads a new checkpoint, or None without a bucket.

        That function raises BucketError.
        """
        return self._mirror.publish_checkpoint if self._mirror else None

    @property
    def has_config(self) -> bool:
        """Returns whether a job has been recorded here."""
        return self.config_path.exists()

    def write_config(
        self,
        config: ConfigSection,
        *,
        device: str,
        more: Mapping[str, object] | None = None,
    ) -> None:
        """Writes config.json, including `more`, unless an earlier attempt has."""
        if is_primary() and not self.has_config:
            write_json(self.config_path, {**provenance(config, device), **(more or {})})

    @property
    def config_path(self) -> pathlib.Path:
        """Returns the path of the job's config.json."""
        return self.path / "config.json"

    @property
    def checkpoints(self) -> pathlib.Path:
        """Returns the directory with a directory of checkpoints for each stage."""
        return self.path / "checkpoints"

    def read_summary(self) -> dict[str, Any]:
        """Returns the current summary.json, {} before the first stage has ended."""
        path = self.path / SUMMARY_FILE
        return json.loads(path.read_text()) if path.exists() else {}

    def update_summary(self, values: Mapping[str, object]) -> None:
        """Writes summary.json with these values merged in, section by section."""
        if is_primary():
            merged = _deep_merge(self.read_summary(), values)
            write_json(self.path / SUMMARY_FILE, merged)


def _lock(path: pathlib.Path) -> None:
    """Locks the directory until this process ends or releases it.

    The system releases the lock of a killed process. Raises WorkdirError if another
    process works there. If the file system has no locks, it prints a warning.
    """
    if path.resolve() in _locks:
        return
    file = path / LOCK_FILE
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.read(lock, 200).decode().strip() or "an unknown process"
            os.close(lock)
            raise WorkdirError(
                f"workdir {path} is in use by {owner}; wait for it, or choose another "
                "with --workdir"
            ) from error
        except OSError as error:
            os.close(lock)
            print(
                f"workdir {path} cannot be locked ({error.strerror}); make sure that "
                "no other run uses it",
                file=sys.stderr,
            )
            return
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), file.stat()):
                break
        os.close(lock)  # its owner was just removing the file: try again
    os.ftruncate(lock, 0)
    os.write(lock, f"{describe_owner()}\n".encode())
    _locks[path.resolve()] = lock
    atexit.register(_unlock, path.resolve())


def _unlock(path: pathlib.Path) -> None:
    """Releases the directory and removes the lock file."""
    if (lock := _locks.pop(path.resolve(), None)) is not None:
        (path / LOCK_FILE).unlink(missing_ok=True)
        os.close(lock)


def _check_same_bucket(url: str | None) -> None:
    """Raises WorkdirError unless every process was given the same address."""
    first, *others = all_gather_json(url)
    for number, other in enumerate(others, start=1):
        if other != first:
            raise WorkdirError(
                f"process {number} works in {other or 'a directory'}, and process 0 in "
                f"{first or 'a directory'}; start all with the same --workdir"
            )


def check_shared(path: pathlib.Path) -> None:
    """Raises WorkdirError unless every process sees process 0's directory."""
    if process_count() == 1:
        return
    mark = path / broadcast(lambda: f".seen-by-all-{os.getpid()}-{time.time_ns()}")
    if is_primary():
        mark.touch()
    barrier()
    tries = 0
    # A network file system may show a new file late.
    while not mark.exists() and (tries := tries + 1) <= _SHARED_FILE_TRIES:
        time.sleep(_SHARED_FILE_WAIT_S)
    blind = [
        str(i) for i, sees in enumerate(all_gather_json(mark.exists())) if not sees
    ]
    if is_primary():
        mark.unlink()
    if blind:
        raise WorkdirError(
            f"workdir {path} is not the same directory in all processes: "
            f"process {', '.join(blind)} does not see the files of process 0; use "
            "one on a shared file system"
        )


def _deep_merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `old` updated with `new`; sections in both are merged recursively."""
    both = {**old, **new}
    for name in old.keys() & new.keys():
        if isinstance(old[name], Mapping) and isinstance(new[name], Mapping):
            both[name] = _deep_merge(old[name], new[name])
    return both


def _read_config(record: pathlib.Path, config_class: type[SectionT]) -> SectionT:
    try:
        return from_record(config_class, record)
    except ValueError as error:
        raise WorkdirError(
            f"{record} is not a config that this version can read ({error}); use "
            "another --workdir"
        ) from error


def provenance(config: ConfigSection, device: str) -> dict[str, Any]:
    """Returns every job's part of config.json: config, machine, versions, commit, date.

    `started` is the date in UTC.
    """
    return {
        "config": to_json(config),
        "seed": vars(config)["seed"],
        "device": device,
        "cpu": cpu_name(),
        "started": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": {
            "python": platform.python_version(),
            **{
                name: importlib.metadata.version(name)
                for name in (DISTRIBUTION, *_LIBRARIES)
            },
        },
        "git_commit": _git_commit(),
    }


def _git_commit() -> str | None:
    """Returns the commit of the source tree; None without a repository or git."""
    source = pathlib.Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(source), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return found.stdout.strip() or None
