"""The models that activations are read from, behind one protocol.

sae_jax knows no model: it is to serve who studies any, and rlvr_jax, which has
decoders, is built on it. So a model is a `ModelReader`, found by name as everything
that users bring is: "huggingface" is ours, any other is "package.module:Class". Our
reader's place is a text here, imported when it is asked for; the contract that sae_jax
imports nothing of rlvr_jax holds, and sae_jax alone trains from disk without it. An
entry point of the installed package would do the same, but only where the package has
been installed, and a clone on PYTHONPATH is enough everywhere else.
"""

from collections.abc import Sequence
from typing import Protocol, get_args, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from job_jax.registry import Registry
from job_jax.schema import ConfigError
from sae_jax.config import Hook
from sae_jax.types import Array

HOOKS: tuple[str, ...] = get_args(Hook)
READERS = Registry(
    "model reader", {"huggingface": "rlvr_jax.models.reader:HuggingFaceReader"}
)
_DEFAULT_CONTEXT = 1024  # tokens, where the model takes as many


class ModelReader(Protocol):
    """A model: texts to token ids, and ids to activations at hooks of its layers.

    A reader is made as `Reader(path, dtype=...)`, with --model and the dtype to compute
    in, "float32" or "bfloat16". Weights may be loaded at the first `read`.
    """

    @property
    def name(self) -> str:
        """Returns what the model is called in index.json."""
        ...

    @property
    def fingerprint(self) -> str:
        """Returns a hash that tells this model from others, weights and tokenizer."""
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
        """Returns what stands before every row, such as the token that begins texts."""
        ...

    @property
    def special_ids(self) -> frozenset[int]:
        """Returns the ids that no autoencoder is to be trained on."""
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

        Rows are padded on the right, and none sees another. What is returned beyond
        `lengths` may be anything. NumPy's arrays or JAX's.
        """
        ...


class StreamEdit(Protocol):
    """Changes the residual stream of some tokens. Make it a pytree of arrays."""

    def __call__(
        self, x: Float[Array, "B T D"], edited: Bool[Array, "B T"], /
    ) -> Float[Array, "B T D"]:
        """Returns the stream, changed where `edited` is true. Traced by JAX."""
        ...


@runtime_checkable
class EditableReader(Protocol):
    """A model that also says what editing its residual stream does: see `splice`."""

    def compare_predictions(
        self,
        tokens: Int[np.ndarray, "B T"],
        lengths: Int[np.ndarray, " B"],
        edited: Bool[np.ndarray, "B T"],
        *,
        layer: int,
        edits: Sequence[StreamEdit],
    ) -> tuple[Float[np.ndarray, "A B N"], Float[np.ndarray, "A B N"]]:
        """Returns what predicting tokens 1..T-1 costs, and KL(as it is || edited).

        In nats; first the model as it is, then with each edit after the layer. Entries
        that no true token predicts, or that predict none, may be anything.
        """
        ...


def open_reader(name: str, model: str, *, dtype: str) -> ModelReader:
    """Returns the reader of that name or place, of one model. Raises ConfigError."""
    return READERS.load(name)(model, dtype=dtype)


def check_layers(reader: ModelReader, layers: Sequence[int], *, field: str) -> None:
    """Raises ConfigError unless the model has all these layers; `field` named them."""
    wrong = [layer for layer in layers if not 0 <= layer < reader.num_layers]
    if wrong:
        raise ConfigError(
            f"{field}={','.join(map(str, layers))}: {reader.name} has no layer "
            f"{wrong[0]}; its layers are 0..{reader.num_layers - 1}"
        )


def context_size(reader: ModelReader, asked: int, *, field: str) -> int:
    """Returns the tokens of a window: `asked`, or by default 1,024 at most.

    Raises ConfigError where the model takes fewer, or nothing fits behind its prefix.
    """
    size = asked or min(_DEFAULT_CONTEXT, reader.max_tokens)
    shortest = len(reader.prefix_ids) + 2  # a token, and its positive
    if not shortest <= size <= reader.max_tokens:
        raise ConfigError(
            f"{field}={size}; {reader.name} reads {shortest} to {reader.max_tokens} "
            "tokens at a time"
        )
    return size


def hook_name(hook: str, layer: int) -> str:
    """Returns a hook as TransformerLens and SAELens call it.

    >>> hook_name("mlp_out", 3)
    'blocks.3.hook_mlp_out'
    """
    return f"blocks.{layer}.hook_{hook}"
