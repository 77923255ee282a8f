"""Which tensor of a Hugging Face checkpoint holds each of our parameters.

Hugging Face stores matrices [out, in], one per layer; ours are [L, in, out], with a
separate axis for heads. Reading and writing use the same table.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rlvr_jax.config import ModelConfig


@dataclasses.dataclass(frozen=True)
class ParamMapping:
    """The tensors that hold one parameter: their name, and how to transpose them.

    `hf_name` has `{}` for the layer number. Within one layer, our first
    `num_input_axes` axes are the columns of their matrix and our other axes are its
    rows; 0 means that both have the same order of axes.
    """

    hf_name: str
    num_input_axes: int = 0

    def hf_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of their tensor, given one layer of our shape."""
        if not self.num_input_axes:
            return (math.prod(shape),) if "layers" in self.hf_name else tuple(shape)
        rows, columns = shape[self.num_input_axes :], shape[: self.num_input_axes]
        return math.prod(rows), math.prod(columns)

    def hf_slices(
        self, index: Sequence[slice], shape: Sequence[int]
    ) -> tuple[slice, ...]:
        """Returns the slices of their tensor that hold the slices `index` of ours."""
        if not self.num_input_axes:
            if "layers" in self.hf_name:
                return (_flat_slice(index, shape),)
            return tuple(index)
        n = self.num_input_axes
        return _flat_slice(index[n:], shape[n:]), _flat_slice(index[:n], shape[:n])

    def from_hf(self, tensor: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """Returns a part of their tensor, transposed and reshaped to our `shape`."""
        return (tensor.T if self.num_input_axes else tensor).reshape(shape)

    def to_hf(self, param: np.ndarray) -> np.ndarray:
        """Returns one layer of our parameter as their tensor."""
        if not self.num_input_axes:
            return param.reshape(self.hf_shape(param.shape))
        rows, columns = self.hf_shape(param.shape)
        return param.reshape(columns, rows).T


def decoder_mapping(
    config: ModelConfig, more: Mapping[str, ParamMapping] | None = None
) -> dict[str, ParamMapping]:
    """Returns the tensor of each parameter that Llama and its relatives share.

    Keys are the dotted paths of our parameters. Biases are included if the config has
    them. `more` adds or replaces parameters of each layer; its paths and names are
    relative to the layer.

    Example:
        >>> decoder_mapping(ModelConfig())["blocks.query"].hf_name
        'model.layers.{}.self_attn.q_proj.weight'
    """
    biases = (
        (QKV_BIAS if config.qkv_bias else {})
        | (OUT_BIAS if config.out_bias else {})
        | (MLP_BIAS if config.mlp_bias else {})
    )
    layer = {
        "attention_norm.scale": ParamMapping("input_layernorm.weight"),
        "query": ParamMapping("self_attn.q_proj.weight", 1),
        "key": ParamMapping("self_attn.k_proj.weight", 1),
        "value": ParamMapping("self_attn.v_proj.weight", 1),
        "out": ParamMapping("self_attn.o_proj.weight", 2),
        "mlp_norm.scale": ParamMapping("post_attention_layernorm.weight"),
        "gate": ParamMapping("mlp.gate_proj.weight", 1),
        "up": ParamMapping("mlp.up_proj.weight", 1),
        "down": ParamMapping("mlp.down_proj.weight", 1),
    }
    layer |= biases | dict(more or {})
    outer = {
        "embedding": ParamMapping("model.embed_tokens.weight"),
        "final_norm.scale": ParamMapping("model.norm.weight"),
    } | ({} if config.tie_embeddings else {"lm_head": ParamMapping("lm_head.weight")})
    return outer | {
        f"blocks.{path}": dataclasses.replace(
            mapping, hf_name=f"model.layers.{{}}.{mapping.hf_name}"
        )
        for path, mapping in layer.items()
    }


# Parts that several families have in addition to the common ones.
QKV_BIAS = {
    f"{name}_bias": ParamMapping(f"self_attn.{name[0]}_proj.bias")
    for name in ("query", "key", "value")
}
OUT_BIAS = {"out_bias": ParamMapping("self_attn.o_proj.bias")}
MLP_BIAS = {
    f"{name}_bias": ParamMapping(f"mlp.{name}_proj.bias")
    for name in ("gate", "up", "down")
}
QK_NORM = {
    f"{name}_norm.scale": ParamMapping(f"self_attn.{name[0]}_norm.weight")
    for name in ("query", "key")
}
POST_NORMS = {
    "attention_post_norm.scale": ParamMapping("post_attention_layernorm.weight"),
    "mlp_norm.scale": ParamMapping("pre_feedforward_layernorm.weight"),
    "mlp_post_norm.scale": ParamMapping("post_feedforward_layernorm.weight"),
}


def _flat_slice(index: Sequence[slice], sizes: Sequence[int]) -> slice:
    """Returns the slice of a flattened axis that corresponds to slices of its parts.

    Heads may be split over devices; the dimensions of a head must be whole.
    """
    inner = math.prod(sizes[1:])
    start, stop, _ = index[0].indices(sizes[0])
    whole = all(
        part.indices(n)[:2] == (0, n)
        for part, n in zip(index[1:], sizes[1:], strict=True)
    )
    if not whole:
        raise ValueError(f"{index} of axes {sizes} is not one range")
    return slice(start * inner, stop * inner)
