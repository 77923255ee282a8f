"""Where each parameter lies in a Hugging Face checkpoint.

Theirs is a matrix [out, in] by layer; ours is [L, in, out] with heads an axis of their
own. Reading and writing go by this one table.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rlvr_jax.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class Place:
    """A parameter's tensors: their name, `{}` for the layer, and their form.

    `columns` is how many of our axes, the first of one layer, are the columns of their
    matrix; the others are its rows. 0: theirs has our order.
    """

    name: str
    columns: int = 0

    def shape(self, ours: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of one tensor from that of our parameter in one layer."""
        if not self.columns:
            return (math.prod(ours),) if "layers" in self.name else tuple(ours)
        rows, columns = ours[self.columns :], ours[: self.columns]
        return math.prod(rows), math.prod(columns)

    def slices(self, index: Sequence[slice], ours: Sequence[int]) -> tuple[slice, ...]:
        """Returns the part of their tensor that is the part `index` of ours."""
        if not self.columns:
            if "layers" in self.name:
                return (_joined(index, ours),)
            return tuple(index)
        at = self.columns
        return _joined(index[at:], ours[at:]), _joined(index[:at], ours[:at])

    def to_ours(self, theirs: np.ndarray, part: Sequence[int]) -> np.ndarray:
        """Returns a part of their tensor in our form."""
        return (theirs.T if self.columns else theirs).reshape(part)

    def to_theirs(self, ours: np.ndarray) -> np.ndarray:
        """Returns one layer of our parameter as their whole tensor."""
        if not self.columns:
            return ours.reshape(self.shape(ours.shape))
        rows, columns = self.shape(ours.shape)
        return ours.reshape(columns, rows).T


def places(config: ModelConfig) -> dict[str, Place]:
    """Returns the place of each parameter, by its dotted path."""
    layer = "model.layers.{}."
    post = "post_attention_layernorm"
    inner = {
        "attention_norm.scale": Place("input_layernorm.weight"),
        "query": Place("self_attn.q_proj.weight", 1),
        "key": Place("self_attn.k_proj.weight", 1),
        "value": Place("self_attn.v_proj.weight", 1),
        "out": Place("self_attn.o_proj.weight", 2),
        "mlp_norm.scale": Place(
            f"{'pre_feedforward_layernorm' if config.post_norms else post}.weight"
        ),
        "gate": Place("mlp.gate_proj.weight", 1),
        "up": Place("mlp.up_proj.weight", 1),
        "down": Place("mlp.down_proj.weight", 1),
    }
    if config.qkv_bias:
        inner |= {
            "query_bias": Place("self_attn.q_proj.bias"),
            "key_bias": Place("self_attn.k_proj.bias"),
            "value_bias": Place("self_attn.v_proj.bias"),
        }
    if config.qk_norm:
        inner |= {
            "query_norm.scale": Place("self_attn.q_norm.weight"),
            "key_norm.scale": Place("self_attn.k_norm.weight"),
        }
    if config.post_norms:
        inner |= {
            "attention_post_norm.scale": Place(f"{post}.weight"),
            "mlp_post_norm.scale": Place("post_feedforward_layernorm.weight"),
        }
    outer = {
        "embedding": Place("model.embed_tokens.weight"),
        "final_norm.scale": Place("model.norm.weight"),
    } | ({} if config.tie_embeddings else {"head": Place("lm_head.weight")})
    return outer | {
        f"blocks.{path}": Place(layer + place.name, place.columns)
        for path, place in inner.items()
    }


def _joined(index: Sequence[slice], sizes: Sequence[int]) -> slice:
    """Returns the range of a joined axis that parts of its axes make.

    Heads may be split over devices, the width of a head is whole.
    """
    inner = math.prod(sizes[1:])
    start, stop, _ = index[0].indices(sizes[0])
    whole = all(
        part.indices(n)[:2] == (0, n)
        for part, n in zip(index[1:], sizes[1:], strict=True)
    )
    if not whole:
        raise ValueError(f"{index} of axes {sizes} is no one range")
    return slice(start * inner, stop * inner)
