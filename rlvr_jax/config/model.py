"""Settings of the policy: its sizes, its architecture, and how it is computed."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from job_jax.config import NON_EMPTY
from job_jax.registry import Registry
from job_jax.schema import (
    ConfigSection,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check,
    did_you_mean,
    read_other_names,
)

LayerType = Literal["full", "sliding"]
RopeScaling = Literal["none", "linear", "dynamic", "llama3", "yarn"]

PRETRAINED = "pretrained"  # as `model` or `model.family`: read from pretrained.path

# Checkpoint families, one module each; a user's own is "package.module:NAME".
FAMILIES = Registry(
    "model family",
    {
        name: f"rlvr_jax.models.families.{name}:FAMILY"
        for name in ("llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3")
    },
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(ConfigSection):
    """A decoder-only transformer with GQA, RoPE, RMSNorm and a gated MLP.

    The defaults are a small Llama. `rlvr_jax.models.families.SIZES` has the configs of
    published checkpoints. `family` only says how a Hugging Face checkpoint of the model
    is read and written (rlvr_jax/models/families); the other fields define the
    computation.

    With `pretrained.path`, fields that you leave out are read from its config.json, and
    fields that you give must agree with it. family="pretrained" reads the family from
    it, too; `Config(model="pretrained")` is short for this.
    """

    shorthands: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        PRETRAINED: {"family": PRETRAINED}
    }

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        family="architecture arch model_type",
        num_layers="n_layers n_layer num_hidden_layers layers",
        hidden_size="d_model n_embd dim hidden_dim",
        intermediate_size="d_ff ffn_dim mlp_dim",
        num_heads="n_heads n_head num_attention_heads heads",
        num_kv_heads="num_key_value_heads n_kv_heads",
        compute_dtype="dtype bf16 precision torch_dtype",
        remat="gradient_checkpointing enable_gradient_checkpointing",
        attention="attn_implementation flash_attention",
        max_seq_len=(
            "max_length max_model_len n_ctx seq_len context_length "
            "block_size max_position_embeddings max_sequence_length"
        ),
    )

    family: str = "llama"  # llama ... or "package.module:NAME"; pretrained: as loaded
    num_layers: PositiveInt = 4  # L
    hidden_size: PositiveInt = 128  # D
    intermediate_size: PositiveInt = 384  # F
    num_heads: PositiveInt = 4  # N, query heads
    num_kv_heads: PositiveInt = 4  # K, key/value heads; divides num_heads
    head_dim: PositiveInt = 32  # H, even
    rope_theta: PositiveFloat = 10_000.0  # base of RoPE's wavelengths
    rope_local_theta: NonNegativeFloat = 0.0  # of sliding layers; 0: the same
    rope_scaling: RopeScaling = "none"  # method for a longer context
    rope_factor: PositiveFloat = 1.0  # divides low frequencies; linear: all frequencies
    rope_original_max_position: PositiveInt = 8192  # context before scaling; not linear
    # A frequency's turns within rope_original_max_position decide how it is scaled
    rope_low_freq_factor: PositiveFloat = 1.0  # llama3: up to these turns, scaled
    rope_high_freq_factor: PositiveFloat = 4.0  # llama3: from these turns on, unscaled
    rope_beta_fast: PositiveFloat = 32.0  # yarn: from these turns on, unscaled
    rope_beta_slow: PositiveFloat = 1.0  # yarn: up to these turns, divided
    rope_truncate: bool = True  # yarn: the mix between both begins at whole pairs
    rope_attention_factor: NonNegativeFloat = 0.0  # yarn: of cos, sin; 0: by the factor
    layer_types: Annotated[tuple[LayerType, ...], NON_EMPTY] = ("full",)  # repeated
    sliding_window: NonNegativeInt = 0  # tokens, with the current one; 0: no such layer
    qkv_bias: bool = False  # queries, keys and values have biases
    out_bias: bool = False  # attention's output has a bias
    mlp_bias: bool = False  # the MLP's three products have biases
    qk_norm: bool = False  # each query and key head is normalized before RoPE
    query_pre_attn_scalar: NonNegativeFloat = 0.0  # q k / sqrt(this); 0: head_dim
    attn_logit_softcap: NonNegativeFloat = 0.0  # scores: cap tanh(x / cap); 0: off
    final_logit_softcap: NonNegativeFloat = 0.0  # logits, likewise
    activation: Literal["silu", "gelu_tanh"] = "silu"  # of the MLP's gate
    norm_eps: PositiveFloat = 1e-6  # added to the mean square in RMSNorm
    rms_norm_unit_offset: bool = False  # norms scale by 1 + w, and w starts at 0
    use_post_norms: bool = False  # outputs of attention and MLP are normalized, too
    tie_embeddings: bool = True  # the output layer is the embedding
    scale_embeddings: bool = False  # embeddings are multiplied by sqrt(hidden_size)
    init_scale: PositiveFloat = 1.0  # weights start at std init_scale / sqrt(fan_in)
    compute_dtype: Literal["float32", "bfloat16"] = "float32"  # of products
    param_dtype: Literal["float32", "bfloat16"] = "float32"  # of stored weights
    scan_layers: bool = False  # lax.scan over layers: compiles one layer, not all
    attention_chunk_size: NonNegativeInt = 0  # queries scored at a time; 0: all
    remat: Literal["none", "block", "dots"] = "none"  # recomputed in the backward pass
    attention: Literal["auto", "plain", "cudnn", "splash"] = "auto"  # auto: by platform
    sequence_parallel: bool = False  # between products, shard tokens over axis tensor
    max_seq_len: PositiveInt = 512  # tokens of prompt + completion; longer is refused

    def __post_init__(self) -> None:
        """Refuses sizes that do not fit together."""
        super().__post_init__()
        check(
            ":" in self.family or self.family in (*FAMILIES.names, PRETRAINED),
            f"family={self.family!r} is unknown"
            f"{did_you_mean(self.family, (*FAMILIES.names, PRETRAINED))}"
            " Your own is package.module:NAME",
        )
        if self.family != PRETRAINED:  # else config.json will replace the defaults
            self._check_sizes()
            self._check_rope()

    def _check_sizes(self) -> None:
        check(
            self.num_heads % self.num_kv_heads == 0,
            f"num_heads={self.num_heads} is not a multiple of num_kv_heads="
            f"{self.num_kv_heads}; choose num_kv_heads that divides num_heads",
        )
        check(
            self.head_dim % 2 == 0,
            f"head_dim={self.head_dim} is odd; RoPE rotates pairs, make it even",
        )
        sliding = "sliding" in self.layer_types
        check(
            sliding == (self.sliding_window > 0),
            f"sliding_window={self.sliding_window} with layer_types="
            f"{self.layer_types}; sliding layers need a window of at least 1, "
            "and full layers need 0",
        )
        check(
            sliding or not self.rope_local_theta,
            f"rope_local_theta={self.rope_local_theta} does nothing without sliding "
            "layers; set it to 0, or name them in layer_types",
        )

    def _check_rope(self) -> None:
        check(
            self.rope_scaling == "dynamic"
            or (self.rope_scaling == "none") == (self.rope_factor == 1),
            f"rope_factor={self.rope_factor} with rope_scaling={self.rope_scaling}; "
            "set it to 1 with rope_scaling=none, and to another value otherwise",
        )
        check(
            self.rope_low_freq_factor < self.rope_high_freq_factor,
            f"rope_low_freq_factor={self.rope_low_freq_factor} must be below "
            f"rope_high_freq_factor={self.rope_high_freq_factor}",
        )
        check(
            self.rope_beta_slow < self.rope_beta_fast,
            f"rope_beta_slow={self.rope_beta_slow} must be below rope_beta_fast="
            f"{self.rope_beta_fast}",
        )
        check(
            self.rope_scaling != "yarn" or self.rope_theta > 1,
            f"rope_theta={self.rope_theta} with rope_scaling=yarn; raise it above 1, "
            "because yarn needs frequencies that fall from pair to pair",
        )
        check(
            self.rope_scaling != "dynamic"
            or self.max_seq_len <= self.rope_original_max_position,
            f"max_seq_len={self.max_seq_len} is beyond rope_original_max_position="
            f"{self.rope_original_max_position}, where dynamic RoPE changes all "
            "frequencies with every token, but cached keys keep the old ones; choose "
            f"at most {self.rope_original_max_position}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedConfig(ConfigSection):
    """The weights that a run starts from: a Hugging Face directory, or none.

    The directory's config.json describes `model`: docs/models/huggingface.md.
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        path="model_name_or_path model_name model_path pretrain model_id hf_path",
    )

    path: str = ""  # holds config.json and safetensors; "": weights drawn from the seed
    vocab_size: NonNegativeInt = 0  # V, rows of the embedding; 0: from config.json

    def __post_init__(self) -> None:
        """Refuses a vocabulary size without weights."""
        super().__post_init__()
        check(
            self.path != "" or self.vocab_size == 0,
            f"vocab_size={self.vocab_size} without a path; leave it 0, because new "
            "weights get a row for each of the tokenizer's tokens",
        )
