"""Records from files: JSON lines (one object per line), a JSON array, parquet, CSV."""

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.records import RecordSource

SUFFIXES = (
    ".jsonl",
    ".json",
    ".parquet",
    ".csv",
    ".tsv",
    ".jsonl.gz",
    ".json.gz",
    ".csv.gz",
    ".tsv.gz",
)
_ROWS_AT_A_TIME = 10_000  # rows of a parquet file per batch


class RepeatedFieldError(ValueError):
    """An object in JSON has two fields of one name."""


def load_file_source(config: RecordConfig, path: str | Path) -> RecordSource:
    """Returns the problems in a file. Raises ConfigError if it cannot be used."""
    path = Path(path)
    return RecordSource(config, read_records(path), source=path.name)


def read_records(path: Path) -> list[tuple[str, Any]]:
    """Returns (place, record) for all records in a file.

    A place looks like "data/a.jsonl, line 3". Raises ConfigError if the file is missing
    or empty.
    """
    _check_path(path)
    placed_records = list(iterate_records(path))
    if not placed_records:
        raise ConfigError(f"{path} is empty; give a file with one problem per record")
    return placed_records


def _check_path(path: Path) -> None:
    if path.is_dir():
        usable = sorted(f for f in path.iterdir() if f.name.endswith(SUFFIXES))
        raise ConfigError(
            f"{str(path)!r} is a directory; give one file of problems"
            + (f", such as {str(usable[0])!r}" if usable else f" {SUFFIXES}")
        )
    if not path.is_file():
        raise ConfigError(
            f"cannot read the data file {str(path)!r}: there is no such file; check "
            "task.train_path and task.eval_path"
        )
    if not path.name.endswith(SUFFIXES):
        raise ConfigError(
            f"data file {str(path)!r} has an unknown suffix; give one of {SUFFIXES}"
        )


def iterate_records(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) from a file of any kind in `SUFFIXES`.

    A .json file may be one array, one object, or JSON lines. Unpacks a file whose name
    ends in .gz. Raises ConfigError if it cannot be read.
    """
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    content = _read_content(path)
    name = path.name.removesuffix(".gz")
    if name.endswith((".csv", ".tsv")):
        yield from _read_table(content, path, "\t" if name.endswith(".tsv") else ",")
        return
    may_be_one_value = name.endswith(".json")
    whole = _parse_whole(content, path) if may_be_one_value else None
    if isinstance(whole, list):
        for number, record in enumerate(whole, start=1):
            yield f"{path}, item {number}", record
    elif whole is not None:
        yield f"{path}, item 1", whole
    else:
        yield from _read_lines(content, path)


def _read_content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{path} is not a complete gzip file ({error})") from error
    except OSError as error:
        raise ConfigError(
            f"cannot read the data file {str(path)!r} ({error.strerror})"
        ) from error
    return content.removeprefix(codecs.BOM_UTF8)  # some editors write it first


def _parse_whole(content: bytes, path: Path) -> Any:
    """Returns the content as one JSON value, None if it is not one value.

    Raises ConfigError if a name occurs twice in an object.
    """
    try:
        return json.loads(content.decode(), object_pairs_hook=_make_object)
    except RepeatedFieldError as error:
        raise ConfigError(f"{path}: {error}") from error
    except (ValueError, RecursionError):
        return None


def _read_lines(content: bytes, path: Path) -> Iterator[tuple[str, Any]]:
    is_first = True
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            if is_first and line.lstrip().startswith(b"["):
                _refuse_array(content, line, path, number)
            is_first = False
            place = f"{path}, line {number}"
            yield place, _parse_json(line, place)


def _refuse_array(content: bytes, line: bytes, path: Path, number: int) -> None:
    """Raises ConfigError if a file is one JSON array, or part of one."""
    try:
        records = json.loads(content.decode())
    except json.JSONDecodeError as error:
        if _parse_whole(line, path) is None:
            raise ConfigError(
                f"{path}, line {error.lineno}: not JSON at column {error.colno} "
                f"({error.msg}); the file is an array that is damaged or ends early; "
                "get it again"
            ) from error
        return
    except (ValueError, RecursionError):
        return
    raise ConfigError(
        f"{path}, line {number}: the file is one JSON array of {len(records)} records; "
        f"name it {path.name.replace('.jsonl', '.json')}, or write one object per line"
    )


def _make_object(pairs: Sequence[tuple[str, object]]) -> dict[str, Any]:
    """Returns a JSON object. Raises RepeatedFieldError if a name occurs twice in it."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise RepeatedFieldError(
            f"the field {twice!r} occurs twice; remove one of the two"
        )
    return made


def _parse_json(line: bytes, place: str) -> Any:
    text = _decode(line, place)
    try:
        return json.loads(text, object_pairs_hook=_make_object)
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{place}: not JSON at column {error.colno} ({error.msg}); write one JSON "
            "object per line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from error


def _read_table(
    content: bytes, path: Path, delimiter: str
) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) from a table whose first row has the fields' names.

    All values are texts, and an empty cell is null. A place is the line where its row
    ends. Raises ConfigError.
    """
    text = _decode(content, str(path))
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))  # 131,072 by default
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    names: list[str] = []
    try:
        for row in rows:
            place = f"{path}, line {rows.line_num}"
            if not names:
                names = _check_header(row, place)
            elif row and len(row) != len(names):
                raise ConfigError(
                    f"{place}: {len(row)} cells, but the header has {len(names)}; put "
                    'texts with a comma, a quote or a line break in quotes ("")'
                )
            elif row:
                values = (cell or None for cell in row)
                yield place, dict(zip(names, values, strict=True))
    except csv.Error as error:
        raise ConfigError(
            f"{path}, line {rows.line_num}: {error}; write the table again, with "
            "quotes around texts"
        ) from error


def _check_header(names: list[str], place: str) -> list[str]:
    for number, name in enumerate(names, start=1):
        if not name.strip() or name in names[: number - 1]:
            what = "has the name of another" if name.strip() else "has no name"
            raise ConfigError(
                f"{place}: column {number} of the header {what} ({name!r:.40}); give "
                "each column its own name"
            )
    return names


def _decode(content: bytes, place: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        kind = "UTF-16, and " if is_utf16 else ""
        raise ConfigError(
            f"{place}: {kind}not UTF-8 at byte {error.start + 1}; save the file as "
            "UTF-8"
        ) from error


def _read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) from a parquet file in batches. Raises ConfigError."""
    import pyarrow  # noqa: PLC0415 - slow to import, only needed here
    import pyarrow.parquet  # noqa: PLC0415

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_A_TIME):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{path} is not a parquet file ({error})") from error
