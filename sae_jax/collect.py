"""`python -m sae_jax.collect --model=DIR --text=FILE --layers=8,16 --out=OUT`.

Writes a model's activations on a text. Each layer has a folder, such as OUT/layer_8,
with a data set in the format of `sae_jax.data.shard_index`, which `sae_jax.train` reads
without further flags. One forward pass serves all layers.

The command itself contains no model; a `ModelReader`, found by name, reads it. See
`sae_jax.capture.reader` for the reason, and for how to add one.

Exit code 0: done; 1: failed; 2: bad usage; 75: stopped by a signal. The same command
then continues after the last complete shard, and writes the same files as a run without
interruption.
"""

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from job_jax.command import run_command
from job_jax.flags import Flags, UsageError, one_of, parse_flags
from job_jax.metrics import Progress
from job_jax.schema import NonNegativeInt, PositiveInt
from job_jax.steps import StopSignal
from job_jax.working import working
from sae_jax.capture.collection import Collection
from sae_jax.capture.parts import ROLES, Part, iter_parts
from sae_jax.capture.reader import hook_name
from sae_jax.capture.source import CaptureSource
from sae_jax.config import CaptureConfig, Hook
from sae_jax.data.shard_index import DTYPES, ShardIndex

# Values (tokens times width) in one layer's shard: 256 MiB in bfloat16.
_SHARD_VALUES = 1 << 27
_PROGRESS_LINES = 200  # at most, for a whole collection

_USAGE = """\
usage: python -m sae_jax.collect --model=DIR --text=FILE --layers=8,16 --out=DIR

Writes a model's activations on a text, several layers in one pass. Each layer gets a
folder that `python -m sae_jax.train` can train on. To resume after an interruption, run
the same command again.

flags:"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectFlags(CaptureConfig, Flags):
    """The flags of this command."""

    # a Hugging Face directory, or what --reader takes
    model: str = dataclasses.field()
    # a file of text (a document a paragraph), a .jsonl (one a line), or hub:NAME
    text: str = dataclasses.field()
    # the stream after or before a layer, or the output of its MLP or attention
    hook: Hook = CaptureConfig.hook
    # tokens in a window; longer documents are split; 0: the model's maximum, but at
    # most 1,024
    context_size: NonNegativeInt = CaptureConfig.context_size
    batch_size: PositiveInt = CaptureConfig.batch_size  # windows in a forward pass
    # read only this many, from the first on; 0: all
    max_documents: NonNegativeInt = CaptureConfig.max_documents
    # huggingface, or your package.module:Class
    reader: str = CaptureConfig.reader
    layers: tuple[int, ...]  # counted from 0, such as 8,16
    out: str  # the directory to write or to resume
    dtype: Annotated[str, one_of(DTYPES)] = "bfloat16"  # of the rows on disk
    # tokens per file, the most that a kill can lose; 0: 256 MiB of a layer
    shard_tokens: NonNegativeInt = 0


def main(argv: Sequence[str]) -> int:
    """Returns the exit code of the command."""
    return run_command(lambda: _run_command(argv), (OSError,))


def _run_command(argv: Sequence[str]) -> None:
    flags, _ = parse_flags(argv, CollectFlags, usage=_USAGE)
    layers = sorted(set(flags.layers))
    if len(layers) < len(flags.layers):
        asked = ",".join(map(str, flags.layers))
        raise UsageError(f"--layers={asked} names a layer twice")
    stop = StopSignal()
    stop.install()
    with working("collect"):
        with working("loading the model"):
            source = CaptureSource.open(flags, layers, prefix="--")
        tokens = flags.shard_tokens or max(1, _SHARD_VALUES // source.reader.width)
        collection = open_collection(
            source, Path(flags.out), dtype=flags.dtype, shard_tokens=tokens
        )
        collect(source, collection, dtype=flags.dtype, part_tokens=tokens, stop=stop)
    done = collection.progress
    folders = [str(collection.folder(layer)) for layer in layers]
    print(
        json.dumps(
            {
                "activations": folders,
                "documents": done.document + 1,
                "tokens": done.tokens,
            }
        )
    )


def open_collection(
    source: CaptureSource, out: Path, *, dtype: str, shard_tokens: int
) -> Collection:
    """Returns the collection in a directory: a new one, or one to resume.

    Raises ShardError if the directory holds anything else.
    """
    indexes = {
        layer: ShardIndex(
            width=source.reader.width,
            dtype=dtype,
            layer=layer,
            hook=hook_name(source.config.hook, layer),
            model=source.reader.name,
            roles=ROLES,
            factors=(),
            num_problems=1,  # set to the number of documents once all are read
            vocabulary=tuple(source.reader.vocabulary),
        )
        for layer in source.layers
    }
    settings = {"dtype": dtype, "shard_tokens": shard_tokens}
    return Collection(out, source.identity() | settings, indexes)


def collect(
    source: CaptureSource,
    collection: Collection,
    *,
    dtype: str,
    part_tokens: int,
    stop: StopSignal,
) -> None:
    """Reads and writes the rest of the collection; each part is a shard of each layer.

    Raises StoppedError between two passes if a signal came.
    """
    if collection.progress.finished:
        return
    shown = _CollectProgress(source.num_documents, collection.progress.document)
    windows = (
        window
        for window in source.windows(collection.progress.document)
        if collection.lacks(window)
    )
    for part in iter_parts(windows, part_tokens=part_tokens):

        def after_batch(tokens: int, part: Part = part) -> None:
            shown.update(part, tokens)
            if tokens < part.tokens:
                stop.check()

        with working("reading activations"):
            values = source.read(part, dtype=DTYPES[dtype], after_batch=after_batch)
        by_layer = dict(zip(source.layers, values, strict=True))
        with working("writing a shard of each layer"):
            collection.add(part, by_layer, source.reader)
        stop.check()
    shown.close()
    collection.finish()


class _CollectProgress:
    """Shows documents, tokens per second and the time left, in at most 200 lines."""

    def __init__(self, total: int, start: int):
        self._progress = Progress("collect", total, every=1, start=start)
        self._step = max(1, total // _PROGRESS_LINES)
        self._shown = start
        self._new_tokens = self._of_part = 0

    def update(self, part: Part, tokens: int) -> None:
        """Reports how many tokens of a part are read; a part may be the next one.

        A part's windows are not read in order, so its finished documents are estimated
        from its tokens.
        """
        self._new_tokens += tokens - self._of_part
        self._of_part = tokens % part.tokens
        first, last = part.windows[0].document, part.windows[-1].document
        documents = first + (last + 1 - first) * tokens // part.tokens
        if documents - self._shown >= self._step or tokens == part.tokens:
            self._progress.update(documents, {}, tokens=self._new_tokens)
            self._shown, self._new_tokens = documents, 0

    def close(self) -> None:
        """Ends the progress line, which stays visible."""
        self._progress.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
