"""Published data sets as files: which of a folder are meant, and their records."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.tasks.public.layout import DataSet
from rlvr_jax.tasks.records.files import SUFFIXES, read_json_lines, read_parquet

# Files that hold no records: what `datasets` writes beside them.
_DESCRIPTIONS = {
    *("dataset_dict.json", "dataset_info.json", "dataset_infos.json", "state.json"),
}
_SPLIT = re.compile(r"(?<![a-z])(train|test|validation|valid|dev|eval)(?![a-z])")


def find_files(root: Path, data_set: DataSet, split: str = "") -> list[Path]:
    """Returns the files of a folder that hold a data set's split, in order of name.

    `root` may be one such file. Of a folder that has files named for splits (`train`,
    "test-00000.parquet", `validation/a.json`) those of `split` are taken, of one with
    files for subsets those of the data set's. Without `split` the folder must have one
    alone. Raises ConfigError where nothing is left.
    """
    if root.is_file():
        if root.suffix not in SUFFIXES:
            raise ConfigError(f"{root} is of an unknown kind; give one of {SUFFIXES}")
        return [root]
    if not root.is_dir():
        siblings = [str(path) for path in root.parent.glob("*")]
        raise ConfigError(
            f"there is no {str(root)!r}{did_you_mean(str(root), siblings)}"
        )
    found = sorted(path for path in root.rglob("*") if _holds_records(path, root))
    if not found:
        raise ConfigError(f"{root} holds no file of records; give one of {SUFFIXES}")
    of_subset = [p for p in found if _names_any(p.relative_to(root), data_set.subsets)]
    return _choose_split(root, of_subset or found, split)


def _choose_split(root: Path, paths: Sequence[Path], split: str) -> list[Path]:
    splits: dict[str, list[Path]] = {}
    for path in paths:
        names = _SPLIT.findall(str(path.relative_to(root)).lower())
        splits.setdefault(names[-1] if names else "", []).append(path)
    if len(splits) == 1 and (not split or "" in splits):
        return [*paths]
    if split in splits:
        return splits[split]
    known = ", ".join(sorted(filter(None, splits)))
    raise ConfigError(
        f"{root} has files of the splits {known}"
        + (f", and none of {split!r}" if split else "")
        + "; name one with --split, or give one file"
    )


def _holds_records(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    is_kind = path.suffix in SUFFIXES and path.name not in _DESCRIPTIONS
    return is_kind and not is_hidden and path.is_file()


def _names_any(path: Path, subsets: Iterable[str]) -> bool:
    return not {*path.parts, path.stem}.isdisjoint(subsets)


def read_public_file(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (place, record) of a file: JSON lines, one JSON array or object, parquet.

    Raises ConfigError where it cannot be read.
    """
    if path.suffix == ".parquet":
        yield from read_parquet(path)
        return
    whole = _read_whole(path) if path.suffix == ".json" else None
    if isinstance(whole, list):
        for number, record in enumerate(whole, start=1):
            yield f"{path}, item {number}", record
    elif whole is not None:
        yield f"{path}, item 1", whole
    else:
        yield from read_json_lines(path)


def _read_whole(path: Path) -> Any:
    """Returns what a file holds as one JSON value, None where it does not."""
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return None


def hash_file(path: Path) -> str:
    """Returns the file's sha256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
