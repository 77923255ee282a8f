"""Every configuration field and its one default. The defaults are the preset `rlvr`.

A recipe in `configs/` is a function `get_config()` that returns a `Config`; its
docstring is the lab record. Constructing a config that cannot run raises
`ConfigError`, which names the value and the mend.
"""

import dataclasses
import math
from typing import Annotated, Literal

from job_jax.config import NOT_EMPTY, CheckpointConfig, Decay, MeshConfig, Seed
from job_jax.schema import (
    Bound,
    Count,
    NonNegative,
    Positive,
    Section,
    Share,
    Whole,
    require,
)

Dtype = Literal["float32", "bfloat16"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SAEConfig(Section):
    """The dictionary: how many latents, how many of them speak at once, how nested.

    | special case     | setting                                      |
    |------------------|----------------------------------------------|
    | TopK             | activation=topk, groups=(1.0,), loss.alpha=0 |
    | BatchTopK        | groups=(1.0,), loss.alpha=0                  |
    | Matryoshka       | loss.alpha=0                                 |
    | JumpReLU         | what every trained TSAE is at inference      |
    """

    latents: Count = 4096  # Z; 16 times the width of the activations is usual
    k: Count = 32  # active latents a token: on average in batch_topk, each in topk
    groups: tuple[float, ...] = (0.2, 0.8)  # shares of Z; the first is high-level
    activation: Literal["batch_topk", "topk"] = "batch_topk"
    count_tolerance: Share = 0.002  # a batch's active latents may exceed k*B by it
    normalize: bool = True  # train on x / rms(x) of the first batch; folded on export

    def __post_init__(self) -> None:
        """Refuses more active latents than there are, and groups that do not tile Z."""
        super().__post_init__()
        require(
            self.k <= self.latents,
            f"k={self.k} asks for more active latents than latents={self.latents}; "
            "lower k, or widen the dictionary",
        )
        require(
            math.isclose(sum(self.groups), 1.0, abs_tol=1e-6),
            f"groups={self.groups} add up to {sum(self.groups):g}; they are shares of "
            "all latents, make them add up to 1",
        )
        require(
            min(self.group_sizes) > 0,
            f"groups={self.groups} leave a group of latents={self.latents} empty; "
            "give each a positive share, or widen the dictionary",
        )

    @property
    def group_sizes(self) -> tuple[int, ...]:
        """Returns the latents of each group; the last takes what rounding leaves."""
        firsts = [int(share * self.latents) for share in self.groups[:-1]]
        return (*firsts, self.latents - sum(firsts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(Section):
    """Nested reconstructions + auxk_coef * AuxK + alpha * temporal contrast."""

    alpha: NonNegative = 0.1  # weight of the contrast; the twin is trained with 0
    contrast: Literal["infonce", "l1_cosine"] = "infonce"
    similarity: Literal["cosine", "dot"] = "cosine"  # infonce only
    temperature: Positive = 0.1  # infonce only: similarities are divided by it
    directions: Literal["mean", "sum"] = "mean"  # of infonce's two cross-entropies
    contrast_rows: Whole = 512  # pairs told apart at once (infonce); 0: all of a batch
    partner_sparsity: Literal["own", "shared"] = (
        "shared"  # partners keep their own largest, or what the tokens' cut lets by
    )
    group_weights: tuple[float, ...] = (1.0, 1.0)  # of each nested reconstruction
    squared_error: Literal["sum", "mean"] = "mean"  # over the width D
    auxk_coef: NonNegative = 1 / 32  # 0: dead latents stay dead
    dead_after: Count = 10_000_000  # tokens of silence

    def __post_init__(self) -> None:
        """Refuses weights that no reconstruction could have."""
        super().__post_init__()
        weights = self.group_weights
        require(
            min(weights, default=-1) >= 0 and weights[-1] > 0,
            f"group_weights={weights}; weights are >= 0, and the last, that of the "
            "full reconstruction, is positive",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """Adam with a clip, a linear warm-up from 0 and a linear decay to 0."""

    learning_rate: Positive = 3e-4  # peak
    b1: Decay = 0.9
    b2: Decay = 0.999
    eps: Positive = 1e-8
    warmup_steps: Whole = 1000
    decay_share: Share = 0.2  # of all steps, at the end; 0: none
    clip_norm: Positive = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairsConfig(Section):
    """Where the pairs (x_t, partner) come from, and which tokens are left out."""

    path: str = ""  # a directory of activation shards; "": the synthetic world
    verify: bool = False  # read every shard and check its SHA-256 before training
    batch_size: Count = 4096  # pairs a step, over all devices
    partner: Literal["previous", "random"] = "previous"  # random: an earlier token
    roles: Annotated[tuple[str, ...], NOT_EMPTY] = ("response",)  # whose tokens pair
    max_norm_ratio: Positive = 10.0  # times the median norm; tokens above are left out
    hold_out: Annotated[float, Bound("lie in (0, 1)", lambda x: 0 < x < 1)] = (
        0.05  # share of the documents, for calibration and measurement
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """How long, how many clones in one program, and how the cut is found."""

    steps: Count = 10_000
    seeds: Count = 1  # dictionaries trained at once from different initial weights
    twin: bool = True  # beside each of them one with alpha = 0: same seed, same data
    compute_dtype: Dtype = "float32"  # of the matmuls' operands; sums are float32
    threshold_decay: Decay = 0.999  # per step, of the inference threshold's average
    threshold_start: Whole = 1000  # steps before the threshold starts to follow

    def __post_init__(self) -> None:
        """Refuses a run so short that its threshold would never be set."""
        super().__post_init__()
        require(
            self.threshold_start + 1 < self.steps,
            f"threshold_start={self.threshold_start} leaves no step of steps="
            f"{self.steps} to find the inference threshold; lower it, or train longer",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(Section):
    """What the user sees while it runs."""

    every: Count = 50  # steps between metrics and progress lines


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Section):
    """A whole run."""

    name: str = "tsae"
    seed: Seed = 0
    sae: SAEConfig = SAEConfig()
    loss: LossConfig = LossConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    pairs: PairsConfig = PairsConfig()
    train: TrainConfig = TrainConfig()
    mesh: MeshConfig = MeshConfig(cpu_devices=1)  # large matmuls fill the cores
    checkpoint: CheckpointConfig = CheckpointConfig(every=1000)
    log: LogConfig = LogConfig()

    def __post_init__(self) -> None:
        """Refuses combinations that could not train."""
        super().__post_init__()
        groups, weights = self.sae.groups, self.loss.group_weights
        require(
            len(groups) == len(weights),
            f"loss.group_weights={weights} does not fit sae.groups={groups}; give one "
            "weight a group",
        )
        rows, batch = self.loss.contrast_rows, self.pairs.batch_size
        require(
            rows == 0 or batch <= rows or batch % rows == 0,
            f"pairs.batch_size={batch} does not split into blocks of "
            f"loss.contrast_rows={rows}; make it a multiple, or contrast_rows=0",
        )
        steps, warmup = self.train.steps, self.optimizer.warmup_steps
        require(
            warmup + self.optimizer.decay_share * steps <= steps,
            f"optimizer.warmup_steps={warmup} and decay_share="
            f"{self.optimizer.decay_share} overlap in train.steps={steps}; shorten "
            "one, or train longer",
        )
