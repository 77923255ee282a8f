"""Records from files: JSON lines, one object a line, and parquet."""

import codecs
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.records import RecordSource

SUFFIXES = (".jsonl", ".json", ".parquet")
_ROWS_AT_A_TIME = 10_000  # of a parquet file


def load_file_source(config: RecordConfig, path: str | Path) -> RecordSource:
    """Returns the problems of a file. ConfigError where it cannot be used."""
    path = Path(path)
    return RecordSource(config, read_records(path), source=path.name)


def read_records(path: Path) -> list[tuple[str, Any]]:
    """Returns (place, record) of all in a file, places as in "data/a.jsonl, line 3".

    Raises ConfigError where there is none.
    """
    placed_records = list(_select_reader(path)(path))
    if not placed_records:
        raise ConfigError(f"{path} is empty; give data with one problem a record")
    return placed_records


def _select_reader(path: Path) -> Callable[[Path], Iterator[tuple[str, Any]]]:
    if path.is_dir():
        usable = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES)
        raise ConfigError(
            f"{str(path)!r} is a directory; give one file of problems"
            + (f", such as {str(usable[0])!r}" if usable else f" {SUFFIXES}")
        )
    if not path.is_file():
        raise ConfigError(
            f"cannot read the data file {str(path)!r}; check task.train_path and "
            "task.eval_path"
        )
    if path.suffix == ".parquet":
        return read_parquet
    if path.suffix in (".jsonl", ".json"):
        return read_json_lines
    raise ConfigError(
        f"data file {str(path)!r} is of an unknown kind; give one of {SUFFIXES}"
    )


def read_json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) of a file of JSON lines. Raises ConfigError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the data file {str(path)!r} ({error.strerror})"
        ) from error
    is_first = True
    content = content.removeprefix(codecs.BOM_UTF8)  # some editors begin a file so
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            place = f"{path}, line {number}"
            if is_first and line.lstrip().startswith(b"["):
                _refuse_array(content, place, path)
            is_first = False
            yield place, _parse_json(line, place)


def _refuse_array(content: bytes, place: str, path: Path) -> None:
    """Raises ConfigError where a file is one JSON array in place of lines."""
    try:
        records = json.loads(content)
    except (ValueError, RecursionError):
        return
    raise ConfigError(
        f"{place}: the file is one JSON array of {len(records)} records; write one "
        f"object a line, as `jq -c '.[]' {path} > {path.with_suffix('.jsonl')}` does"
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
            "object a line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from error


def read_parquet(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) of a parquet file, batch by batch. Raises ConfigError."""
    import pyarrow  # noqa: PLC0415 - only who has such a file pays for it
    import pyarrow.parquet  # noqa: PLC0415

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_A_TIME):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{path}, row {number}", row
    except (OSError, pyarrow.ArrowException) as error:
        raise ConfigError(f"{path} is no parquet file ({error})") from error
