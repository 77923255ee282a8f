"""Every configuration field and its one default.

A recipe in `configs/` is a function `get_config()` that returns a `Config`; its
docstring is the lab record. Values are checked where they are born: constructing a
config that cannot run raises `ConfigError`, which names the value and the mend. What
one field may hold is its annotation (`schema.Section` checks it); what several fields
must agree on is their section's `__post_init__`. The sections of problems, difficulty,
the policy, losses and the probe have modules of their own.
"""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import (
    CheckpointConfig,
    Decay,
    MeshConfig,
    PositiveShare,
    Seed,
)
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
from rlvr_jax.config_difficulty import CurriculumConfig, DifficultyConfig
from rlvr_jax.config_learn import (
    AdvantageConfig,
    LoRAConfig,
    LossConfig,
    RewardConfig,
    RewardName,
)
from rlvr_jax.config_model import ModelConfig, PretrainedConfig
from rlvr_jax.config_probe import (
    DictionaryConfig,
    FeatureSetConfig,
    ProbeConfig,
    RFGOConfig,
)
from rlvr_jax.config_tasks import (
    MATH_RECORD,
    ChainMix,
    FilesConfig,
    FiniteFieldConfig,
    HubConfig,
    ProblemType,
    RecordConfig,
    Strategy,
    TaskConfig,
    TokenizerConfig,
)

