"""Digests of a checkpoint's files: taken once it is complete, checked on reading.

    checkpoints/train/digests/100/0.json     {"state/manifest.ocdbt": "sha256:9f2c..."}

Arrays on disk carry no digest, so a flipped bit would silently change a weight. Each of
several processes computes, and later checks, the digests of a share of the files. A
checkpoint without digests is read unchecked; it lacks them if the process was killed
right after saving.
"""

import json
import pathlib
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from job_jax import processes
from job_jax.files import checkpoint_steps, digest_of, write_json

Item = TypeVar("Item")

DIGESTS = "digests"


class DigestRecorder:
    """Computes digests of a stage's new checkpoints while the job continues."""

    def __init__(self, directory: pathlib.Path):
        if processes.is_primary():
            _forget_removed(directory)  # a step saved again will have other digests
        self._directory = directory
        self._known: set[int] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="digests")
        self._under_way: list[Future[None]] = []

    def record(self) -> None:
        """Starts on complete checkpoints that have no digests yet."""
        steps = set(checkpoint_steps(self._directory))
        for step in sorted(steps - self._known):
            self._under_way.append(self._thread.submit(_record, self._directory, step))
        self._known = steps

    def wait(self) -> None:
        """Waits until all digests are written. Raises OSError if one could not be."""
        under_way, self._under_way = self._under_way, []
        for each in under_way:
            each.result()


def find_damage(directory: pathlib.Path, step: int) -> str | None:
    """Returns a file of this process's share that has changed since saving, or None.

    A digest file that cannot be read counts as changed, too.
    """
    folder = directory / DIGESTS / str(step)
    recorded: dict[str, str] = {}
    for part in sorted(folder.glob("*.json")):
        try:
            recorded |= json.loads(part.read_bytes())
        except (TypeError, ValueError):
            return f"../{DIGESTS}/{step}/{part.name}"
    for path in _share(sorted(recorded)):
        file = directory / str(step) / path
        if not file.is_file() or digest_of(file) != recorded[path]:
            return path
    return None


def set_aside_damaged(directory: pathlib.Path) -> set[int]:
    """Renames damaged checkpoints, newest first, until one is intact.

    Prints a line for each. Returns the newest one that is left, if any. All processes
    call it together.
    """
    steps = processes.broadcast(lambda: checkpoint_steps(directory))
    while steps:
        step = steps.pop()
        found = processes.all_gather_json(find_damage(directory, step))
        damaged = [path for path in found if path]
        if not damaged:
            return {step}
        if processes.is_primary():
            aside = directory / f"damaged-{step}"
            shutil.rmtree(aside, ignore_errors=True)
            (directory / str(step)).rename(aside)
            shutil.rmtree(directory / DIGESTS / str(step))
            before = f"from {steps[-1]}" if steps else "from the beginning"
            print(
                f"checkpoint {directory}/{step} is damaged: {damaged[0]} has changed "
                f"since it was written; it is now {aside.name}, and the run continues "
                f"{before}",
                file=sys.stderr,
            )
        processes.barrier()
    return set()


def _record(directory: pathlib.Path, step: int) -> None:
    """Writes the digests of this process's share, unless the step was removed."""
    folder = directory / str(step)
    target = directory / DIGESTS / str(step) / f"{processes.process_index()}.json"
    if target.is_file():
        return
    files = sorted(p.relative_to(folder) for p in folder.rglob("*") if p.is_file())
    try:
        digests = {str(path): digest_of(folder / path) for path in _share(files)}
    except FileNotFoundError:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    write_json(target, digests)
    _forget_removed(directory)


def _forget_removed(directory: pathlib.Path) -> None:
    """Removes the digests of checkpoints that are gone."""
    kept = {str(step) for step in checkpoint_steps(directory)}
    for old in (directory / DIGESTS).glob("*"):
        if old.name not in kept:
            shutil.rmtree(old, ignore_errors=True)


def _share(paths: Sequence[Item]) -> Sequence[Item]:
    """Returns the share of the paths that this process reads."""
    return paths[processes.process_index() :: processes.process_count()]
