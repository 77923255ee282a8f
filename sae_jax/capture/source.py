"""A model and a text, opened together for `collect` and for training without a disk.

Errors in either are reported here, before any work.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from jaxtyping import Float

from job_jax.schema import ConfigError
from sae_jax.capture.parts import Part, Window, iter_windows, read_part
from sae_jax.capture.reader import (
    ModelReader,
    check_layers,
    context_size,
    open_reader,
)
from sae_jax.capture.texts import Texts, open_texts
from sae_jax.config import CaptureConfig, StreamConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptureSource:
    """A model's activations on a text, at one hook of some layers."""

    reader: ModelReader
    texts: Texts
    config: CaptureConfig
    layers: tuple[int, ...]
    context_size: int  # tokens of a window

    @classmethod
    def open(cls, config: CaptureConfig, layers: Sequence[int], *, prefix: str) -> Self:
        """Opens the model and text of a config. Raises ConfigError if they do not fit.

        `prefix` is put before field names in messages, as users write them ("--").
        """
        reader = open_reader(config.reader, config.model, dtype=config.compute_dtype)
        field = "layer" if isinstance(config, StreamConfig) else "layers"
        check_layers(reader, layers, field=f"{prefix}{field}")
        size = context_size(reader, config.context_size, field=f"{prefix}context_size")
        texts = open_texts(
            config.text,
            field=config.text_field,
            subset=config.subset,
            split=config.split,
        )
        if not texts.count and not config.max_documents:
            raise ConfigError(
                f"{config.text} does not say how many rows its split has; set "
                f"{prefix}max_documents to the number to read"
            )
        return cls(
            reader=reader,
            texts=texts,
            config=config,
            layers=tuple(layers),
            context_size=size,
        )

    def identity(self) -> dict[str, Any]:
        """Returns everything that determines the activations, as JSON."""
        return {
            "model": self.reader.name,
            "weights": self.reader.fingerprint,
            "text": self.texts.fingerprint,
            "hook": self.config.hook,
            "layers": list(self.layers),
            "context_size": self.context_size,
            "batch_size": self.config.batch_size,
            "compute_dtype": self.config.compute_dtype,
            "max_documents": self.config.max_documents,
            "reader": self.config.reader,
        }

    @property
    def num_documents(self) -> int:
        """Returns the maximum number of documents that are read."""
        counts = (self.texts.count, self.config.max_documents)
        return min(count for count in counts if count)

    def documents(self, start: int = 0) -> Iterator[tuple[int, str]]:
        """Yields (number, text) of the documents from number `start` on."""
        limit = self.config.max_documents
        for number, text in self.texts.documents(start):
            if limit and number >= limit:
                return
            yield number, text

    def windows(self, start: int = 0) -> Iterator[Window]:
        """Yields the windows of the documents from number `start` on."""
        return self.windows_of(self.documents(start))

    def windows_of(self, documents: Iterable[tuple[int, str]]) -> Iterator[Window]:
        """Yields the windows of these documents."""
        return iter_windows(documents, self.reader, context_size=self.context_size)

    def read(
        self,
        part: Part,
        *,
        dtype: npt.DTypeLike,
        after_batch: Callable[[int], None] = lambda tokens: None,
    ) -> tuple[Float[np.ndarray, "N D"], ...]:
        """Returns the activations of a part's tokens, for each layer: `read_part`."""
        return read_part(
            self.reader,
            part,
            hook=self.config.hook,
            layers=self.layers,
            batch_size=self.config.batch_size,
            dtype=dtype,
            after_batch=after_batch,
        )
