"""Every configuration field and its one default.

A recipe in `configs/` is a function `get_config()` that returns a `Config`; its
docstring is the lab record. Values are checked where they are born: constructing a
config that cannot run raises `ConfigError`, which names the value and the mend. What
one field may hold is its annotation (`schema.Section` checks it); what several fields
must agree on is their section's `__post_init__`.
"""

import dataclasses
from typing import Annotated, Literal

from job_jax.config import CheckpointConfig, Decay, MeshConfig, Seed
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
from rlvr_jax.types import AnswerForm, Band

_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31)
_NOT_EMPTY = Bound("name at least one", bool)

PositiveShare = Annotated[float, Bound("lie in (0, 1]", lambda x: 0 < x <= 1)]
Prime = Annotated[int, Bound(f"be one of {_PRIMES}", lambda n: n in _PRIMES)]
ProblemType = Literal["evaluation", "inversion", "composition"]
Strategy = Literal["forward", "backward"]
RewardName = Literal["verdict", "format", "confidence", "random", "wrong_label"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(Section):
    """A decoder-only transformer: GQA, RoPE, RMSNorm, SwiGLU."""

    layers: Count = 4
    width: Count = 128  # D
    mlp_width: Count = 384  # F
    heads: Count = 4  # N, query heads
    kv_heads: Count = 4  # K, key/value heads; divides heads
    head_width: Count = 32  # H, even
    rope_base: Positive = 10_000.0
    norm_eps: Positive = 1e-6
    tie_embeddings: bool = True
    scale_embeddings: bool = False  # the stream starts at embedding * sqrt(width)
    init_scale: Positive = 1.0  # weights start at std init_scale / sqrt(fan_in)
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    layer_loop: Literal["unrolled", "scan"] = "unrolled"  # scan: short pod compiles
    remat: Literal["none", "block", "dots"] = "none"  # what backward recomputes
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


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChainMix(Section):
    """Which finite-field problems a stage sees."""

    types: Annotated[tuple[ProblemType, ...], _NOT_EMPTY] = ("evaluation", "inversion")
    steps: Annotated[
        tuple[int, ...],
        Bound(
            "hold at least one chain length, each within 1..20",
            lambda steps: bool(steps) and all(1 <= n <= 20 for n in steps),
        ),
    ] = (2, 3, 4, 5)
    step_weights: tuple[float, ...] = ()  # share of each length; () is uniform
    operand_decay: PositiveShare = (
        1.0  # operand n+1 is this often drawn for one n; 1: alike
    )
    strategies: Annotated[tuple[Strategy, ...], _NOT_EMPTY] = ("forward", "backward")
    backward_share: Share = 0.0  # of problems asked the other way round

    def __post_init__(self) -> None:
        """Refuses weights that do not fit the lengths, and too short compositions."""
        super().__post_init__()
        weights = self.step_weights
        require(
            "composition" not in self.types or min(self.steps) > 1,
            f"steps={self.steps} with types={self.types}; a composition splits its "
            "steps between two chains, give lengths within 2..20",
        )
        require(
            len(weights) in (0, len(self.steps)),
            f"step_weights has {len(weights)} entries for {len(self.steps)} steps; "
            "give one weight a length, or none",
        )
        require(
            not weights or (min(weights) >= 0 and sum(weights) > 0),
            f"step_weights={weights}; weights are >= 0 and not all 0",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiniteFieldConfig(Section):
    """Arithmetic in GF(modulus): generated, exact, graded (arXiv 2606.13125)."""

    kind: Literal["finite_field"] = "finite_field"
    modulus: Prime = 7
    symbols: Literal["fixed", "permuted"] = "fixed"  # permuted: map given in the prompt
    warmup: ChainMix = ChainMix()
    train: ChainMix = ChainMix(steps=(4, 5, 6))
    eval: ChainMix = ChainMix(steps=(2, 3, 4, 5, 6))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordConfig(Section):
    """How a record of a data set becomes a problem (GSM8K's layout by default)."""

    prompt_field: str = "question"
    answer_field: str = "answer"
    answer_marker: str = "####"  # the gold follows its last occurrence; "": whole field
    solution_field: str = ""  # worked solution; "": what stands before answer_marker
    level_field: str = ""  # a whole number, or text that ends in one; "": level 0
    type_field: str = ""  # what telemetry is cut by, such as the subject; "": none
    id_field: str = ""  # "": the record's number in its file or split
    parent_field: str = ""  # id of the problem that this one was made from; "": none
    prompt_template: str = "Question: {prompt}\nAnswer:"
    chat_template: str = ""  # Jinja, as Hugging Face's, around the prompt; "": none
    system_prompt: str = ""  # first message of a chat_template; "": none
    verifier: Literal["math", "numeric", "exact"] = "math"
    answer_form: AnswerForm = "any"  # where completions must state their answer

    def __post_init__(self) -> None:
        """Refuses a template that would drop the question, and an unused message."""
        super().__post_init__()
        require(
            "{prompt}" in self.prompt_template,
            f"prompt_template={self.prompt_template!r} has no place for the question; "
            "write {prompt} in it",
        )
        require(
            bool(self.chat_template) or not self.system_prompt,
            f"system_prompt={self.system_prompt!r} has no chat_template to stand in; "
            "set one, or write it into prompt_template",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesConfig(Section):
    """Word problems from files: JSON lines (.jsonl, .json) or .parquet."""

    kind: Literal["files"] = "files"
    train_path: str = ""  # also the source of worked solutions for the warm start
    eval_path: str = ""
    record: RecordConfig = RecordConfig()


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubConfig(Section):
    """Word problems from Hugging Face `datasets`, from the hub or a local folder."""

    kind: Literal["hub"] = "hub"
    path: str = ""  # name on the hub, or a folder
    subset: str = ""  # the configuration of a data set that has several; "": its only
    revision: str = ""  # commit or tag of the hub's repository; "": the newest
    train_split: str = "train"  # also the source of worked solutions
    eval_split: str = "test"
    record: RecordConfig = RecordConfig()


TaskConfig = FiniteFieldConfig | FilesConfig | HubConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerConfig(Section):
    """Text to ids. `symbols` is the finite-field world's own closed vocabulary."""

    kind: Literal["symbols", "sentencepiece"] = "symbols"
    vocab_size: Count = (
        512  # sentencepiece only: trained on the spot on the train split
    )


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
class AdvantageConfig(Section):
    """How a completion's reward is measured against its group."""

    baseline: Literal["group_mean", "leave_one_out"] = "group_mean"
    scale: Literal["group_std", "batch_std", "none"] = "group_std"
    guard: Literal["off", "cap", "shrink"] = "off"  # against luck on over-hard problems
    guard_cap: Positive = 1.0  # cap: no advantage of an over-hard group is larger

    def __post_init__(self) -> None:
        """Refuses a cap that nothing would be held against."""
        super().__post_init__()
        require(
            self.guard == "cap" or self.guard_cap == 1.0,
            f"guard_cap={self.guard_cap} does nothing with guard={self.guard}; set "
            "guard=cap",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardConfig(Section):
    """What a completion earns: the sum of named parts, each times its weight.

    | part        | value                                                          |
    |-------------|----------------------------------------------------------------|
    | verdict     | 1 right, 0 wrong                                               |
    | format      | 1 where the answer stands in the form asked for, else 0        |
    | confidence  | -(q - 1[right])^2, q the confidence that the completion states |
    | random      | 0 or 1 by a coin: a control                                    |
    | wrong_label | 1 where the answer agrees with a gold made wrong: a control    |

    verdict and confidence at weight 1 are RLCR.
    """

    names: Annotated[tuple[RewardName, ...], _NOT_EMPTY] = ("verdict",)
    weights: tuple[float, ...] = (1.0,)  # one a name

    def __post_init__(self) -> None:
        """Refuses weights that do not fit the names, and a name told twice."""
        super().__post_init__()
        require(
            len(self.weights) == len(self.names),
            f"weights has {len(self.weights)} entries for names={self.names}; give "
            "one weight a name",
        )
        require(
            len(set(self.names)) == len(self.names),
            f"names={self.names} tells a part twice; add up its weights",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossConfig(Section):
    """One policy loss with named parts; `configs/` and the docs name the presets.

    | preset   | ratio_level | clipping | clip_low/high | aggregation         |
    |----------|-------------|----------|---------------|---------------------|
    | GRPO     | token       | ppo      | .2 / .2       | seq_mean_token_mean |
    | Dr. GRPO | token       | ppo      | .2 / .2       | constant            |
    | DAPO     | token       | ppo      | .2 / .28      | token_mean          |
    | GSPO     | sequence    | ppo      | 3e-4 / 4e-4   | seq_mean_token_mean |
    | CISPO    | token       | cispo    | 1 / 4         | token_mean          |
    | RLOO     | product     | none     | -             | seq_mean_token_mean |

    Dr. GRPO goes with advantage.scale=none, RLOO with that and
    advantage.baseline=leave_one_out. CISPO's weight thus lies in [0, 5].
    """

    ratio_level: Literal["token", "sequence", "product"] = "token"
    clipping: Literal["ppo", "cispo", "none"] = "ppo"
    clip_low: Share = 0.2  # the ratio stays above 1 - clip_low
    clip_high: NonNegative = 0.2  # and below 1 + clip_high
    aggregation: Literal[
        "token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "constant"
    ] = "token_mean"
    kl_coef: NonNegative = 0.0  # beta; 0 keeps no reference policy and costs nothing
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coef: float = 0.0


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

    @property
    def optimizer_steps(self) -> int:
        """Returns the optimizer steps of the whole stage."""
        return self.steps * self.epochs * self.minibatches


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifficultyConfig(Section):
    """What is known of each train problem: a posterior of its pass rate.

    With the default cuts a problem of 8 samples is hard at 0 right, easy at 8.
    """

    samples: Whole = 0  # of the policy before RL, per problem; 0: no such stage
    pool: Whole = 0  # first train problems with a posterior; 0: all, or 1024 of a world
    hard_below: PositiveShare = 0.0625  # pass rate
    easy_above: Share = 0.9375  # pass rate
    confidence: PositiveShare = 0.8  # posterior mass that a band needs; else unknown
    decay: PositiveShare = 0.7  # weight of the evidence before a visit; 1: keep all

    def __post_init__(self) -> None:
        """Refuses cuts that overlap."""
        super().__post_init__()
        require(
            self.hard_below <= self.easy_above,
            f"hard_below={self.hard_below} lies above easy_above={self.easy_above}; "
            "leave room between them for medium problems",
        )


# The fields that each curriculum reads beside those that all of them do.
_CURRICULUM_READS: dict[str, tuple[str, ...]] = {
    "uniform": (),
    "bucket": ("bucket", "estimate"),
    "mixture": ("mixture", "mixture_shares", "estimate"),
    "easy_to_hard": ("window", "estimate"),
    "target": ("target",),
    "variance": (),
    "vcrl": ("vcrl_early", "vcrl_late", "vcrl_early_steps", "vcrl_momentum"),
    "filter": ("filter_low", "filter_high"),
    "one_sample": ("problem",),
    "replay": ("replay_share",),
}
_EXPLORING = ("target", "variance", "vcrl", "filter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurriculumConfig(Section):
    """Which of the pool's problems a training step asks (docs/difficulty.md).

    A field that the named curriculum does not read is refused unless left alone.
    """

    name: Literal[
        "uniform",
        "bucket",
        "mixture",
        "easy_to_hard",
        "target",
        "variance",
        "vcrl",
        "filter",
        "one_sample",
        "replay",
    ] = "uniform"
    refill_rounds: Whole = 0  # more batches a step, to replace groups without signal
    estimate: Literal["initial", "current"] = "initial"  # initial: before RL, fixed
    bucket: Band = "medium"
    mixture: Annotated[tuple[Band, ...], _NOT_EMPTY] = ("easy", "medium")
    mixture_shares: tuple[float, ...] = ()  # of the batch, by bucket; () is even
    window: PositiveShare = 0.5  # easy_to_hard: share of the pool, slid over the run
    target: Share = 0.5  # target: the pass rate to be closest to
    vcrl_early: Share = 0.3  # least variance score over the first steps
    vcrl_late: Share = 0.8  # and afterwards
    vcrl_early_steps: Whole = 20
    vcrl_momentum: Share = 0.9  # of a problem's score in the memory bank
    filter_low: Share = 0.2  # filter: least pass rate asked
    filter_high: Share = 0.8  # filter: greatest
    problem: Whole = 0  # one_sample: its number within the pool
    replay_share: Share = 0.25  # replay: of the batch, at most, for forgotten problems
    explore: Share = 0.1  # target, variance, vcrl, filter: share drawn from all

    def __post_init__(self) -> None:
        """Refuses fields without effect, and shares that do not fit the buckets."""
        super().__post_init__()
        reads = {"name", "refill_rounds", *_CURRICULUM_READS[self.name]}
        reads |= {"explore"} if self.name in _EXPLORING else set()
        for field in dataclasses.fields(self):
            value = vars(self)[field.name]
            require(
                field.name in reads or value == field.default,
                f"{field.name}={value!r} does nothing with name={self.name}; leave it "
                f"at {field.default!r}, or choose a curriculum that reads it",
            )
        require(
            self.estimate == "current" or "unknown" not in (self.bucket, *self.mixture),
            "before RL every problem is easy, medium or hard; bucket unknown needs "
            "estimate=current",
        )
        shares = self.mixture_shares
        require(
            len(shares) in (0, len(self.mixture)),
            f"mixture_shares has {len(shares)} entries for mixture={self.mixture}; "
            "give one share a bucket, or none",
        )
        require(
            not shares or (min(shares) >= 0 and sum(shares) > 0),
            f"mixture_shares={shares}; shares are >= 0 and not all 0",
        )
        require(
            self.filter_low <= self.filter_high,
            f"filter_low={self.filter_low} lies above filter_high={self.filter_high}; "
            "no pass rate lies between them",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalConfig(Section):
    """Held-out evaluation: pass@k, maj@k, by level and by type."""

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
    mesh: MeshConfig = MeshConfig()
    warmup: WarmupConfig = WarmupConfig()
    difficulty: DifficultyConfig = DifficultyConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
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
        require(
            (self.tokenizer.kind == "symbols") == (self.task.kind == "finite_field"),
            f"tokenizer.kind={self.tokenizer.kind} does not read task.kind="
            f"{self.task.kind}; pair symbols with finite_field, sentencepiece with "
            "files or hub",
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
        samplings = {"train": self.train.sampling, "eval": self.eval.sampling}
        for name, sampling in samplings.items():
            require(
                sampling.max_new_tokens < self.model.max_length,
                f"{name}.sampling.max_new_tokens={sampling.max_new_tokens} leaves no "
                f"room for a prompt within model.max_length={self.model.max_length}; "
                "lower it, or allow more",
            )
