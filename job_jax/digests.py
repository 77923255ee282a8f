"""Digests of a checkpoint's files: taken once it is complete, compared on reading.

    checkpoints/train/digests/100/0.json     {"state/manifest.ocdbt": "sha256:9f2c..."}

Arrays on a disk carry no digest of their own: a flipped bit would be another weight. Of
several processes each takes the digests of a share of the files, and compares a share.
A checkpoint without digests, such as one whose process was killed right behind it, is
read as it is.
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
    """Takes digests of a stage's new checkpoints while the job goes on."""

    def __init__(self, directory: pathlib.Path):
        if processes.is_primary():
            _forget_removed(directory)  # a step that is made again has other digests
        self._directory = directory
        self._known: set[int] = set()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="digests")
        self._under_way: list[Future[None]] = []

    def record(self) -> None:
        """Begins with the checkpoints that are complete and have no digests yet."""
        steps = set(checkpoint_steps(self._directory))
        for step in sorted(steps - self._known):
            self._under_way.append(self._thread.submit(_record, self._directory, step))
        self._known = steps

    def wait(self) -> None:
        """Returns when all are written. Raises OSError where one could not be."""
        under_way, self._under_way = self._under_way, []
        for each in under_way:
            each.result()


def find_damage(directory: pathlib.Path, step: int) -> str | None:
    """Returns a file of this process's share that is not as it was written, or None.

    Digests that cannot be read are such a file too.
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
    """Renames the newest checkpoints while they are damaged, with a line for each.

    Returns the newest one that is left, if any. All processes call it together.
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
            before = f"from {steps[-1]}" if steps else "anew"
            print(
                f"checkpoint {directory}/{step} is damaged: {damaged[0]} is not what "
                f"was written; it is {aside.name} now, and the run goes on {before}",
                file=sys.stderr,
            )
        processes.barrier()
    return set()


def _record(directory: pathlib.Path, step: int) -> None:
    """Writes the digests of this process's share; nothing if the step is removed."""
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
    """Returns those that this process reads."""
    return paths[processes.process_index() :: processes.process_count()]
