"""The documents of a text: plain text, JSON lines, or a data set of the hub.

    NAME.jsonl   one document per line: the text under one key of a JSON object
    any other    plain text: one document per paragraph; a blank line ends it
    hub:NAME     one document per row of a data set on the hub or in a folder, streamed

Files whose name also ends in .gz are decompressed. Blank documents are left out. Only
one document is in memory at a time, however long the text.
"""

import gzip
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

from job_jax.schema import ConfigError
from sae_jax.capture.hub import HubTexts, text_of_row

_HUB = "hub:"
_JSON_LINES = (".jsonl", ".ndjson", ".json")


class Texts(Protocol):
    """Documents in a fixed order, numbered from 0; some numbers may be missing."""

    @property
    def fingerprint(self) -> str:
        """Returns a string that identifies these documents."""
        ...

    @property
    def count(self) -> int:
        """Returns the last document's number plus one, or 0 if it is unknown."""
        ...

    def documents(self, start: int = 0) -> Iterator[tuple[int, str]]:
        """Yields (number, text) of the documents from number `start` on."""
        ...


def open_texts(text: str, *, field: str, subset: str, split: str) -> Texts:
    """Opens the documents of a file, or of a data set "hub:NAME".

    A file is read once completely, so an error in its last line is reported at once.
    Raises ConfigError if it cannot be read or holds no document.
    """
    if text.startswith(_HUB):
        name = text.removeprefix(_HUB)
        return HubTexts(name, field=field, subset=subset, split=split)
    return FileTexts(Path(text), field=field)


class FileTexts:
    r"""The documents of a file. Raises ConfigError, which names file and line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "a.txt"
    ...     _ = path.write_text("one\nparagraph\n\n\ntwo\n")
    ...     list(FileTexts(path, field="text").documents())
    [(0, 'one\nparagraph'), (1, 'two')]
    """

    def __init__(self, path: Path, *, field: str):
        self._path = path
        self._field = field
        if not path.is_file():
            what = "is a directory" if path.is_dir() else "does not exist"
            raise ConfigError(f"text {path} {what}; give a file, or {_HUB}NAME")
        digest = hashlib.sha256(field.encode())
        self.count = sum(1 for _ in self._read(digest.update))
        self.fingerprint = digest.hexdigest()
        if not self.count:
            raise ConfigError(
                f"text {path} holds no document: it is empty or blank; give another"
            )

    def documents(self, start: int = 0) -> Iterator[tuple[int, str]]:
        """Yields (number, text) of the documents from number `start` on."""
        return itertools.islice(enumerate(self._read()), start, None)

    def _read(self, see: Callable[[bytes], Any] = lambda line: None) -> Iterator[str]:
        """Yields all documents; `see` is given each line's bytes."""
        name = self._path.name.removesuffix(".gz")
        split = self._parse_json if name.endswith(_JSON_LINES) else _paragraphs
        return (text for text in split(self._lines(see)) if text.strip())

    def _lines(self, see: Callable[[bytes], Any]) -> Iterator[str]:
        opener: Any = gzip.open if self._path.suffix == ".gz" else open
        try:
            with opener(self._path, "rb") as file:
                for number, line in enumerate(file, start=1):
                    see(line)
                    yield self._decode(line, number)
        except (EOFError, gzip.BadGzipFile) as error:
            raise ConfigError(f"{self._path}: {error}") from error

    def _decode(self, line: bytes, number: int) -> str:
        try:
            return line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{self._path}, line {number}: byte 0x{line[error.start]:02x} is not "
                "UTF-8; convert the file, for example with iconv --to-code=utf-8"
            ) from error

    def _parse_json(self, lines: Iterator[str]) -> Iterator[str]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            where = f"{self._path}, line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{where} is not JSON: {error}") from error
            yield text_of_row(row, self._field, where)


def _paragraphs(lines: Iterator[str]) -> Iterator[str]:
    held: list[str] = []
    for line in lines:
        if line.strip():
            held.append(line)
        elif held:
            yield "".join(held).rstrip("\r\n")
            held = []
    if held:
        yield "".join(held).rstrip("\r\n")
