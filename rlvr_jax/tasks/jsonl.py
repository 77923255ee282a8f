"""Word problems from JSON lines: one object a line, a question and its answer."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.config import JsonLinesConfig
from rlvr_jax.types import Problem

# GSM8K interleaves its prose with "<<48/2=24>>24", meant for a calculator that the
# policy does not have.
_CALCULATOR = re.compile(r"<<[^<>]*>>")
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")  # JSON can spell it, UTF-8 cannot


class JsonLinesSource:
    """The problems of one file, all read and checked at once, in the file's order.

    The gold is what follows the last `answer_marker`. What stands before it is the
    worked solution, written to end in "#### gold", a form that the verifier reads; an
    answer without any working gives no solution. The `exact` verifier compares whole
    completions, so there the solution is the gold alone.
    """

    def __init__(self, config: JsonLinesConfig, path: str | Path):
        path = Path(path)
        content = _content(path)
        self._problems = [
            _problem(line, number, path=path, config=config)
            for number, line in enumerate(content.split(b"\n"), start=1)
            if line.strip()
        ]
        if not self._problems:
            raise ConfigError(f"{path} is empty; give a file with one problem a line")
        self._name = f"{path.name}, sha256 {hashlib.sha256(content).hexdigest()[:12]}"

    def __repr__(self) -> str:
        """Returns what grain compares before it resumes from a saved position."""
        return f"JsonLinesSource({self._name})"

    def __len__(self) -> int:
        """Returns the number of problems."""
        return len(self._problems)

    def __getitem__(self, index: int) -> Problem:
        """Returns problem `index`."""
        return self._problems[index]


def _content(path: Path) -> bytes:
    """Returns the bytes of a data file. Raises ConfigError where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read the data file {str(path)!r} ({error.strerror}); check "
            "task.train_path and task.eval_path"
        ) from error


def _problem(
    line: bytes, number: int, *, path: Path, config: JsonLinesConfig
) -> Problem:
    """Returns the problem that a line holds; ConfigError names path, line and mend."""
    try:
        record = json.loads(line.decode())
        question = _text(record, config.prompt_field, "task.prompt_field")
        answer = _text(record, config.answer_field, "task.answer_field")
        worked, marker, gold = "", "", answer
        if config.answer_marker:
            worked, marker, gold = answer.rpartition(config.answer_marker)
        gold, worked = gold.strip(), _CALCULATOR.sub("", worked).strip()
        if marker != config.answer_marker:
            raise ConfigError(
                f"{config.answer_field!r} holds no {config.answer_marker!r} before the "
                "gold; set task.answer_marker (empty: the whole field is the gold)"
            )
        if not gold:
            raise ConfigError(
                f"no gold in {config.answer_field!r}; complete or remove the line"
            )
    except UnicodeDecodeError as error:
        problem = f"not UTF-8 at byte {error.start + 1}; save the file as UTF-8"
        raise ConfigError(f"{path}, line {number}: {problem}") from error
    except json.JSONDecodeError as error:
        problem = f"not JSON at column {error.colno} ({error.msg})"
        raise ConfigError(
            f"{path}, line {number}: {problem}; write one JSON object a line"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}, line {number}: {error}") from error
    if config.verifier == "exact":
        solution: str | None = gold
    else:
        solution = f"{worked}\n#### {gold}" if worked else None
    return Problem(
        id=f"{path.name}:{number}",
        prompt=config.prompt_template.replace("{prompt}", question),
        gold=gold,
        kind=config.verifier,
        source=path.name,
        solution=solution,
    )


def _text(record: Any, field: str, key: str) -> str:
    """Returns the text of a record's field, which config field `key` names."""
    if not isinstance(record, dict):
        raise ConfigError(f"{record!r:.40} is no JSON object")
    if field not in record:
        raise ConfigError(f"no field {field!r}; set {key}{did_you_mean(field, record)}")
    value = record[field]
    if not isinstance(value, str):
        raise ConfigError(f"{field!r} is {value!r:.40}, not text; put it in quotes")
    if not value.strip():
        raise ConfigError(f"{field!r} is empty; complete or remove the line")
    if half := _HALF_CHARACTER.search(value):
        raise ConfigError(f"{field!r} holds half a character, {half[0]!r}; remove it")
    return value
