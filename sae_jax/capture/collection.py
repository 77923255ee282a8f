"""A collection on disk: a folder for each layer, each a data set, and its progress.

    OUT/collection.json    the settings, and the shards that are complete
    OUT/layer_8.partial/   shards of a layer during collection
    OUT/layer_8/           the same folder, renamed at the end: `sae_jax.train` reads it

collection.json is replaced atomically whenever one more shard of every layer has been
written. A killed collection resumes after the last of these shards. It writes shards
that collection.json does not name again, and the files come out the same as without the
interruption.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from job_jax.files import write_json
from sae_jax.capture.parts import Part, Window
from sae_jax.capture.reader import ModelReader
from sae_jax.data.shard_index import (
    INDEX_FILE,
    ShardError,
    ShardIndex,
    combined_hash,
)
from sae_jax.data.shards import write_shard

RECORD = "collection.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectionProgress:
    """How far a collection has come, with everything needed to resume it.

    `document` and `window` belong to the last window that was written.
    """

    document: int = 0
    window: int = -1
    sequences: int = 0
    tokens: int = 0
    longest: int = 0
    finished: bool = False
    shards: Mapping[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)


class Collection:
    """The folders of a collection, opened to start or resume it.

    `settings` holds, in JSON types, everything that determines the files' bytes;
    `indexes` describes each layer's data set. Raises ShardError if `directory` holds
    anything else.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object],
        indexes: Mapping[int, ShardIndex],
    ):
        self._directory = directory
        self._settings = dict(settings)
        self._indexes = dict(indexes)
        self.progress = self._read_progress()
        if not self.progress.finished:
            for layer in indexes:
                self._remove_incomplete(layer)

    def lacks(self, window: Window) -> bool:
        """Returns whether a window comes after the last one that was written."""
        done = self.progress
        return (window.document, window.index) > (done.document, done.window)

    def folder(self, layer: int) -> Path:
        """Returns where a layer's data set is after the collection has finished."""
        return self._directory / f"layer_{layer}"

    def add(
        self,
        part: Part,
        activations: Mapping[int, Float[np.ndarray, "N D"]],
        reader: ModelReader,
    ) -> None:
        """Writes a part as the next shard of every layer."""
        old, last = self.progress, part.windows[-1]
        columns = part.columns(reader, first_sequence=old.sequences)
        shards = {}
        for layer, values_ND in activations.items():
            name = str(layer)
            entries = old.shards.get(name, [])
            norm_N = np.linalg.norm(values_ND.astype(np.float32), axis=1)
            entry = write_shard(
                self._partial(layer),
                self._indexes[layer],
                {**columns, "activations": values_ND, "norm": norm_N},
                number=len(entries),
            )
            shards[name] = [*entries, entry]
        self._commit(
            CollectionProgress(
                document=last.document,
                window=last.index,
                sequences=old.sequences + len(part.windows),
                tokens=old.tokens + part.tokens,
                longest=max(old.longest, *(len(w.ids) for w in part.windows)),
                shards=shards,
            )
        )

    def finish(self) -> None:
        """Writes each layer's index and gives its folder the final name."""
        done = self.progress
        if not done.tokens:
            raise ShardError("the tokenizer makes no token of the text; check --text")
        for layer, index in self._indexes.items():
            if self.folder(layer).exists():
                continue  # renamed before the collection was killed
            shards = tuple(done.shards[str(layer)])
            complete = dataclasses.replace(
                index,
                num_problems=done.document + 1,
                tokens=done.tokens,
                sequences=done.sequences,
                context_size=done.longest,
                data_hash=combined_hash(shards),
                shards=shards,
            )
            write_json(self._partial(layer) / INDEX_FILE, dataclasses.asdict(complete))
            self._partial(layer).rename(self.folder(layer))
        self._commit(dataclasses.replace(done, finished=True))

    def _partial(self, layer: int) -> Path:
        return self._directory / f"layer_{layer}.partial"

    def _commit(self, progress: CollectionProgress) -> None:
        record = {"settings": self._settings, "progress": vars(progress)}
        write_json(self._directory / RECORD, record)
        self.progress = progress

    def _read_progress(self) -> CollectionProgress:
        path = self._directory / RECORD
        if not path.is_file():
            names = {p.name for p in self._directory.glob("*")}
            if names - {f"{RECORD}.partial"}:  # an early kill may leave this one
                raise ShardError(
                    f"{self._directory} holds other files; name another directory"
                )
            self._directory.mkdir(parents=True, exist_ok=True)
            self._commit(CollectionProgress())
            return self.progress
        try:
            record = json.loads(path.read_text())
            held, progress = (
                record["settings"],
                CollectionProgress(**record["progress"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ShardError(f"{path} is damaged ({error}); remove it") from error
        for name, value in self._settings.items():
            if held.get(name) != value:
                raise ShardError(
                    f"{self._directory} holds a collection with other {name}: "
                    f"{_shorten(held.get(name))}, not {_shorten(value)}; name another "
                    "directory, or remove it"
                )
        return progress

    def _remove_incomplete(self, layer: int) -> None:
        """Removes a layer's shards that are not complete."""
        entries: Sequence[dict[str, Any]] = self.progress.shards.get(str(layer), [])
        partial = self._partial(layer)
        if self.folder(layer).exists():
            return
        partial.mkdir(exist_ok=True)
        sizes = {entry["file"]: entry["bytes"] for entry in entries}
        for path in partial.iterdir():
            if path.name not in sizes:
                path.unlink()
        for name, size in sizes.items():
            path = partial / name
            if not path.is_file() or path.stat().st_size != size:
                raise ShardError(
                    f"{path} is missing or cut short; remove {self._directory}, and "
                    "collect again"
                )


def _shorten(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
