"""The settings of the policy: sizes, and what sets one family apart from another."""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import NOT_EMPTY
from job_jax.schema import Count, NonNegative, Positive, Section, Whole, require

LayerKind = Literal["full", "sliding"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """A decoder-only transformer: GQA, RoPE, RMSNorm, a gated MLP.

    The defaults are Llama's shape. `models.sizes` has the usual checkpoints'.
    """

    layers: Count = 4
    width: Count = 128  # D
    mlp_width: Count = 384  # F
    heads: Count = 4  # N, query heads
    kv_heads: Count = 4  # K, key/value heads; divides heads
    head_width: Count = 32  # H, even
    rope_base: Positive = 10_000.0
    sliding_rope_base: NonNegative = 0.0  # of sliding layers, unscaled; 0: as the rest
    rope_scaling: Literal["none", "linear", "llama3"] = (
        "none"  # slower turns, so longer
    )
    rope_factor: Positive = 1.0  # linear, llama3: turns are this much slower
    rope_original_length: Count = 8192  # llama3: pairs that turn in less of it, less so
    rope_low_turns: Positive = 1.0  # llama3: slowed in full up to so many turns in it
    rope_high_turns: Positive = 4.0  # llama3: not slowed from so many turns on
    layer_kinds: Annotated[tuple[LayerKind, ...], NOT_EMPTY] = ("full",)  # repeated
    window: Whole = 0  # tokens that sliding layers see, the last one included
    qkv_bias: bool = False  # queries, keys and values have biases
    qk_norm: bool = False  # each query and key head is normalised before it turns
    score_width: NonNegative = 0.0  # scores are q k / sqrt(this); 0: head_width
    score_cap: NonNegative = 0.0  # scores pass cap tanh(x / cap); 0: off
    logit_cap: NonNegative = 0.0  # logits, likewise
    activation: Literal["silu", "gelu_tanh"] = "silu"  # of the MLP's gate
    norm_eps: Positive = 1e-6
    norm_from_zero: bool = False  # norms scale by 1 + w, and w starts at 0
    post_norms: bool = False  # what attention and MLP add is normalised, too
    tie_embeddings: bool = True
    scale_embeddings: bool = False  # the stream starts at embedding * sqrt(width)
    init_scale: Positive = 1.0  # weights start at std init_scale / sqrt(fan_in)
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    layer_loop: Literal["unrolled", "scan"] = "unrolled"  # scan: short pod compiles
    attention_chunk: Whole = 0  # queries whose scores exist at once; 0: all
    remat: Literal["none", "block", "dots"] = "none"  # what backward recomputes
    attention: Literal["auto", "plain", "cudnn", "splash"] = "auto"  # by platform
    shard_sequence: bool = False  # between products, tokens lie over the tensor axis
    max_length: Count = 512  # tokens of prompt + completion; longer is refused

    def __post_init__(self) -> None:
        """Refuses sizes that do not fit together."""
        super().__post_init__()
        require(
            self.heads % self.kv_heads == 0,
            f"heads={self.heads} is not a multiple of kv_heads={self.kv_heads}; choose "
            "kv_heads that divides heads",
        )
        require(
            self.head_width % 2 == 0,
            f"head_width={self.head_width} is odd; RoPE turns pairs, make it even",
        )
        sliding = "sliding" in self.layer_kinds
        require(
            sliding == (self.window > 0),
            f"window={self.window} with layer_kinds={self.layer_kinds}; sliding layers "
            "need a window of at least 1, and no others do",
        )
        require(
            sliding or not self.sliding_rope_base,
            f"sliding_rope_base={self.sliding_rope_base} without sliding layers; set "
            "it to 0, or name them in layer_kinds",
        )
        require(
            (self.rope_scaling == "none") == (self.rope_factor == 1),
            f"rope_factor={self.rope_factor} with rope_scaling={self.rope_scaling}; "
            "none keeps the factor at 1, the others need another",
        )
        require(
            self.rope_low_turns < self.rope_high_turns,
            f"rope_low_turns={self.rope_low_turns} must be below rope_high_turns="
            f"{self.rope_high_turns}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainedConfig(Section):
    """The weights that a run starts from: a Hugging Face directory, or none.

    The directory's config.json must describe `model`: docs/huggingface.md.
    """

    path: str = ""  # config.json and safetensors; "": weights drawn from the seed
    vocab_size: Whole = 0  # V, the rows of its embedding; 0: as its config.json says

    def __post_init__(self) -> None:
        """Refuses a vocabulary of nothing."""
        super().__post_init__()
        require(
            self.path != "" or self.vocab_size == 0,
            f"vocab_size={self.vocab_size} without a path; weights that are drawn have "
            "a row for each of the tokenizer's tokens, leave it 0",
        )
