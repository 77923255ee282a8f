"""Streams the texts of a data set from the Hugging Face hub.

It is the only module of sae_jax that imports `datasets`, and only when it is needed.
"""

from collections.abc import Iterator
from typing import Any

from job_jax.schema import ConfigError


class HubTexts:
    """The rows of one split as documents; downloads only the rows that are read.

    `name` is ORGANIZATION/NAME, optionally with @REVISION, or a folder of data files.
    Without a revision, the data set may change before a collection resumes. Blank rows
    are left out; the other rows keep their numbers.
    """

    def __init__(self, name: str, *, field: str, subset: str, split: str):
        import datasets  # noqa: PLC0415 - it loads pandas and more

        path, _, revision = name.partition("@")
        self._name, self._field = name, field
        self.fingerprint = f"hub {name} {subset} {split} {field}"
        try:
            self._rows: Any = datasets.load_dataset(
                path,
                subset or None,
                split=split,
                revision=revision or None,
                streaming=True,
            )
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise ConfigError(
                f"cannot open split {split!r} of the data set {name!r} "
                f"({type(error).__name__}: {' '.join(str(error).split()):.300}); check "
                "its name, subset and split"
            ) from error
        known = (self._rows.info.splits or {}).get(split)
        self.count = known.num_examples if known else 0

    def documents(self, start: int = 0) -> Iterator[tuple[int, str]]:
        """Yields (number, text) of the rows from number `start` on."""
        rows = self._rows.skip(start) if start else self._rows
        for number, row in enumerate(rows, start=start):
            where = f"{self._name}, row {number}"
            if (text := text_of_row(row, self._field, where)).strip():
                yield number, text


def text_of_row(row: object, field: str, where: str) -> str:
    """Returns a row's text. Raises ConfigError, which says where, if it has none."""
    if not isinstance(row, dict):
        raise ConfigError(f"{where} is not a JSON object; write one object per line")
    if not isinstance(text := row.get(field), str):
        others = ", ".join(sorted(k for k, v in row.items() if isinstance(v, str)))
        raise ConfigError(
            f"{where} has no text under {field!r}; it has {others or 'none'} (--field)"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"{where}: half a surrogate pair: {error}") from error
    return text
