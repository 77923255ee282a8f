"""Full or failing disks: checks for space, and errors as one line with a fix."""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator

# Error of the system -> what the user can do.
_MENDS = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EROFS: "make its file system writable",
    errno.EIO: "check its disk or its connection",
    errno.EMFILE: "allow more open files (ulimit -n)",
}
_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def name_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Adds `path` to a disk error raised in the block, as an OSError.

    A write to an open file raises an error without a file name, and other libraries
    wrap the system's message in their own exceptions. Other errors pass unchanged.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        if (number := _find_errno(error)) is None:
            raise
        raise OSError(number, os.strerror(number), os.fspath(path)) from error


def describe_failure(error: OSError) -> str:
    """Returns the file, the error, the free space if it is full, and a fix."""
    if error.errno not in _MENDS or error.filename is None:
        return str(error)
    free = f" ({_size(free_bytes(error.filename))} free)"
    return (
        f"{error.filename}: {error.strerror}{free if error.errno in _FULL else ''}; "
        f"{_MENDS[error.errno]}, then run the same command again"
    )


def free_bytes(path: str | os.PathLike[str]) -> int:
    """Returns the free bytes on the disk of a file that may not exist yet."""
    there = pathlib.Path(path).absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def used_bytes(path: pathlib.Path) -> int:
    """Returns the bytes of a file, or of all files below a directory; 0 for none."""
    sizes = 0
    for file in [path, *path.rglob("*")]:
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            sizes += file.stat().st_size if file.is_file() else 0
    return sizes


def describe_lack(path: pathlib.Path, needed: int) -> str | None:
    """Returns None if `needed` more bytes fit on the disk of `path`, else a message."""
    if (free := free_bytes(path)) >= needed:
        return None
    return f"the disk of {path} has {_size(free)} free, and {_size(needed)} are needed"


def _find_errno(error: BaseException | None) -> int | None:
    """Returns the errno in _MENDS of an exception or of one of its causes, or None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _MENDS:
            return error.errno
        for number in _MENDS:
            if os.strerror(number) in str(error):
                return number
        error = error.__cause__ or error.__context__
    return None


def _size(number: int) -> str:
    return f"{number / (1 << 20):,.1f} MiB"
