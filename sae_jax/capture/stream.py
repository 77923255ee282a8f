"""Pairs for training straight from a model, without writing anything to disk.

The text is read in parts of `buffer_tokens` tokens (`parts`), and from the beginning
again after its end. The activations of one part are held in memory, and its pairs are
used in a random order; a rest too small for a batch is left out. The number of batches
in a part depends only on its tokens, so a resumed run skips finished parts without
running the model. Pairs whose activations are not finite, or far longer than others,
stay in their batch but are marked invalid.

Of every `2 / eval_fraction` documents, one calibrates and one is measured. No part
contains these documents, or an exact copy of one that was used.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from job_jax.schema import ConfigError
from sae_jax.capture.parts import ROLES, Part, Window, iter_parts
from sae_jax.capture.reader import hook_name
from sae_jax.capture.source import CaptureSource
from sae_jax.config import PairsConfig, StreamConfig
from sae_jax.data.pairs import (
    MAX_EVAL_TOKENS,
    ORDER,
    POSITIVE,
    PositivePairs,
    find_positives,
)
from sae_jax.data.shard_index import describe_source
from sae_jax.data.tokens import (
    Documents,
    TokenArrays,
    filter_tokens,
    iter_documents,
)
from sae_jax.types import Pairs

CALIBRATE, MEASURE = 0, 1  # uses of the first two documents of every period


class _Buffer(NamedTuple):
    """Part `number` with its activations and the mask of its usable tokens."""

    number: int
    data: TokenArrays
    usable: Bool[np.ndarray, " N"]


class StreamedPairs:
    """Pairs of a model's activations on a text, read during training.

    It is the `PairSource` of `sae_jax.train` if `stream.model` is set. Raises
    ConfigError if model, text and settings do not fit, or make no batch.
    """

    roles = ROLES

    def __init__(self, config: StreamConfig, pairs: PairsConfig, seed: int):
        if set(pairs.roles) - set(ROLES):
            raise ConfigError(
                f"pairs.roles={pairs.roles}: a text has only the role {ROLES[0]!r}; "
                "leave roles empty"
            )
        self._source = CaptureSource.open(config, [config.layer], prefix="stream.")
        self._buffer_tokens = config.buffer_tokens
        self._pairs = pairs
        self._seed = seed
        self._period = max(3, round(2 / pairs.eval_fraction))
        self._copies: set[bytes] = set()
        self._calibration, self._measured = (
            self._choose_held_out(use) for use in (CALIBRATE, MEASURE)
        )
        self._last_read: _Buffer | None = None
        self.skipped: dict[str, int] = {}  # unknown: the text has not been read yet
        self.metadata = describe_source(
            model=self._source.reader.name,
            hook=hook_name(config.hook, config.layer),
            layer=config.layer,
            context_size=self._source.context_size,
        )

    @property
    def width(self) -> int:
        """Returns D."""
        return self._source.reader.width

    @property
    def data_hash(self) -> str:
        """Returns a hash of the model, the text, and the settings of reading."""
        text = json.dumps(self._source.identity(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def iter_batches(self, first: int, total: int) -> Iterator[Pairs]:
        """Yields the batches of steps first, ..., total - 1."""
        step = 0
        parts = enumerate(self._iter_parts())
        while step < total:
            number, (part, found) = next(parts)
            count = len(found.anchors) // self._pairs.batch_size
            for batch in range(max(0, first - step), min(count, total - step)):
                yield self._batch(number, part, found, batch)
            step += count

    def calibration_documents(self) -> Iterator[Documents]:
        """Returns documents for the threshold, until they reach 65,536 tokens."""
        return self._documents(self._calibration)

    def eval_documents(self) -> Iterator[Documents]:
        """Returns documents to measure on, up to the same number of tokens."""
        return self._documents(self._measured)

    def _documents(self, part: Part) -> Iterator[Documents]:
        data = self._read(part)
        mask_N, skipped = filter_tokens(data, self._pairs)
        if not mask_N.any():
            raise ConfigError(f"no held-out token can be used; left out: {skipped}")
        return iter_documents(data, mask_N, np.unique(data.column("sequence")[mask_N]))

    def _choose_held_out(self, use: int) -> Part:
        """Returns the first documents of a use; their copies are left out later."""
        held: list[Window] = []
        for windows in self._iter_documents({use}):
            self._copies.add(_digest(windows))
            held += windows
            if sum(len(window.ids) for window in held) >= MAX_EVAL_TOKENS:
                break
        if not held:
            raise ConfigError(
                f"stream.text={self._source.config.text} has too few different "
                "documents: one is trained on, one calibrates, one is measured; give 3 "
                "or more"
            )
        return Part(tuple(held))

    def _iter_documents(self, uses: set[int]) -> Iterator[list[Window]]:
        """Yields each document of these uses, except copies of held-out documents."""
        documents = (
            (number, text)
            for number, text in self._source.documents()
            if min(number % self._period, MEASURE + 1) in uses
        )
        windows = self._source.windows_of(documents)
        for _, group in itertools.groupby(windows, key=lambda w: w.document):
            if _digest(document := list(group)) not in self._copies:
                yield document

    def _iter_parts(self) -> Iterator[tuple[Part, PositivePairs]]:
        """Yields parts and the pairs of their tokens, repeating the text forever."""
        while True:
            batches = 0
            documents = self._iter_documents({MEASURE + 1})
            for part in iter_parts(
                itertools.chain.from_iterable(documents),
                part_tokens=self._buffer_tokens,
            ):
                data = self._arrays(part, np.empty((part.tokens, 0), np.float32))
                found = find_positives(
                    data, ~data.column("special"), positive=self._pairs.positive
                )
                batches += len(found.anchors) // self._pairs.batch_size
                yield part, found
            if not batches:
                raise ConfigError(
                    f"stream.text={self._source.config.text} fills no batch of "
                    f"pairs.batch_size={self._pairs.batch_size} pairs; lower it, or "
                    "give more text"
                )

    def _batch(
        self, number: int, part: Part, found: PositivePairs, batch: int
    ) -> Pairs:
        """Returns a batch of part `number`."""
        if self._last_read is None or self._last_read.number != number:
            self._last_read = None  # free it before the next one is allocated
            data = self._read(part)
            usable_N, _ = filter_tokens(data, self._pairs)
            self._last_read = _Buffer(number, data, usable_N)
        _, data, usable_N = self._last_read
        size, seed = self._pairs.batch_size, self._seed
        order = np.random.default_rng([seed, ORDER, number]).permutation(
            len(found.anchors)
        )
        pair_B = order[batch * size : (batch + 1) * size]
        draws = np.random.default_rng([seed, POSITIVE, number, batch])
        anchor_B = found.anchors[pair_B]
        partner_B = found.draw_positives(pair_B, draws.random(size))
        valid_B = usable_N[anchor_B] & usable_N[partner_B]
        x_BD, positive_BD = (
            np.where(valid_B[:, None], data.rows(at_B), np.float32(0))
            for at_B in (anchor_B, partner_B)
        )
        return Pairs(x=x_BD, positive=positive_BD, valid=valid_B)

    def _read(self, part: Part) -> TokenArrays:
        (values_ND,) = self._source.read(part, dtype=np.float32)
        return self._arrays(part, values_ND)

    def _arrays(self, part: Part, values_ND: Float[np.ndarray, "N D"]) -> TokenArrays:
        return TokenArrays(
            activations=values_ND,
            columns=part.columns(self._source.reader),
            role_names=ROLES,
            data_hash=self.data_hash,
        )


def _digest(windows: Iterable[Window]) -> bytes:
    """Returns a digest that is equal for documents with the same tokens."""
    digest = hashlib.sha256()
    for window in windows:
        digest.update(window.ids.tobytes())
    return digest.digest()
