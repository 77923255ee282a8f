"""The records of completions that an update reads, and the sums that it returns."""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, PyTree

from rlvr_jax.types.rollouts import Array, length_mask

TokenClass = Literal[
    "number", "operator", "separator", "word", "reasoning", "answer", "end", "other"
]
TOKEN_CLASSES: tuple[TokenClass, ...] = get_args(TokenClass)
TOKEN_STATS = (
    "tokens",
    "entropy",
    "advantage_mass",
    "logit_grad_proxy",
    "abs_log_ratio",
)
NUM_DECILES = 10  # equal parts that a completion is cut into


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """The input of an update: G completions per prompt, P prompts, padded on the right.

    Made by `learn.batches.make_batch`. None means no row, unless noted.

    loss_weights: the aggregation's weights, 0 outside a completion. They are normalized
        over the whole minibatch *before* it is split, so the sum over micro-batches is
        the loss however it is split.
    old_logprobs, ref_logprobs: 0 if the loss does not read them.
    on_policy: rows whose old log-probabilities are the update's own.
    sampler_logprobs: None if they are `old_logprobs`.
    bands: indices into BANDS, by which sums are split; -1 in rows without a band.
    probe_targets: None without a probe.
    loss_mask: the tokens that learn; None for all.
    left_out: the rows that do not learn. `loss_mask` and `left_out` stay on the host:
        `with_loss_weights` consumes them and sets them to None.
    token_weights: factors of a token's gain, not of its KL or entropy; RFGO sets them
        inside the update.
    external: rows with an external trace instead of a completion of the policy. Each
        group then has G + 1 rows, and the last is external.
    packing: the places of completions that share rows in the policy's pass; None if
        each has its own row.
    policy_mask: the tokens that the policy wrote; None for all. An environment's tokens
        are read, but not learned from.
    """

    prompt_tokens: Int[Array, " P S"]
    prompt_lengths: Int[Array, " P"]
    tokens: Int[Array, " B T"]
    lengths: Int[Array, " B"]
    loss_weights: Float[Array, " B T"]
    advantages: Float[Array, " B"]
    old_logprobs: Float[Array, " B T"]
    ref_logprobs: Float[Array, " B T"]
    bands: Int[Array, " B"]
    on_policy: Bool[Array, " B"] | None = None
    sampler_logprobs: Float[Array, " B T"] | None = None
    probe_targets: "ProbeTargets | None" = None
    loss_mask: Bool[Array, " B T"] | None = None
    left_out: Bool[Array, " B"] | None = None
    token_weights: Float[Array, " B T"] | None = None
    external: Bool[Array, " B"] | None = None
    packing: "Packing | None" = None
    policy_mask: Bool[Array, " B T"] | None = None

    @property
    def mask(self) -> Bool[Array, " B T"]:
        """Returns which positions hold tokens that the policy wrote."""
        mask_BT = length_mask(self.lengths, self.tokens.shape[1])
        return mask_BT if self.policy_mask is None else mask_BT & self.policy_mask

    def without_external(self) -> "Batch":
        """Returns the batch with its external rows emptied, inside a jitted program."""
        if self.external is None:
            return self
        own_B = jnp.where(self.external, 0, self.lengths)
        return dataclasses.replace(self, lengths=own_B, external=None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExternalTraces:
    """A worked solution for each of P problems, added to the policy's completions.

    Written by `rollouts.external`, read by `learn.batches`. Tokens at and beyond
    `lengths` are 0; a length of 0 is a problem without a trace. `advantages` compare
    the traces' rewards with the rewards of the policy's own completions.
    """

    tokens: Int[Array, " P T"]
    lengths: Int[Array, " P"]
    advantages: Float[Array, " P"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Packing:
    """The places of a micro-batch's tokens in U packed rows, U / P of each prompt.

    Written by `learn.packing`, read by `learn.logprobs`. `source` is a packed token's
    place in its group's completions, g * T + t, and -1 in padding. `target` is the
    place of a completion's token in its group's packed rows, u * T + column, and 0
    beyond its length.
    """

    source: Int[Array, " U T"]
    target: Int[Array, " B T"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeTargets:
    """RFGO's data on completions. Written by `stages.probe_hooks`.

    `outcomes` are values of `Outcome`. Rows with `proxy_eligible` may earn a proxy
    advantage: well-formed completions of groups whose rewards show no preference.
    `ref_features` are the features of the reference policy's residual stream, if
    `train.rfgo` needs them. `row` numbers the step's completions: however
    a batch is split, a completion keeps its number, and so its random stream.
    """

    row: Int[Array, " B"]
    outcomes: Int[Array, " B"]
    proxy_eligible: Bool[Array, " B"]
    ref_features: Float[Array, " B T R"] | None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReasoningFeatures:
    """The weights of a probe's R features in one step. Written by `stages.probe_hooks`.

    A token's activation is a = sum_k weights_k f_k / scale_k, where f are the features
    that the probe's reader computes. The sizes of `weights` add up to 1.
    `proxy_strength` is lambda_p of this step. `key` sets the order of token weights in
    the control that shuffles them.
    """

    weights: Float[Array, " R"]
    scale: Float[Array, " R"]
    proxy_strength: Float[Array, ""]
    key: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureSums:
    """Statistics of the features in a minibatch: sums that add up over micro-batches.

    Written by `learn.rfgo`, read by `probe.rfgo_state`. Rows run over BANDS. A
    completion's quality is its mean activation. The M = 3 moments of a group, over
    verified completions, are the covariance of quality and outcome around the group's
    means, and the sum of squares of each. `moments` sums them over groups with both
    outcomes, and `moment_products` sums the products of every two.
    """

    tokens_by_band: Float[Array, " Q"]
    sums_by_band: Float[Array, " Q R"]
    num_tokens: Float[Array, ""]  # of all rows, also those without a band
    sum_squares: Float[Array, " R"]  # over these tokens
    tokens_by_outcome: Float[Array, " 2"]  # incorrect, correct
    sums_by_outcome: Float[Array, " 2 R"]
    num_informative_groups: Float[Array, ""]
    moments: Float[Array, " 3"]
    moment_products: Float[Array, " 3 3"]
    proxy_groups: Float[Array, ""]
    proxy_completions: Float[Array, ""]
    weight_sq_deviation: Float[Array, ""]  # sum of (w - 1)^2 over tokens
    num_weighted_tokens: Float[Array, ""]

    def __add__(self, other: "FeatureSums") -> "FeatureSums":
        """Returns the sums over the completions of both."""
        return jax.tree.map(jnp.add, self, other)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardGroups:
    """The rewards of P problems, G completions each. By `rollouts.step_rewards`.

    Where `judged` is False a completion has no reward of its own, and its advantage is
    0 whatever a rule returns. `lengths` count a completion's tokens. `pass_rate` is the
    posterior mean before these completions were sampled; for a problem outside the pool
    it is the prior's. `overhard` marks a pass rate below `difficulty.hard_below`, and
    `confidence` is the posterior probability that the true rate is not below it.
    """

    rewards: Float[Array, " P G"]
    judged: Bool[Array, " P G"]
    lengths: Int[Array, " P G"]
    pass_rate: Float[Array, " P"]
    overhard: Bool[Array, " P"]
    confidence: Float[Array, " P"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyTokens:
    """The inputs of a policy objective for each token; every array is 0 in padding.

    Written by `algorithms.losses.policy_loss`, read by `PolicyObjective.gain`.
    Gradients flow through `logprobs` and `entropies`; `old_logprobs` are constants.
    `advantages` holds a completion's advantage at each of its tokens; `lengths` count
    the tokens in `mask`.
    """

    logprobs: Float[Array, " B T"]
    old_logprobs: Float[Array, " B T"]
    advantages: Float[Array, " B T"]
    entropies: Float[Array, " B T"]  # 0 if the pass does not compute them
    mask: Bool[Array, " B T"]
    lengths: Int[Array, " B"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossAux:
    """The diagnostics of a loss: sums over true tokens that add up over micro-batches.

    Written by the objectives in `learn`, added up by `learn.update`, read by the loop,
    which logs every entry of `scalars`, divided by `tokens`, as loss/NAME. `loss` is
    the weighted objective; the other sums are unweighted. `logprob_mismatch` is
    |log pi - log pi_sampler|: before the first optimizer step on a rollout it is the
    disagreement between sampler and trainer, later it includes the policy's movement.
    `by_band` has one row per band: tokens, entropy, kl, clipped tokens. `token_stats`
    holds TOKEN_STATS by band and by decile or token class (`algorithms.token_stats`).
    With a probe, `feature_sums` cover the reasoning features, and `latent_sums`, in
    steps that need them, all latents. External rows are only in `loss` and in
    `external_sums` (sums of log pi and of tokens; None if the objective takes no
    external rows).
    """

    loss: Float[Array, ""]
    tokens: Float[Array, ""]
    scalars: dict[str, Float[Array, ""]]
    logprob_mismatch: Float[Array, ""]
    logprob_mismatch_max: Float[Array, ""]  # a maximum, not a sum
    by_band: Float[Array, " Q M"]
    token_stats: Float[Array, " Q K M"]
    feature_sums: FeatureSums | None = None
    latent_sums: PyTree = None
    external_sums: Float[Array, " 2"] | None = None

    def __add__(self, other: "LossAux") -> "LossAux":
        """Returns the diagnostics of the two token sets together."""
        total = jax.tree.map(jnp.add, self, other)
        largest = jnp.maximum(self.logprob_mismatch_max, other.logprob_mismatch_max)
        latents = self.latent_sums
        if latents is not None:
            latents = latents + other.latent_sums
        return dataclasses.replace(
            total, logprob_mismatch_max=largest, latent_sums=latents
        )
