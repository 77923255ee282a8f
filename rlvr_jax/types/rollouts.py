"""Prompts and rollouts, as arrays."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int, UInt32

from rlvr_jax.types.episodes import Episode

Array = Any  # JAX's on a device, NumPy's on the host: a record travels between both


def length_mask(lengths: Int[Array, " N"], width: int) -> Bool[Array, " N W"]:
    """Returns which of `width` positions are within each row's length.

    The result is in NumPy for a NumPy array, else in JAX.
    """
    xp = np if isinstance(lengths, np.ndarray) else jnp
    return xp.arange(width, dtype=np.int32)[None] < lengths[:, None]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class BegunRows:
    """Rows that continue after tokens that they have: a later turn of their episodes.

    Row p is sample number `sample` of its prompt, and the last `length` tokens of
    `Prompts.tokens` are its own. Token n of a row has the same key in every turn.
    """

    sample: UInt32[Array, " P"]
    length: Int[Array, " P"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Prompts:
    """Tokenized prompts, padded on the right. Written by `data`, read by `sampler`.

    `uid` identifies a prompt to the sampler: sampling keys are a function of (seed,
    step, uid, sample), so a rollout does not depend on the other rows of its batch.
    With `begun`, written by `rollouts.episodes`, each prompt is a row with its tokens
    so far.
    """

    tokens: Int[Array, " P S"]
    lengths: Int[Array, " P"]
    uid: UInt32[Array, " P"]
    begun: BegunRows | None = None

    @property
    def mask(self) -> Bool[Array, " P S"]:
        """Returns which positions hold a prompt's own tokens."""
        return length_mask(self.lengths, self.tokens.shape[1])


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Rollouts:
    """Sampled completions. Written by `sampler`, read by verifiers and `learn`.

    `lengths` counts a completion's own tokens, its end-of-sequence token included;
    tokens and logprobs at or beyond it are 0. `logprobs` are under exactly the
    distribution that was sampled from (temperature and truncation applied). `finished`
    is true if the model stopped by itself ("stop"), false if it reached the limit
    ("length"). `weight_version` is the number of optimizer steps that made the weights.
    `slot_steps` is the number of tokens computed for these (None: not counted): all
    slots of all sampler steps, also slots whose rows had ended.

    Rows may be episodes with an environment. A completion then holds the environment's
    tokens as well, `policy_mask` says which tokens the policy wrote (None: all), and
    `episodes` holds the conversations, only on the host.
    """

    prompts: Prompts
    tokens: Int[Array, " B T"]
    lengths: Int[Array, " B"]
    logprobs: Float[Array, " B T"]
    finished: Bool[Array, " B"]
    weight_version: Int[Array, ""]
    slot_steps: Int[Array, ""] | None = None
    policy_mask: Bool[Array, " B T"] | None = None
    episodes: tuple[Episode, ...] | None = dataclasses.field(
        default=None, metadata={"static": True}
    )

    @property
    def mask(self) -> Bool[Array, " B T"]:
        """Returns which positions hold tokens that the policy wrote."""
        mask_BT = length_mask(self.lengths, self.tokens.shape[1])
        return mask_BT if self.policy_mask is None else mask_BT & self.policy_mask

    @property
    def finish_reasons(self) -> list[str]:
        """Returns "stop" or "length" for each of the B completions."""
        return ["stop" if done else "length" for done in self.finished.tolist()]
