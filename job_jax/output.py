"""Standard output and error that outlive whoever reads them."""

import io
import os
import stat
import sys
from typing import Self


class _LastingStream(io.TextIOWrapper):
    """Standard output or error whose terminal or reader may go away.

    From then on what is said is lost, and the work goes on. A file that cannot be
    written, on a full disk say, is an error as ever.
    """

    @classmethod
    def of(cls, stream: io.TextIOWrapper) -> Self:
        """Returns one that writes where `stream` does, as it does, and behind it."""
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
        """Writes text, or drops it."""
        try:
            return super().write(text)
        except OSError:
            if self._is_file():
                raise
            self._drop()
            return len(text)

    def flush(self) -> None:
        """Hands on what was written, or drops it."""
        try:
            super().flush()
        except OSError:
            if self._is_file():
                raise
            self._drop()

    def _is_file(self) -> bool:
        return stat.S_ISREG(os.fstat(self.fileno()).st_mode)

    def _drop(self) -> None:
        """Sends all that follows nowhere."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


def keep_output_going() -> None:
    """Makes standard output and error outlive who reads them, a closed terminal too.

    Streams that somebody else has put in their place, such as a notebook, stay.
    """
    if sys.stdout is sys.__stdout__ and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _LastingStream.of(sys.stdout)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = _LastingStream.of(sys.stderr)
