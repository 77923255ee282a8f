"""The pass through the layers: unrolled or scanned, with captures and interventions."""

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from rlvr_jax.config.model import LayerType
from rlvr_jax.models.masks import AttentionContexts, select_context


class Intervention(Protocol):
    """Changes the residual stream after one layer.

    Make it a pytree with `layer` static and the rest arrays: interventions of one shape
    then share a compiled program. Captures of that layer, and all layers above it, see
    the changed stream. If several follow one layer, each sees the previous one's
    result.
    """

    @property
    def layer(self) -> int:
        """Returns the layer, counted from 0, after which the stream is changed."""

    def __call__(self, x: Float[Array, "B T D"], /) -> Float[Array, "B T D"]:
        """Returns the changed stream, of the same shape and dtype."""


def check_layers(
    num_layers: int,
    *,
    capture_layers: tuple[int, ...],
    interventions: tuple[Intervention, ...],
) -> None:
    """Raises ValueError if a captured or changed layer is not one of `num_layers`."""
    if not all(0 <= layer < num_layers for layer in capture_layers):
        raise ValueError(
            f"capture_layers={capture_layers} must be in 0..{num_layers - 1}"
        )
    for each in interventions:
        if not 0 <= each.layer < num_layers:
            raise ValueError(
                f"intervention after layer {each.layer}: it must be in "
                f"0..{num_layers - 1}"
            )


def split_layers(stacked: PyTree, num_layers: int) -> tuple[Any, ...]:
    """Returns the states of L layers, given one state with a leading L axis."""
    # lax.split's gradient is one concatenation; indexing would add L times.
    leaves, treedef = jax.tree.flatten(stacked)
    split = [jax.lax.split(leaf, [1] * num_layers, axis=0) for leaf in leaves]
    return tuple(
        jax.tree.unflatten(treedef, [parts[layer][0] for parts in split])
        for layer in range(num_layers)
    )


def unroll_layers(
    block: Callable[..., tuple[jax.Array, Any]],
    layers: PyTree,
    x_BTD: jax.Array,
    *,
    layer_types: tuple[LayerType, ...],
    contexts: AttentionContexts,
    layer_inputs: PyTree,
    capture_layers: tuple[int, ...],
    interventions: tuple[Intervention, ...],
) -> tuple[jax.Array, tuple[jax.Array, ...], Any]:
    """Returns the final stream, the captured streams, and each layer's output."""
    streams, outputs = [], []
    for layer, state in enumerate(layers):
        layer_input = layer_inputs[layer] if layer_inputs else None
        x_BTD, out = block(state, x_BTD, contexts[layer_types[layer]], layer_input)
        for each in interventions:
            if layer == each.layer:
                x_BTD = each(x_BTD)
        streams.append(x_BTD)
        outputs.append(out)
    return x_BTD, tuple(streams[layer] for layer in capture_layers), tuple(outputs)


def scan_layers(
    block: Callable[..., tuple[jax.Array, Any]],
    layers: PyTree,
    x_BTD: jax.Array,
    *,
    layer_types: tuple[LayerType, ...],
    contexts: AttentionContexts,
    layer_inputs: PyTree,
    capture_layers: tuple[int, ...],
    interventions: tuple[Intervention, ...],
) -> tuple[jax.Array, tuple[jax.Array, ...], Any]:
    """Returns what `unroll_layers` returns, its outputs stacked on a leading L axis."""

    def body(carry: PyTree, layer: tuple[Any, ...]) -> tuple[Any, Any]:
        x_BTD, captured = carry
        number, sliding, state, layer_input = layer
        x_BTD, out = block(state, x_BTD, select_context(sliding, contexts), layer_input)
        for each in interventions:
            x_BTD = jnp.where(number == each.layer, each(x_BTD), x_BTD)
        captured = tuple(
            jnp.where(number == wanted, x_BTD, stream)
            for wanted, stream in zip(capture_layers, captured, strict=True)
        )
        return (x_BTD, captured), out

    numbers_L = jnp.arange(len(layer_types))
    sliding_L = jnp.array([t == "sliding" for t in layer_types])
    carry = (x_BTD, tuple(jnp.zeros_like(x_BTD) for _ in capture_layers))
    (x_BTD, captured), outputs = jax.lax.scan(
        body, carry, (numbers_L, sliding_L, layers, layer_inputs)
    )
    return x_BTD, captured, outputs


def rematerialize(block: Callable, remat: str) -> Callable:
    """Returns the block, with a backward pass that recomputes as `remat` says.

    none: nothing; dots: everything except products with weights; block: everything.
    """
    policies = jax.checkpoint_policies
    if remat == "none":
        return block
    if remat == "dots":
        return jax.checkpoint(block, policy=policies.dots_with_no_batch_dims_saveable)
    return jax.checkpoint(block, policy=policies.nothing_saveable)
