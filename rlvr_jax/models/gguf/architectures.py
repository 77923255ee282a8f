"""How llama.cpp stores each architecture: names of tensors, and changes to values."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from job_jax.schema import ConfigError

EMBEDDING, HEAD = "token_embd.weight", "output.weight"
# The factors of Llama 3's RoPE, one for each frequency. All the rest are weights.
ROPE_FACTORS = "rope_freqs.weight"

_OUTER_NAMES = {
    EMBEDDING: "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    HEAD: "lm_head.weight",
}
_COMMON = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_QK_NORM = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
_POST_NORMS = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Architecture:
    """One value of `general.architecture`.

    Args:
        name: as the file has it.
        family: our family of models (rlvr_jax/models/families) that computes it.
        layer_names: Hugging Face's name of each part of a layer, by llama.cpp's.
        fields: fields of `ModelConfig` that all models of it have.
        rope_interleaved: llama.cpp rotates neighboring rows of queries and keys, so it
            stores them in another order than Hugging Face, which rotates halves.
        norms_plus_one: norms are stored as 1 + w, and the model scales by 1 + w.
    """

    name: str
    family: str
    layer_names: Mapping[str, str]
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rope_interleaved: bool = False
    norms_plus_one: bool = False

    def hf_name(self, name: str) -> str:
        """Returns Hugging Face's name of a tensor, or "" if it has none.

        Example:
            >>> llama = find_architecture("llama", where="model.gguf")
            >>> llama.hf_name("blk.3.attn_q.weight")
            'model.layers.3.self_attn.q_proj.weight'
        """
        if name in _OUTER_NAMES:
            return _OUTER_NAMES[name]
        match name.split("."):
            case ["blk", layer, part, kind] if part in self.layer_names:
                return f"model.layers.{layer}.{self.layer_names[part]}.{kind}"
        return ""


# Here Mistral's models have the architecture llama.
_ALL = (
    Architecture(
        name="llama", family="llama", layer_names=_COMMON, rope_interleaved=True
    ),
    Architecture(
        name="qwen2", family="qwen2", layer_names=_COMMON, fields={"qkv_bias": True}
    ),
    Architecture(
        name="qwen3",
        family="qwen3",
        layer_names=_COMMON | _QK_NORM,
        fields={"qk_norm": True},
    ),
    Architecture(
        name="gemma3",
        family="gemma3",
        layer_names=_COMMON | _QK_NORM | _POST_NORMS,
        norms_plus_one=True,
        fields={
            "qk_norm": True,
            "activation": "gelu_tanh",
            "rms_norm_unit_offset": True,
            "use_post_norms": True,
            "scale_embeddings": True,
        },
    ),
)
_ARCHITECTURES = {architecture.name: architecture for architecture in _ALL}


def find_architecture(name: str, *, where: str) -> Architecture:
    """Returns the architecture of this name. Raises ConfigError if it is not supported.

    The message begins with `where`.
    """
    if name not in _ARCHITECTURES:
        raise ConfigError(
            f"{where}: architecture {name!r} is not supported; "
            f"{', '.join(_ARCHITECTURES)} are (Mistral models are stored as llama)"
        )
    return _ARCHITECTURES[name]
