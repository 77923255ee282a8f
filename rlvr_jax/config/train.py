"""The two stages that learn: the supervised start, and reinforcement learning."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from job_jax.schema import (
    ConfigSection,
    Constraint,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check,
    read_other_names,
)
from rlvr_jax.algorithms.advantages.rule import AdvantageRule
from rlvr_jax.algorithms.advantages.rules.group_relative import GroupRelative
from rlvr_jax.algorithms.objective import PolicyObjective
from rlvr_jax.algorithms.published import LossConfig
from rlvr_jax.config.learn import LoRAConfig, OptimizerConfig, RewardConfig
from rlvr_jax.config.probe import RFGOConfig
from rlvr_jax.config.sampling import (
    MAX_COMPLETIONS,
    SamplingConfig,
    check_num_completions,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SFTConfig(ConfigSection):
    """The supervised start on worked solutions."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        steps="sft_steps max_steps num_steps total_steps epochs num_epochs",
        batch_size="bs batch train_batch_size",
        grad_accum_steps="gradient_accumulation_steps grad_accum accumulation_steps",
    )

    steps: NonNegativeInt = 300  # optimizer steps; 0: no such stage
    batch_size: PositiveInt = 96  # worked solutions a step
    grad_accum_steps: PositiveInt = 1  # parts of a batch, sorted by length
    optimizer: OptimizerConfig = OptimizerConfig(schedule="cosine")

    def __post_init__(self) -> None:
        """Refuses a batch that does not divide into its parts."""
        super().__post_init__()
        check(
            self.batch_size % self.grad_accum_steps == 0,
            f"batch_size={self.batch_size} does not split into grad_accum_steps="
            f"{self.grad_accum_steps}; make it a multiple",
        )
        check(
            self.batch_size <= MAX_COMPLETIONS,
            f"batch_size={self.batch_size} is a slip: no step can hold so many worked "
            f"solutions; the default is {type(self).batch_size}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig(ConfigSection):
    """Reinforcement learning with verifiable rewards."""

    earlier_values: ClassVar[Mapping[str, Any]] = {"activation_gib": 0.0}

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        steps=(
            "max_steps num_steps total_steps total_training_steps iterations "
            "num_train_epochs total_epochs"
        ),
        batch_size=(
            "bs batch train_batch_size rollout_batch_size "
            "per_device_train_batch_size generation_batch_size"
        ),
        group_size=(
            "n g num_generations n_samples_per_prompt samples_per_prompt "
            "num_samples num_rollouts rollouts_per_prompt group"
        ),
        num_minibatches="steps_per_generation minibatches",
        num_epochs="epochs ppo_epochs num_iterations max_epochs update_epochs",
        grad_accum_steps="gradient_accumulation_steps grad_accum accumulation_steps",
        micro_batch_tokens="max_token_len_per_gpu ppo_max_token_len_per_gpu",
        overlong_buffer="overlong_buffer_len",
        staleness="async_train off_policy_steps async_level",
        packing="packing_samples use_remove_padding",
    )

    steps: NonNegativeInt = 200  # rollout batches
    batch_size: PositiveInt = 16  # P, problems a step
    group_size: PositiveInt = 8  # G, completions a problem
    num_minibatches: PositiveInt = 1  # optimizer steps a pass over one rollout batch
    num_epochs: PositiveInt = 1  # passes over one rollout batch
    grad_accum_steps: PositiveInt = 1  # micro-batches of a minibatch, also in scoring
    # Instead: tokens of a micro-batch, prompts and padding included; 0: off
    micro_batch_tokens: NonNegativeInt = 0
    # On a CPU device, estimated GiB of activations of a micro-batch (also in SFT);
    # larger micro-batches are split; 0: no limit
    activation_gib: NonNegativeFloat = 1.0
    # Completions of a group share rows in passes and updates, if attention is plain
    packing: bool = False
    logits_chunk_size: NonNegativeInt = 0  # positions with logits at once; 0: by size
    max_logprob_mismatch: PositiveFloat = 0.5  # mean |sampler - trainer|, nats; or stop
    overlong_buffer: NonNegativeInt = 0  # DAPO's penalty on the last N tokens; 0: off
    old_logprobs: Literal["sampler", "trainer"] = "sampler"  # denominator of the ratio
    # Rollouts of step t are sampled with the weights before step t - staleness
    staleness: Annotated[
        int, Constraint("be 0, 1 or 2", lambda steps: 0 <= steps <= 2)
    ] = 0
    optimizer: OptimizerConfig = OptimizerConfig(learning_rate=3e-4)
    reward: RewardConfig = RewardConfig()
    advantage: AdvantageRule = GroupRelative()
    loss: PolicyObjective = LossConfig()
    lora: LoRAConfig = LoRAConfig()
    rfgo: RFGOConfig = RFGOConfig()
    sampling: SamplingConfig = SamplingConfig()

    def __post_init__(self) -> None:
        """Refuses batch shapes and losses that cannot be computed."""
        super().__post_init__()
        self._check_shapes()
        self._check_loss()

    @property
    def groups_per_micro_batch(self) -> int:
        """Returns the prompts of a micro-batch, each with its whole group."""
        return self.batch_size // (self.num_minibatches * self.grad_accum_steps)

    @property
    def rows_per_group(self) -> int:
        """Returns the rows of a group in an update: G, plus 1 for an external trace."""
        return self.group_size + self.loss.has_external_traces

    @property
    def optimizer_steps(self) -> int:
        """Returns the optimizer steps of the whole stage."""
        return self.steps * self.optimizer_steps_per_batch

    @property
    def optimizer_steps_per_batch(self) -> int:
        """Returns the optimizer steps on one rollout batch; the first is on-policy."""
        return self.num_epochs * self.num_minibatches

    @property
    def scores_own_policy(self) -> bool:
        """Returns whether the trainer must score the rollouts before the update.

        The first optimizer step is on-policy and reads no old log-probabilities. If it
        is the only step, just the choice of tokens by entropy needs this pass.
        """
        return self.old_logprobs == "trainer" and (
            self.optimizer_steps_per_batch > 1 or self.loss.top_entropy_quantile < 1.0
        )

    def _check_shapes(self) -> None:
        """Refuses a batch that does not split, and one that compares nothing."""
        check(
            self.group_size > 1,
            "group_size=1 leaves nothing to compare a completion with, "
            "so every advantage is 0; use at least 2",
        )
        check_num_completions(
            self.sampling.max_new_tokens,
            batch_size=self.batch_size,
            group_size=self.group_size,
        )
        parts = self.num_minibatches * self.grad_accum_steps
        check(
            self.batch_size % parts == 0,
            f"batch_size={self.batch_size} does not split into "
            f"num_minibatches={self.num_minibatches} x "
            f"grad_accum_steps={self.grad_accum_steps}; "
            f"make it a multiple of {parts}",
        )
        check(
            self.micro_batch_tokens == 0 or self.grad_accum_steps == 1,
            f"micro_batch_tokens={self.micro_batch_tokens} splits a minibatch by "
            f"tokens, and grad_accum_steps={self.grad_accum_steps} by groups; set "
            "grad_accum_steps=1, or micro_batch_tokens=0",
        )
        check(
            self.sampling.temperature > 0,
            "sampling.temperature=0 repeats one completion G times; "
            "use a positive temperature",
        )
        check(
            self.overlong_buffer <= self.sampling.max_new_tokens,
            f"overlong_buffer={self.overlong_buffer} is longer than a completion of "
            f"sampling.max_new_tokens={self.sampling.max_new_tokens}; lower it",
        )

    def _check_loss(self) -> None:
        """Refuses a loss that needs inputs which other settings do not provide."""
        check(
            self.loss.top_entropy_quantile == 1.0 or self.old_logprobs == "trainer",
            f"loss.top_entropy_quantile={self.loss.top_entropy_quantile} needs every "
            "token's entropy before the update, but old_logprobs=sampler does not "
            "compute it; set old_logprobs=trainer",
        )
        check(
            self.advantage.reads_traces or not self.loss.has_external_traces,
            f"loss.external_traces={self.loss.external_traces} needs an advantage for "
            f"each trace, and advantage.name={self.advantage.tags()['name']} has none; "
            "set advantage.name=group_relative",
        )
        check(
            self.rfgo.lambda_w == 0 or self.loss.has_token_gains,
            f"rfgo.lambda_w={self.rfgo.lambda_w} weighs the tokens of a completion, "
            "but with this loss they all gain the same, so weights of mean 1 change "
            "nothing; set loss.importance_sampling_level=token, or rfgo.lambda_w=0",
        )
        reads = self.loss.reads_policy_before_update
        check(
            not reads
            or self.old_logprobs == "trainer"
            or self.optimizer_steps_per_batch == 1,
            f"loss.{reads} needs the trainer's log-probabilities before the update, "
            "but old_logprobs=sampler has none after the first of num_epochs="
            f"{self.num_epochs} x num_minibatches={self.num_minibatches} optimizer "
            "steps; set old_logprobs=trainer",
        )
        check(
            self.staleness == 0 or self.loss.tis_cap > 0,
            f"staleness={self.staleness} learns from rollouts of an older policy, but "
            "train.loss.tis_cap=0 does not correct for it; set train.loss.tis_cap, for "
            "example to 2",
        )
        check(
            not self.loss.exclude_zero_variance or self.rfgo.lambda_p == 0,
            "loss.exclude_zero_variance=true leaves out the groups that rfgo.lambda_p="
            f"{self.rfgo.lambda_p} gives an advantage; set exclude_zero_variance=false,"
            " or rfgo.lambda_p=0",
        )
