"""The results of a policy pass: hidden states, captured streams, keys and values."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prefix:
    """The keys and values of prompts, which all completions of a group share.

    `key_values` is a tuple of L `KeyValues`, or one with a leading L axis if
    `scan_layers`; `mask` marks the prompts' true tokens.
    """

    key_values: PyTree
    mask: Bool[Array, " P S"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Activations:
    """Final hidden states (after the last norm), and captured residual streams.

    With `capture_layers=(3, 7)`, `captured[0]` is the residual stream after layer 3.
    """

    hidden: Float[Array, " B T D"]
    captured: tuple[Float[Array, " B T D"], ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class HiddenStates:
    """The results of `Transformer.hidden_states` on prompts and their completions.

    `first` predicts completion token 0: it is the hidden state of the prompt's last
    true token, repeated for each completion. `completions.hidden[:, t]` predicts
    completion token t + 1.
    """

    first: Float[Array, " B D"]
    prompts: Activations
    completions: Activations


def last_hidden(
    hidden_PSD: Float[Array, " P S D"], lengths: Int[Array, " P"]
) -> Float[Array, " P D"]:
    """Returns the hidden state at the last true token of rows padded on the right."""
    last_P11 = lengths[:, None, None] - 1
    return jnp.take_along_axis(hidden_PSD, last_P11, axis=1)[:, 0]
