"""Keeps standard output and error usable after their reader has gone."""

import io
import os
import stat
import sys
from typing import Self


class _LastingStream(io.TextIOWrapper):
    """Standard output or error whose terminal or reader may go away.

    After that, output is dropped and the work continues. Failing to write to a file, on
    a full disk say, is still an error.
    """

    @classmethod
    def of(cls, stream: io.TextIOWrapper) -> Self:
        """Flushes `stream` and returns a stream with its target and settings."""
        lasting = cls(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        try:
            stream.flush()
        except OSError:
            if lasting._is_file():
                raise
            lasting._drop()
        return lasting

    def write(self, text: str, /) -> int:
        """Writes text, or drops it if the reader has gone."""
        try:
            return super().write(text)
        except OSError:
            if self._is_file():
                raise
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Flushes written text, or drops it if the reader has gone."""
        try:
            super().flush()
        except OSError:
            if self._is_file():
                raise
            self._drop()

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)

    def _drop(self) -> None:
        """Redirects all further output to /dev/null."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def keep_output_going() -> None:
    """Keeps the process running when the reader of its output or its terminal closes.

    Streams that something else, such as a notebook, has replaced are left alone.
    """
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _LastingStream.of(sys.stdout)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _LastingStream.of(sys.stderr)