__all__ = [
    "MATH_RECORD",
    "AdvantageConfig",
    "ChainMix",
    "CheckpointConfig",
    "Config",
    "CurriculumConfig",
    "DictionaryConfig",
    "DifficultyConfig",
    "EvalConfig",
    "FeatureSetConfig",
    "FilesConfig",
    "FiniteFieldConfig",
    "HubConfig",
    "LoRAConfig",
    "LogConfig",
    "LossConfig",
    "MeshConfig",
    "ModelConfig",
    "OptimizerConfig",
    "PretrainedConfig",
    "ProbeConfig",
    "ProblemType",
    "RFGOConfig",
    "RecordConfig",
    "RewardConfig",
    "RewardName",
    "SamplerConfig",
    "SamplingConfig",
    "Strategy",
    "TaskConfig",
    "TokenizerConfig",
    "TrainConfig",
    "VerifierConfig",
    "WarmupConfig",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OptimizerConfig(Section):
    """AdamW with global-norm clipping and a warm-up."""

    learning_rate: Positive = 1e-3  # peak
    warmup_steps: Whole = 20  # linear from 0
    schedule: Literal["constant", "cosine"] = "constant"
    final_fraction: Share = 0.1  # cosine ends at this share of the peak
    b1: Decay = 0.9
    b2: Decay = 0.95
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    clip_norm: Positive = 1.0
    moments: Literal["float32", "bfloat16"] = "float32"  # how both are kept
    max_skipped: Whole = 5  # non-finite steps in a row before the run stops


@dataclasses.dataclass(frozen=True, kw_only=True)
class WarmupConfig(Section):
    """The supervised start on worked solutions."""

    steps: Whole = 300
    batch_size: Count = 96  # worked solutions a step
    micro_batches: Count = 1  # gradient accumulation; parts are sorted by length
    optimizer: OptimizerConfig = OptimizerConfig(schedule="cosine")

    def __post_init__(self) -> None:
        """Refuses a batch that cannot be split as asked."""
        super().__post_init__()
        require(
            self.batch_size % self.micro_batches == 0,
            f"batch_size={self.batch_size} does not split into micro_batches="
            f"{self.micro_batches}; make it a multiple",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplingConfig(Section):
    """How completions are drawn. All but max_new_tokens are traced, not compiled in."""

    max_new_tokens: Count = 96
    temperature: NonNegative = 1.0  # 0: greedy
    top_p: PositiveShare = 1.0  # 1: off
    top_k: Whole = 0  # 0: off
    min_new_tokens: Whole = 0  # end-of-sequence is barred before this length

    def __post_init__(self) -> None:
        """Refuses a minimum length that the maximum cannot hold."""
        super().__post_init__()
        require(
            self.min_new_tokens < self.max_new_tokens,
            f"min_new_tokens={self.min_new_tokens} must be below max_new_tokens="
            f"{self.max_new_tokens}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SamplerConfig(Section):
    """How the policy lies on the devices while it samples; docs/meshes.md counts."""

    tensor: Whole = 0  # devices that share a copy, in compute dtype; 0: as the update's


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(Section):
    """Reinforcement learning with verifiable rewards."""

    steps: Whole = 200  # rollout batches
    prompts_per_step: Count = 16  # P
    samples_per_prompt: Count = 8  # G
    minibatches: Count = 1  # optimizer steps a pass over one rollout batch
    epochs: Count = 1  # passes over one rollout batch
    micro_batches: Count = 1  # gradient accumulation within a minibatch
    logit_chunk: Whole = 0  # positions whose logits exist at once; 0: chosen by size
    max_logprob_gap: Positive = 0.5  # nats, mean |sampler - scorer|; above it, stop
    overlong_buffer: Whole = 0  # DAPO's soft penalty over the last N tokens; 0: off
    old_logprobs: Literal["sampler", "scorer"] = "sampler"  # what the ratio divides by
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=3e-4)
    reward: RewardConfig = RewardConfig()
    advantage: AdvantageConfig = AdvantageConfig()
    loss: LossConfig = LossConfig()
    lora: LoRAConfig = LoRAConfig()
    rfgo: RFGOConfig = RFGOConfig()
    sampling: SamplingConfig = SamplingConfig()

    def __post_init__(self) -> None:
        """Refuses batch shapes that cannot be split as asked."""
        super().__post_init__()
        require(
            self.samples_per_prompt > 1,
            "samples_per_prompt=1 leaves a completion nothing to be compared with, "
            "and every advantage is 0; use at least 2",
        )
        parts = self.minibatches * self.micro_batches
        require(
            self.prompts_per_step % parts == 0,
            f"prompts_per_step={self.prompts_per_step} does not split into "
            f"minibatches={self.minibatches} x micro_batches={self.micro_batches}; "
            f"make it a multiple of {parts}",
        )
        require(
            self.sampling.temperature > 0,
            "sampling.temperature=0 samples one completion G times; "
            "use a positive temperature",
        )
        require(
            self.overlong_buffer <= self.sampling.max_new_tokens,
            f"overlong_buffer={self.overlong_buffer} is longer than a completion of "
            f"sampling.max_new_tokens={self.sampling.max_new_tokens}; lower it",
        )
        require(
            self.loss.entropy_top == 1.0 or self.old_logprobs == "scorer",
            f"loss.entropy_top={self.loss.entropy_top} needs every token's entropy "
            "before the update, and old_logprobs=sampler scores none; set "
            "old_logprobs=scorer",
        )

    @property
    def optimizer_steps(self) -> int:
        """Returns the optimizer steps of the whole stage."""
        return self.steps * self.epochs * self.minibatches


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(Section):
    """Held-out evaluation: pass@k, maj@k, by band, by level and by type."""

    problems: Count = 256
    samples_per_problem: Count = 8
    k: Annotated[
        tuple[int, ...],
        Bound("hold at least one k, each at least 1", lambda k: min(k, default=0) >= 1),
    ] = (1, 2, 4, 8)
    every: Whole = 0  # RL steps between evaluations while training; 0: only at the ends
    batch_size: Count = 64  # problems sampled at once
    bootstrap: Count = 1000  # resamples behind each 95 % interval
    sampling: SamplingConfig = SamplingConfig()

    def __post_init__(self) -> None:
        """Refuses a pass@k that has too few samples."""
        super().__post_init__()
        require(
            max(self.k) <= self.samples_per_problem,
            f"k={self.k} asks for more than samples_per_problem="
            f"{self.samples_per_problem} samples; lower k or draw more",
        )
        require(
            self.sampling.temperature > 0 or self.samples_per_problem == 1,
            f"samples_per_problem={self.samples_per_problem} draws one completion "
            "again and again, for sampling.temperature=0 is greedy; use 1, or sample",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifierConfig(Section):
    """Worker processes that judge mathematics and numbers."""

    workers: Count = 2
    timeout_s: Positive = 5.0  # per item; over it the verdict is `unjudged`


@dataclasses.dataclass(frozen=True, kw_only=True)
class LogConfig(Section):
    """What the user sees while it runs."""

    rollouts_every: Count = 10  # steps between saved batches of completions
    progress_every: Count = 10  # steps between progress lines
    alarm_window: Count = 20  # steps the run doctor looks back over


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config(Section):
    """A whole run."""

    name: str = "run"
    seed: Seed = 0
    task: TaskConfig = FiniteFieldConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    pretrained: PretrainedConfig = PretrainedConfig()
    mesh: MeshConfig = MeshConfig()
    sampler: SamplerConfig = SamplerConfig()
    warmup: WarmupConfig = WarmupConfig()
    difficulty: DifficultyConfig = DifficultyConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    probe: ProbeConfig = ProbeConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    verifier: VerifierConfig = VerifierConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    prompt_bucket: Count = 16  # prompt lengths are padded up to a multiple of this
    completion_bucket: Count = 16  # completion lengths, likewise, in the update

    def __post_init__(self) -> None:
        """Refuses combinations that no stage could run."""
        super().__post_init__()
        self._check_tokenizer()
        buckets = (self.prompt_bucket, self.completion_bucket)
        tensor = self.mesh.tensor
        require(
            not self.model.shard_sequence
            or (tensor > 1 and all(bucket % tensor == 0 for bucket in buckets)),
            f"model.shard_sequence splits tokens over mesh.tensor={tensor}: make it at "
            f"least 2, and a divisor of prompt_bucket={self.prompt_bucket} and "
            f"completion_bucket={self.completion_bucket}",
        )
        rank, tensor = self.train.lora.rank, self.sampler.tensor
        require(
            rank == 0 or tensor == 0,
            f"sampler.tensor={tensor} moves whole weights, and train.lora.rank={rank} "
            "trains adapters beside weights that stay; set one of them to 0",
        )
        curriculum = self.curriculum
        require(
            curriculum.name not in ("bucket", "mixture")
            or curriculum.estimate == "current"
            or self.difficulty.samples > 0,
            f"curriculum.name={curriculum.name} takes its buckets from estimates "
            "before RL, and difficulty.samples=0 makes none; draw some, or set "
            "curriculum.estimate=current",
        )
        rfgo = self.train.rfgo
        require(
            self.probe.source != "off" or not rfgo.steers,
            f"train.rfgo.lambda_w={rfgo.lambda_w} and lambda_p={rfgo.lambda_p} need "
            "features, and probe.source=off reads none; set probe.source=stage, or "
            "both to 0",
        )
        require(
            self.probe.source == "off" or self.probe.layer < self.model.layers,
            f"probe.layer={self.probe.layer} of a policy with layers 0.."
            f"{self.model.layers - 1}; lower it",
        )
        samplings = {"train": self.train.sampling, "eval": self.eval.sampling}
        for name, sampling in samplings.items():
            require(
                sampling.max_new_tokens < self.model.max_length,
                f"{name}.sampling.max_new_tokens={sampling.max_new_tokens} leaves no "
                f"room for a prompt within model.max_length={self.model.max_length}; "
                "lower it, or allow more",
            )

    def _check_tokenizer(self) -> None:
        """Refuses a tokenizer that reads neither the problems nor the weights."""
        tokenizer, task, weights = self.tokenizer, self.task, self.pretrained.path
        closed = tokenizer.kind == "symbols"
        require(
            task.kind == "finite_field" or not closed,
            f"tokenizer.kind=symbols does not read task.kind={task.kind}; pair symbols "
            "with finite_field, sentencepiece or huggingface with files or hub",
        )
        require(
            task.kind != "finite_field" or not tokenizer.learnt,
            "tokenizer.kind=sentencepiece learns from texts, and task.kind="
            "finite_field has none; set tokenizer.kind=symbols, or a tokenizer.path",
        )
        require(
            weights == "" or not tokenizer.learnt,
            f"pretrained.path={weights!r} has an id for each token, which a tokenizer "
            "learnt anew would not know; set tokenizer.kind=huggingface, or a "
            "tokenizer.path",
        )
        require(
            tokenizer.kind != "huggingface" or tokenizer.path != "" or weights != "",
            "tokenizer.kind=huggingface names no directory; set tokenizer.path or "
            "pretrained.path",
        )
        require(
            task.kind == "finite_field"
            or task.record.chat_template != "tokenizer"
            or tokenizer.kind == "huggingface",
            f"task.record.chat_template=tokenizer, and tokenizer.kind={tokenizer.kind} "
            "carries none; give the Jinja text, or set tokenizer.kind=huggingface",
        )
