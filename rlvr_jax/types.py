"""The records that flow between stages.

Each docstring says who writes the record, who reads it, and which mask already
applies. Axes are spelled in docs/notation.md; rows of a `[B, ...]` array are
group-major: row `p * G + g` is sample g of prompt p.
"""

import dataclasses
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float, Int, UInt32

Array = Any  # JAX's on a device, NumPy's on the host: a record travels between both
VerdictStatus = Literal["right", "wrong", "unjudged"]
Band = Literal["easy", "medium", "hard", "unknown"]
BANDS: tuple[Band, ...] = get_args(Band)
TokenClass = Literal[
    "number", "operator", "separator", "word", "reasoning", "answer", "end", "other"
]
TOKEN_CLASSES: tuple[TokenClass, ...] = get_args(TokenClass)
TOKEN_MEASURES = ("tokens", "entropy", "mass", "push", "movement")
PLACES = 10  # equal parts that a completion is cut into
AnswerForm = Literal["any", "boxed", "tagged"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One verifiable question. Written by `tasks`, read by every later stage.

    `source`, `id` and `parent` are its lineage: the data it came from, its name there,
    and the id of the problem that it was made from, if any. `kind` names the verifier
    that judges answers, `answer_form` where it looks for them. `level` is a difficulty
    grade known beforehand (steps of a chain, MATH level), 0 where there is none; `type`
    is the group that telemetry is cut by (evaluation, inversion, subject). `solution`
    is a worked completion for the supervised warm start.
    """

    id: str
    prompt: str
    gold: str
    kind: str
    source: str
    answer_form: AnswerForm = "any"
    level: int = 0
    type: str = ""
    parent: str | None = None
    solution: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a verifier says of one completion, and why. `unjudged` is not `wrong`."""

    status: VerdictStatus
    reason: str = ""
    answer: str | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompts:
    """Tokenised prompts, padded on the right. Written by `data`, read by `sampler`.

    `uid` names the draw: sampling keys are a function of (seed, step, uid, sample), so
    a rollout does not depend on the other rows of its batch.
    """

    tokens: Int[Array, " P S"]
    lengths: Int[Array, " P"]
    uid: UInt32[Array, " P"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Sampled completions. Written by `sampler`, read by verifiers and `learn`.

    `lengths` counts a completion's own tokens, its end-of-sequence token included;
    tokens and logprobs at or beyond it are 0. `logprobs` are those of the very
    distribution sampled from (temperature and truncation applied). `finished` is true
    where the model stopped by itself ("stop"), false where it ran into the limit
    ("length"). `weight_version` counts the optimizer steps behind the weights.
    """

    prompts: Prompts
    tokens: Int[Array, " B T"]
    lengths: Int[Array, " B"]
    logprobs: Float[Array, " B T"]
    finished: Bool[Array, " B"]
    weight_version: Int[Array, ""]

    @property
    def finish_reasons(self) -> list[str]:
        """Returns "stop" or "length" for each of the B completions."""
        return ["stop" if done else "length" for done in self.finished.tolist()]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """What an update reads: G completions for each of P prompts, padded on the right.

    Written by `learn.batches`. `token_weights` is the aggregation: it is 0 outside a
    completion and is normalised over the whole minibatch *before* it is split, so the
    sum over micro-batches is the loss whatever the split. `old_logprobs` and
    `ref_logprobs` are 0 where the loss does not read them. `bands` are indices into
    BANDS, by which sums are cut, and -1 in rows of which no account is kept.
    `guidance` is there where a probe reads along; `credit`, set inside the update,
    where it weighs the policy's gain token by token (and no KL, no entropy). `kept`,
    where given, tells the tokens that learn; making the token weights uses it up.
    """

    prompt_tokens: Int[Array, " P S"]
    prompt_lengths: Int[Array, " P"]
    tokens: Int[Array, " B T"]
    lengths: Int[Array, " B"]
    token_weights: Float[Array, " B T"]
    advantages: Float[Array, " B"]
    old_logprobs: Float[Array, " B T"]
    ref_logprobs: Float[Array, " B T"]
    bands: Int[Array, " B"]
    guidance: "Guidance | None" = None
    kept: Bool[Array, " B T"] | None = None
    credit: Float[Array, " B T"] | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Guidance:
    """What a probe needs to know of a batch's completions. Written by `learn.batches`.

    `outcomes` are 0 wrong, 1 right, 2 unjudged. `proxied` rows may earn a proxy: those
    of groups without a preference, unless malformed. `ref_levels` are the reference
    policy's feature levels, 0 where the movement does not read them.
    """

    outcomes: Int[Array, " B"]
    proxied: Bool[Array, " B"]
    ref_levels: Float[Array, " B T"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Guide:
    """R reasoning features, as an update reads them. Written by `probes`.

        f_k = pre_k where pre_k > threshold_k, else 0
        pre_k = (h - center) . encoder_k + bias_k
        level = sum_k weights_k f_k / scale_k

    `weights` add up to 1 in size. `proxy_strength` is lambda_p of this step; `key` is
    for the control arm that shuffles token weights.
    """

    center: Float[Array, " D"]
    encoder: Float[Array, " D R"]
    bias: Float[Array, " R"]
    threshold: Float[Array, " R"]
    weights: Float[Array, " R"]
    scale: Float[Array, " R"]
    proxy_strength: Float[Array, ""]
    key: Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class GuideSums:
    """What the features did in a minibatch: sums that add up over micro-batches.

    Written by `learn.rfgo`, read by `guidance`. Rows run over BANDS. A completion's
    quality is its mean level; `covariance`, `quality_square` and `outcome_square` are
    of quality and outcome within their groups, over judged completions.
    """

    tokens: Float[Array, " Q"]
    sums: Float[Array, " Q R"]
    level_tokens: Float[Array, ""]  # of all rows, those without a band as well
    squares: Float[Array, " R"]  # over these tokens
    outcome_tokens: Float[Array, " 2"]  # wrong, right
    outcome_sums: Float[Array, " 2 R"]
    covariance: Float[Array, ""]
    quality_square: Float[Array, ""]
    outcome_square: Float[Array, ""]
    proxied_groups: Float[Array, ""]
    proxied_rows: Float[Array, ""]
    weight_deviation: Float[Array, ""]  # sum of (w - 1)^2 over tokens
    weighed_tokens: Float[Array, ""]

    def __add__(self, other: "GuideSums") -> "GuideSums":
        """Returns the sums over the completions of both."""
        return jax.tree.map(jnp.add, self, other)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LossParts:
    """What a loss says of itself: sums over true tokens that add up over micro-batches.

    Written by the objectives in `learn`, added up by `learn.update`, read by the loop,
    which logs the means. `loss` is the weighted objective; every other sum is over
    tokens, unweighted, and means something once divided by `tokens`.
    `logprob_gap` is |log pi - log pi_old|: before the first optimizer step on a rollout
    it is the disagreement between sampler and scorer, afterwards the policy's movement.
    `kl` and `entropy` are 0 where the loss was not given what they are made of.
    `by_band` holds a row a band: tokens, entropy, kl, clipped tokens. `by_cell` holds
    TOKEN_MEASURES by band and by tenth or class: see `learn.token_sums`. `guide` and
    `latents` are what a probe saw, where one reads along: of the reasoning features,
    and, in a step that asks for it, of all latents (any record that adds up).
    """

    loss: Float[Array, ""]
    tokens: Float[Array, ""]
    ratio: Float[Array, ""]
    clip_low: Float[Array, ""]
    clip_high: Float[Array, ""]
    kl: Float[Array, ""]
    entropy: Float[Array, ""]
    logprob_gap: Float[Array, ""]
    logprob_gap_max: Float[Array, ""]  # a maximum, not a sum
    by_band: Float[Array, " Q M"]
    by_cell: Float[Array, " Q K M"]
    guide: GuideSums | None = None
    latents: Any = None

    def __add__(self, other: "LossParts") -> "LossParts":
        """Returns the parts of the two token sets together."""
        total = jax.tree.map(jnp.add, self, other)
        largest = jnp.maximum(self.logprob_gap_max, other.logprob_gap_max)
        latents = self.latents if self.latents is None else self.latents + other.latents
        return dataclasses.replace(total, logprob_gap_max=largest, latents=latents)
