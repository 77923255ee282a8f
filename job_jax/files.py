"""Files that are written whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a path beside `path` to write to; on leaving, it replaces `path`.

    A reader sees the old file or the new one, and a process killed meanwhile leaves the
    old one. If the block raises, `path` stays as it is and what was written is removed.

    Example:
        with write_atomically("summary.json") as partial:
            partial.write_text("{}")
    """
    target = pathlib.Path(path)
    partial = target.with_name(f"{target.name}.partial")
    try:
        yield partial
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
