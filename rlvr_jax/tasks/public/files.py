"""Published data sets as files: which of a folder are meant."""

import difflib
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.tasks.public.layout import DataSet
from rlvr_jax.tasks.records.files import SUFFIXES

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
        if not root.name.endswith(SUFFIXES):
            raise ConfigError(f"{root} is of an unknown kind; give one of {SUFFIXES}")
        return [root]
    if not root.is_dir():
        names = [path.name for path in root.parent.glob("*")]
        near = difflib.get_close_matches(root.name, names, n=1)
        hint = did_you_mean(str(root), [str(root.with_name(n)) for n in near])
        raise ConfigError(f"there is no {str(root)!r}{hint}")
    found = sorted(path for path in root.rglob("*") if _holds_records(path, root))
    if not found:
        raise ConfigError(f"{root} holds no file of records; give one of {SUFFIXES}")
    _refuse_copies(found)
    of_subset = [p for p in found if _names_any(p.relative_to(root), data_set.subsets)]
    return _choose_split(root, of_subset or found, split)


def _refuse_copies(paths: Iterable[Path]) -> None:
    """Raises ConfigError where a folder has a file in two forms: each problem twice."""
    forms: dict[str, Path] = {}
    for path in paths:
        suffix = max(filter(path.name.endswith, SUFFIXES), key=len)
        other = forms.setdefault(str(path).removesuffix(suffix), path)
        if other is not path:
            raise ConfigError(
                f"{other} and {path.name} are one file in two forms; leave one of them"
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
        f"{root} has files of the splits {known}"
        + (f", and none of {split!r}" if split else "")
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
