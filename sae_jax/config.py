"""Every configuration field and its one default.

A recipe in `configs/` is a function `get_config()` that returns a `Config`; its
docstring is the lab record. Constructing a config that cannot run raises
`ConfigError`, which names the value and the fix.
"""

import dataclasses
import math
from typing import Annotated, Literal

from job_jax.config import CheckpointConfig, DecayRate, MeshConfig, Seed
from job_jax.schema import (
    ConfigSection,
    Constraint,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    check,
)

Dtype = Literal["float32", "bfloat16"]
# The stream after and before a layer, and the outputs of its MLP and attention.
Hook = Literal["resid_post", "resid_pre", "mlp_out", "attn_out"]

# ReasonScore's words, as published: a lower-case word counts in four variants, a
# capitalized one only as it is. https://arxiv.org/abs/2503.18878
REASONING_WORDS = (
    "alternatively",
    "hmm",
    "maybe",
    "wait",
    "perhaps",
    "let me",
    "therefore",
    "however",
    "But",
    "Another",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SAEConfig(ConfigSection):
    """The autoencoder: its latents, how many are active, and their nested groups.

    | special case | setting                                               |
    |--------------|-------------------------------------------------------|
    | TopK         | activation=topk, group_fractions=(1.0,), loss.alpha=0 |
    | BatchTopK    | group_fractions=(1.0,), loss.alpha=0                  |
    | Matryoshka   | loss.alpha=0                                          |
    | JumpReLU     | every trained TSAE at inference                       |
    """

    latents: PositiveInt = 4096  # Z; usually 16 times the width of the activations
    k: PositiveInt = 32  # active latents a token; on average for batch_topk
    group_fractions: tuple[float, ...] = (0.2, 0.8)  # of Z; the first is high-level
    activation: Literal["batch_topk", "topk"] = "batch_topk"  # topk: k in each token
    topk_tolerance: UnitInterval = 0.002  # share of k*B that may be active beyond k*B
    normalize: bool = True  # train on x / rms(x) of the first batch; folded on export

    def __post_init__(self) -> None:
        """Raises ConfigError if k exceeds Z, or if the groups do not add up to Z."""
        super().__post_init__()
        check(
            self.k <= self.latents,
            f"k={self.k} asks for more active latents than latents={self.latents}; "
            "lower k, or raise latents",
        )
        check(
            math.isclose(sum(self.group_fractions), 1.0, abs_tol=1e-6),
            f"group_fractions={self.group_fractions} add up to "
            f"{sum(self.group_fractions):g}; they are shares of "
            "all latents, so make them add up to 1",
        )
        check(
            min(self.group_sizes) > 0,
            f"group_fractions={self.group_fractions} leave a group of "
            f"latents={self.latents} empty; "
            "give each a positive share, or raise latents",
        )

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Returns the latents of each group; the last group takes the remainder."""
        firsts = [int(share * self.latents) for share in self.group_fractions[:-1]]
        return (*firsts, self.latents - sum(firsts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(ConfigSection):
    """Nested reconstructions + auxk_coef * AuxK + alpha * temporal contrast."""

    alpha: NonNegativeFloat = 0.1  # weight of the contrast; the baseline has 0
    contrast: Literal["infonce", "l1_cosine"] = "infonce"  # l1_cosine: L1 times cosine
    similarity: Literal["cosine", "dot"] = "cosine"  # infonce only
    temperature: PositiveFloat = 0.1  # infonce only: similarities are divided by it
    infonce_reduction: Literal["mean", "sum"] = "mean"  # over the two cross-entropies
    contrast_block_size: NonNegativeInt = 512  # pairs per block (infonce); 0: the batch
    positive_sparsity: Literal["own", "shared"] = "shared"  # threshold for positives
    group_weights: tuple[float, ...] = (1.0, 1.0)  # of each nested reconstruction
    mse_reduction: Literal["sum", "mean"] = "mean"  # over the width D
    auxk_coef: NonNegativeFloat = 1 / 32  # 0: dead latents stay dead
    dead_after_tokens: PositiveInt = 10_000_000  # tokens without firing

    def __post_init__(self) -> None:
        """Raises ConfigError on negative weights, or a last weight of 0."""
        super().__post_init__()
        weights = self.group_weights
        check(
            min(weights, default=-1) >= 0 and weights[-1] > 0,
            f"group_weights={weights}; weights must be >= 0, and the last, for the "
            "full reconstruction, must be positive",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(ConfigSection):
    """Adam with a clip, a linear warm-up from 0 and a linear decay to 0."""

    learning_rate: PositiveFloat = 3e-4  # peak
    b1: DecayRate = 0.9  # decay of the first moment, per step
    b2: DecayRate = 0.999  # and of the second moment
    eps: PositiveFloat = 1e-8  # added to the root of the second moment
    warmup_steps: NonNegativeInt = 1000  # linear from 0
    lr_decay_fraction: UnitInterval = 0.2  # share of the steps, at the end; 0: none
    clip_norm: PositiveFloat = 1.0  # largest norm of the whole gradient


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsConfig(ConfigSection):
    """Where the pairs (x, positive) come from, and which tokens are skipped."""

    path: str = ""  # a directory of activation shards; "": synthetic data
    beside: tuple[str, ...] = ()  # same texts at other checkpoints, for a crosscoder
    verify: bool = True  # read every shard and check its SHA-256 before training
    buffer_tokens: NonNegativeInt = 0  # shuffled at a time, for large data; 0: all
    batch_size: PositiveInt = 4096  # pairs per step, over all devices
    positive: Literal["previous", "random"] = "previous"  # random: any earlier token
    roles: tuple[str, ...] = ()  # whose tokens pair; (): response, or all without it
    max_norm_ratio: PositiveFloat = 10.0  # times the median; tokens above are skipped
    eval_fraction: Annotated[
        float, Constraint("lie in (0, 1)", lambda x: 0 < x < 1)
    ] = 0.05  # share of problems; half calibrate the threshold, half measure

    def __post_init__(self) -> None:
        """Raises ConfigError on fields that need a `path`, if there is none."""
        super().__post_init__()
        check(
            bool(self.path) or not self.beside,
            f"pairs.beside={self.beside} without a pairs.path; set pairs.path to the "
            "activations of the first checkpoint",
        )
        check(
            bool(self.path) or not self.buffer_tokens,
            f"pairs.buffer_tokens={self.buffer_tokens} without a pairs.path; for "
            "activations straight from a model, set stream.buffer_tokens",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CaptureConfig(ConfigSection):
    """Which model reads which text, and which activations are captured."""

    model: str = ""  # a Hugging Face directory, or what the reader takes
    text: str = ""  # a file of text, a .jsonl, or hub:NAME of a data set
    hook: Hook = "resid_post"  # stream after or before the layer, or a part's output
    context_size: NonNegativeInt = 0  # tokens; 0: the model's, but at most 1,024
    batch_size: PositiveInt = 8  # windows per forward pass
    compute_dtype: Dtype = "float32"  # of the model's weights and activations
    max_documents: NonNegativeInt = 0  # read only this many; 0: all
    text_field: str = "text"  # .jsonl and hub: the key that holds the document
    subset: str = ""  # hub: subset of the data set
    split: str = "train"  # hub: split of the data set
    reader: str = "huggingface"  # or package.module:Class, a ModelReader


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamConfig(CaptureConfig):
    """Training straight from a model; with model="", from pairs.path instead."""

    layer: NonNegativeInt = 0  # counted from 0
    buffer_tokens: PositiveInt = 65_536  # read and shuffled at a time

    def __post_init__(self) -> None:
        """Raises ConfigError on a model without a text, or a text without a model."""
        super().__post_init__()
        check(
            bool(self.model) == bool(self.text),
            f"model={self.model!r} and text={self.text!r}; give both, or neither",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(ConfigSection):
    """How long to train, how many replicas, and how the threshold is averaged."""

    steps: PositiveInt = 10_000  # optimizer steps
    num_seeds: PositiveInt = 1  # trained together, from different initial weights
    no_contrast_baseline: bool = True  # for each seed, also train one with alpha = 0
    compute_dtype: Dtype = "float32"  # of the matmuls' operands; sums are float32
    products: Literal["auto", "dense", "sparse"] = "auto"  # sparse: with kept latents
    threshold_decay: DecayRate = 0.999  # per step, for the inference threshold's mean
    threshold_start_step: NonNegativeInt = 1000  # the threshold is unset before it

    def __post_init__(self) -> None:
        """Raises ConfigError if the threshold would never be set, and on bad products.

        Sparse products are implemented in float32 only.
        """
        super().__post_init__()
        check(
            self.threshold_start_step + 1 < self.steps,
            f"threshold_start_step={self.threshold_start_step} leaves no step of steps="
            f"{self.steps} to find the inference threshold; lower it, or train longer",
        )
        check(
            self.products != "sparse" or self.compute_dtype == "float32",
            f"products=sparse and compute_dtype={self.compute_dtype}: sparse products "
            "need float32; set products=dense, or compute_dtype=float32",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(ConfigSection):
    """What the user sees during a run."""

    every: PositiveInt = 50  # steps between metrics and progress lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(ConfigSection):
    """A whole run."""

    name: str = "tsae"  # in reports and exported files
    seed: Seed = 0  # of weights and data order
    sae: SAEConfig = SAEConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    pairs: PairsConfig = PairsConfig()
    stream: StreamConfig = StreamConfig()
    train: TrainConfig = TrainConfig()
    mesh: MeshConfig = MeshConfig(cpu_devices=1)  # large matmuls fill the cores
    checkpoint: CheckpointConfig = CheckpointConfig(every=1000)
    log: LogConfig = LogConfig()

    def __post_init__(self) -> None:
        """Raises ConfigError on combinations that cannot train."""
        super().__post_init__()
        groups, weights = self.sae.group_fractions, self.loss.group_weights
        check(
            len(groups) == len(weights),
            f"loss.group_weights={weights} does not fit "
            f"sae.group_fractions={groups}; give one "
            "weight a group",
        )
        check(
            not (self.stream.model and self.pairs.path),
            f"stream.model={self.stream.model} and pairs.path={self.pairs.path}: "
            "activations come from a model or from disk, not both; leave one empty",
        )
        check(
            not self.stream.model or self.stream.buffer_tokens > self.pairs.batch_size,
            f"stream.buffer_tokens={self.stream.buffer_tokens} holds no batch of "
            f"pairs.batch_size={self.pairs.batch_size} pairs; raise it",
        )
        rows, batch = self.loss.contrast_block_size, self.pairs.batch_size
        check(
            rows == 0 or batch <= rows or batch % rows == 0,
            f"pairs.batch_size={batch} does not split into blocks of "
            f"loss.contrast_block_size={rows}; make it a multiple, or "
            "contrast_block_size=0",
        )
        steps, warmup = self.train.steps, self.optimizer.warmup_steps
        check(
            warmup + self.optimizer.lr_decay_fraction * steps <= steps,
            f"optimizer.warmup_steps={warmup} and lr_decay_fraction="
            f"{self.optimizer.lr_decay_fraction} overlap in train.steps={steps}; "
            "shorten "
            "one, or train longer",
        )
