"""Reads the rows of a log: JSON lines, a JSON list or a trainer_state.json.

The content decides, not the name. Rows stay as they are in the file, except that the
metrics of {"step": n, "data": {...}} move up next to the step.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_STATE, _METRICS = "trainer_state.json", "metrics.jsonl"
_JSON_BEGINS = re.compile(r"""\s*(\[|\{(?!'))""")  # and no dict as Python prints it
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class LogError(Exception):
    """A log that cannot be read; the message is one line with the file and the fix."""


def find_file(path: Path) -> Path:
    """Returns the log's file: `path`, or the newest log in the directory `path`."""
    if not path.is_dir():
        return path
    checkpoints = [
        (int(match[1]), folder / _STATE)
        for folder in path.iterdir()
        if (match := _CHECKPOINT.fullmatch(folder.name)) and (folder / _STATE).is_file()
    ]
    newest = [max(checkpoints)[1]] if checkpoints else []
    for file in (path / _STATE, *newest, path / _METRICS):
        if file.is_file():
            return file
    raise LogError(
        f"{path}: no {_STATE} here or in a checkpoint-N, and no {_METRICS}; name the "
        "log's file"
    )


def read_rows(path: Path) -> list[Row]:
    """Returns the rows of a log's file. Raises LogError if it cannot be read."""
    try:
        # A line that is still being written may end within a character.
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError as error:
        raise LogError(f"{path}: no such file or directory") from error
    except OSError as error:
        raise LogError(f"{path}: {error.strerror}") from error
    if not text.strip():
        raise LogError(f"{path}: the file is empty")
    rows = _read_document(path, text)
    return [
        _flatten(row) for row in (_read_lines(path, text) if rows is None else rows)
    ]


def _read_document(path: Path, text: str) -> list[Row] | None:
    """Returns the rows of one JSON document, None if the text is JSON lines."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        first = text.lstrip().partition("\n")[0]
        if _is_object(first) or first.strip() not in ("{", "["):
            return None
        line, what = _describe_damage(error)
        raise LogError(
            f"{path}:{line}: damaged JSON ({what}); is the file complete?"
        ) from error
    if isinstance(document, dict):
        document = document.get("log_history", [document])
    if not isinstance(document, list) or not all(isinstance(r, dict) for r in document):
        raise LogError(f"{path}: the rows of a log must be JSON objects")
    return document


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _read_lines(path: Path, text: str) -> Iterator[Row]:
    """Yields the rows of JSON lines; a cut last line is still being written."""
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and number > 1:
                return
            _, what = _describe_damage(error)
            if number == 1 and not _JSON_BEGINS.match(line):
                raise LogError(
                    f"{path}: not a log in JSON, beginning with {line[:40]!r}; give a "
                    "file of JSON lines or a trainer_state.json, not the output of a "
                    "terminal or a table (verl writes JSON lines if trainer.logger "
                    "contains file)"
                ) from error
            raise LogError(
                f"{path}:{number}: damaged JSON ({what}); remove or repair this line"
            ) from error
        if not isinstance(row, dict):
            raise LogError(f"{path}:{number}: not a JSON object; each line must be one")
        yield row


def _flatten(row: Row) -> Row:
    data = row.get("data")
    return {**row, **data} if isinstance(data, dict) else row


def _describe_damage(error: Exception) -> tuple[int, str]:
    """Returns the line of a fault in a JSON text, from 1, and the fault."""
    if isinstance(error, json.JSONDecodeError):
        return error.lineno, error.msg
    return 1, "too deep"
