"""Records from files: JSON lines (one object per line), a JSON array, or parquet."""

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.records import RecordSource

SUFFIXES = (".jsonl", ".json", ".parquet", ".jsonl.gz", ".json.gz")
_ROWS_AT_A_TIME = 10_000  # rows of a parquet file per batch


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
    """Yields (place, record) from a file: JSON lines, JSON array or object, parquet.

    Unpacks a file whose name ends in .gz. Raises ConfigError if it cannot be read.
    """
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    content = _read_content(path)
    may_be_one_value = path.name.removesuffix(".gz").endswith(".json")
    whole = _parse_whole(content) if may_be_one_value else None
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


def _parse_whole(content: bytes) -> Any:
    """Returns the content as one JSON value, None if it is not one value."""
    try:
        return json.loads(content.decode())
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
        if _parse_whole(line) is None:
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


def _parse_json(line: bytes, place: str) -> Any:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        is_utf16 = line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        kind = "UTF-16, and " if is_utf16 else ""
        mend = f"{kind}not UTF-8 at byte {error.start + 1}; save the file as UTF-8"
        raise ConfigError(f"{place}: {mend}") from error
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"{place}: not JSON at column {error.colno} ({error.msg}); write one JSON "
            "object per line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from error


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
