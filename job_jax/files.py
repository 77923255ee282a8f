"""Files written atomically, their digests, and the steps that file names carry."""

import contextlib
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator

from job_jax.disk import name_file

_SAMPLE_BYTES, _NUM_SAMPLES = 1 << 16, 64  # for `fingerprint`


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary path to write to, which replaces `path` at the end.

    A reader sees the old file or the new one, and a process killed meanwhile leaves the
    old one. If the block raises, `path` stays as it is and the temporary file is
    removed. An OSError of a full disk names `path`. The file gets the process's usual
    permissions, even if the block's writer chooses others, as safetensors does.

    Example:
        with write_atomically("summary.json") as partial:
            partial.write_text("{}")
    """
    target = pathlib.Path(path)
    partial = target.with_name(f"{target.name}.partial")
    try:
        with name_file(target):
            partial.touch()
            mode = partial.stat().st_mode
            yield partial
            partial.chmod(mode)
            os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class DamagedFileError(OSError):
    """A file has changed since it was written. The message names it and the fix."""


@contextlib.contextmanager
def write_with_digest(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Writes as `write_atomically`, and then the file's SHA-256 to PATH.sha256.

    `sha256sum --check` can read PATH.sha256. A process killed between the two writes
    leaves a file without a digest, which is then read unchecked.
    """
    target = pathlib.Path(path)
    _digest_file(target).unlink(missing_ok=True)
    with write_atomically(target) as partial:
        yield partial
    with write_atomically(_digest_file(target)) as partial:
        hexadecimal = digest_of(target).partition(":")[2]
        partial.write_text(f"{hexadecimal}  {target.name}\n")


def check_digest(path: str | os.PathLike[str]) -> None:
    """Raises DamagedFileError if a file differs from what `write_with_digest` wrote."""
    target = pathlib.Path(path)
    recorded = _digest_file(target)
    if recorded.is_file() and recorded.read_bytes().split()[:1] != [
        digest_of(target).partition(":")[2].encode()
    ]:
        raise DamagedFileError(
            f"{target} is damaged: it does not match {recorded.name}; replace it with "
            f"a copy, or, if you changed it yourself, remove {recorded.name}"
        )


def remove_with_digest(path: pathlib.Path) -> None:
    """Removes a file and its digest, if they exist."""
    _digest_file(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _digest_file(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.sha256")


def write_json(path: str | os.PathLike[str], value: object) -> None:
    """Writes `value` as JSON to `path`, atomically."""
    with write_atomically(path) as partial:
        partial.write_text(json.dumps(value, indent=2) + "\n")


def latest_step(directory: pathlib.Path) -> int | None:
    """Returns the step of the newest complete checkpoint, or None.

    Orbax names a checkpoint's folder by its step only once it is complete.
    """
    return max(checkpoint_steps(directory), default=None)


def checkpoint_steps(directory: pathlib.Path) -> list[int]:
    """Returns the steps of all complete checkpoints, sorted."""
    return sorted(int(p.name) for p in directory.glob("*") if p.name.isdigit())


def digest_of(path: pathlib.Path, kind: str = "sha256") -> str:
    """Returns a file's digest with its kind in front, such as "sha256:9f2c..."."""
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Returns a hash of a file's size and of 64 samples of 64 KiB.

    It reads only a little of a file of many gigabytes, and yet trained weights differ
    from the weights they started from, since training changes most of them. A smaller
    file is hashed whole.
    """
    size = os.path.getsize(path)
    digest = hashlib.sha256(str(size).encode())
    step = max(_SAMPLE_BYTES, size // _NUM_SAMPLES)
    with open(path, "rb") as file:
        for start in range(0, size, step):
            file.seek(start)
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()
