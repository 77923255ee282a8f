"""The models that activations are read from, behind one protocol.

sae_jax contains no model: it should work for any, and rlvr_jax, which has decoders, is
built on top of it. So a model is a `ModelReader`, found by name like everything that
users supply: "huggingface" is ours, any other is "package.module:Class". Our reader's
place is only a string here, imported when needed. So sae_jax still imports nothing from
rlvr_jax, as our import contract demands, and can train from disk without it. A package
entry point would also work, but only for an installed package; elsewhere a clone on
PYTHONPATH is enough.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.registry import Registry
from job_jax.schema import ConfigError
from sae_jax.types import Array

READERS = Registry(
    "model reader", {"huggingface": "rlvr_jax.models.reader:HuggingFaceReader"}
)
_DEFAULT_CONTEXT = 1024  # tokens, if the model takes that many


class ModelReader(Protocol):
    """A model that turns texts into token ids, and ids into activations at hooks.

    A reader is constructed as `Reader(path, dtype=...)`, where path is --model and
    dtype, "float32" or "bfloat16", is the type to compute in. It may load the weights
    at the first `read`.
    """

    @property
    def name(self) -> str:
        """Returns the model's name for index.json."""
        ...

    @property
    def fingerprint(self) -> str:
        """Returns a hash that identifies this model, both weights and tokenizer."""
        ...

    @property
    def width(self) -> int:
        """Returns D."""
        ...

    @property
    def num_layers(self) -> int:
        """Returns L; layers are counted from 0."""
        ...

    @property
    def max_tokens(self) -> int:
        """Returns the longest row that the model reads, in tokens."""
        ...

    @property
    def vocabulary(self) -> Sequence[str]:
        """Returns the text of each token id, from 0; may be empty."""
        ...

    @property
    def prefix_ids(self) -> Sequence[int]:
        """Returns the ids put before every row, such as the begin-of-text token."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Returns the ids that no autoencoder should be trained on."""
        ...

    def encode(self, text: str) -> Sequence[int]:
        """Returns the ids of a text, without `prefix_ids`."""
        ...

    def read(
        self,
        tokens: Int[np.ndarray, "B T"],
        lengths: Int[np.ndarray, " B"],
        *,
        hook: str,
        layers: Sequence[int],
    ) -> Sequence[Float[np.ndarray, "B T D"]]:
        """Returns the activations at a hook of these layers, in their order.

        Rows are padded on the right, and no row affects another. Values beyond
        `lengths` may be anything. Arrays may be NumPy's or JAX's.
        """
        ...


class StreamEdit(Protocol):
    """Changes the residual stream of some tokens. It must be a pytree of arrays."""

    def __call__(
        self, x: Float[Array, "B T D"], edited: Bool[Array, "B T"], /
    ) -> Float[Array, "B T D"]:
        """Returns the stream, changed where `edited` is true. Traced by JAX."""
        ...


@runtime_checkable
class EditableReader(Protocol):
    """A model that can also measure the effect of editing its stream: see `splice`."""

    def compare_predictions(
        self,
        tokens: Int[np.ndarray, "B T"],
        lengths: Int[np.ndarray, " B"],
        edited: Bool[np.ndarray, "B T"],
        *,
        layer: int,
        edits: Sequence[StreamEdit],
    ) -> tuple[Float[np.ndarray, "A B N"], Float[np.ndarray, "A B N"]]:
        """Returns the cost of predicting tokens 1..T-1, and KL(unedited || edited).

        Both are in nats: first for the unedited model, then with each edit after the
        layer. Entries whose predicting or predicted token is padding may be anything.
        """
        ...


def open_reader(name: str, model: str, *, dtype: str) -> ModelReader:
    """Opens a model with the reader of that name or place. Raises ConfigError."""
    return READERS.load(name)(model, dtype=dtype)


def check_layers(reader: ModelReader, layers: Sequence[int], *, field: str) -> None:
    """Raises ConfigError unless the model has all these layers of the flag `field`."""
    wrong = [layer for layer in layers if not 0 <= layer < reader.num_layers]
    if wrong:
        raise ConfigError(
            f"{field}={','.join(map(str, layers))}: {reader.name} has no layer "
            f"{wrong[0]}; its layers are 0..{reader.num_layers - 1}"
        )


def context_size(reader: ModelReader, requested: int, *, field: str) -> int:
    """Returns the tokens of a window: `requested`, or by default at most 1,024.

    Raises ConfigError if the model takes fewer, or if the prefix leaves no room.
    """
    size = requested or min(_DEFAULT_CONTEXT, reader.max_tokens)
    shortest = len(reader.prefix_ids) + 2  # a token and its positive
    if not shortest <= size <= reader.max_tokens:
        raise ConfigError(
            f"{field}={size}; {reader.name} reads {shortest} to {reader.max_tokens} "
            "tokens at a time"
        )
    return size


def hook_name(hook: str, layer: int) -> str:
    """Returns a hook's name in TransformerLens and SAELens.

    >>> hook_name("mlp_out", 3)
    'blocks.3.hook_mlp_out'
    """
    return f"blocks.{layer}.hook_{hook}"
