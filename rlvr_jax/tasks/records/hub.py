"""Records from Hugging Face `datasets`: a name on the hub, or a folder.

Only this module imports the library, and only when it opens a data set.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from job_jax.schema import ConfigError, did_you_mean
from rlvr_jax.tasks.records.records import RecordSource

if TYPE_CHECKING:
    from rlvr_jax.tasks.records.task import HubTask


def load_hub_source(config: "HubTask", split: str) -> RecordSource:
    """Returns the problems of a split. Raises ConfigError if it cannot be loaded.

    A folder either holds data files or was written by `save_to_disk`.
    """
    name = f"{config.path}:{split}"
    rows_of_split = load_split(
        config.path, split, subset=config.subset, revision=config.revision
    )
    rows = [
        (f"{name}, row {number}", row)
        for number, row in enumerate(rows_of_split, start=1)
    ]
    if not rows:
        raise ConfigError(
            f"{name} is empty; check task.train_split and task.eval_split"
        )
    return RecordSource(config.record, rows, source=name)


def load_split(
    path: str,
    split: str,
    *,
    subset: str = "",
    revision: str = "",
    advice: str = "check task.path, task.subset, task.train_split and task.eval_split",
) -> Any:
    """Returns the rows of a split, as loaded by `datasets`.

    `path` is a name on the hub or a folder. Raises ConfigError if the rows cannot be
    loaded; `advice` ends its message.
    """
    import datasets  # noqa: PLC0415 - it loads pandas and more

    folder = Path(path)
    try:
        if (folder / "dataset_dict.json").is_file():
            return datasets.load_from_disk(str(folder))[split]
        return datasets.load_dataset(
            path, subset or None, split=split, revision=revision or None
        )
    except KeyError as error:
        known = [path.name for path in folder.iterdir() if path.is_dir()]
        raise ConfigError(
            f"{path!r} has no split {split!r}; {advice}{did_you_mean(split, known)}"
        ) from error
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(
            f"cannot load split {split!r} of the data set {path!r} "
            f"({type(error).__name__}: {' '.join(str(error).split()):.300}); {advice}"
        ) from error
