"""Finds the files of a published data set in a folder."""

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.tasks.public.layout import DataSet
from rlvr_jax.tasks.records.files import SUFFIXES

# Files without records, which the library `datasets` writes next to the data.
_DESCRIPTIONS = {
    "dataset_dict.json",
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
}
_SPLIT = re.compile(r"(?<![a-z])(train|test|validation|valid|dev|eval)(?![a-z])")


def find_files(root: Path, data_set: DataSet, split: str = "") -> list[Path]:
    """Returns the files in a folder that hold a split of a data set, sorted by name.

    `root` may also be a single file. If files are named after splits (`train`,
    "test-00000.parquet", `validation/a.json`), only files of `split` are returned. If
    they are named after subsets, only files of the data set's subsets. Without `split`,
    the folder must have exactly one split. Raises ConfigError if no file is left.
    """
    if root.is_file():
        if not root.name.endswith(SUFFIXES):
            raise ConfigError(f"{root} has an unknown suffix; give one of {SUFFIXES}")
        return [root]
    if not root.is_dir():
        names = [path.name for path in root.parent.glob("*")]
        near = difflib.get_close_matches(root.name, names, n=1)
        hint = did_you_mean(str(root), [str(root.with_name(n)) for n in near])
        raise ConfigError(f"there is no {str(root)!r}{hint}")
    found = sorted(path for path in root.rglob("*") if _holds_records(path, root))
    if not found:
        raise ConfigError(f"{root} has no file of records; give one of {SUFFIXES}")
    _refuse_copies(found)
    of_subset = [p for p in found if _names_any(p.relative_to(root), data_set.subsets)]
    return _choose_split(root, of_subset or found, split)


def _refuse_copies(paths: Iterable[Path]) -> None:
    """Raises ConfigError if a file is there in two formats, with its problems twice."""
    forms: dict[str, Path] = {}
    for path in paths:
        suffix = max(filter(path.name.endswith, SUFFIXES), key=len)
        other = forms.setdefault(str(path).removesuffix(suffix), path)
        if other is not path:
            raise ConfigError(
                f"{other} and {path.name} are one file in two formats; delete one"
            )


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
        f"{root} has files for the splits {known}"
        + (f", but none for {split!r}" if split else "")
        + "; name one with --split, or give one file"
    )


def _holds_records(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    is_kind = path.name.endswith(SUFFIXES) and path.name not in _DESCRIPTIONS
    return is_kind and not is_hidden and path.is_file()


def _names_any(path: Path, subsets: Iterable[str]) -> bool:
    return not {*path.parts, path.stem}.isdisjoint(subsets)


def hash_file(path: Path) -> str:
    """Returns the file's sha256, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
