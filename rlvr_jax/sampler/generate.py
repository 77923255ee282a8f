"""Prompts -> Rollouts, in one jitted program.

Each prompt is read once and serves its G samples; decoding stops when every row has
ended. A row's tokens depend on the key, its prompt's uid, its sample number and its own
tokens, never on its neighbours in the batch.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Int, Key

from rlvr_jax.config import SamplingConfig
from rlvr_jax.mesh import constrain
from rlvr_jax.models.distribution import Sampling, draw, sampling_logits
from rlvr_jax.models.transformer import Transformer
from rlvr_jax.types import Prompts, Rollouts


def pad_prompts(
    token_ids: Sequence[Sequence[int]], *, uids: Sequence[int], bucket: int
) -> Prompts:
    """Returns prompts padded on the right to the next multiple of `bucket`, in NumPy.

    Raises ValueError on an empty prompt, which has no last token to go on from.
    """
    lengths_P = np.array([len(ids) for ids in token_ids], np.int32)
    if lengths_P.size == 0 or lengths_P.min() == 0:
        raise ValueError("every prompt needs at least one token")
    S = -(-int(lengths_P.max()) // bucket) * bucket
    tokens_PS = np.zeros((len(token_ids), S), np.int32)
    for row, ids in zip(tokens_PS, token_ids, strict=True):
        row[: len(ids)] = ids
    return Prompts(tokens=tokens_PS, lengths=lengths_P, uid=np.array(uids, np.uint32))


def generate(
    policy: Transformer,
    prompts: Prompts | Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_new_tokens: int = 0,
    samples_per_prompt: int = 1,
    key: Key[Array, ""] | int = 0,
) -> Rollouts:
    """Returns `samples_per_prompt` completions of each prompt.

    `prompts` are records, or lists of token ids (then a prompt's uid is its position).
    Raises ConfigError on settings out of range.
    """
    if not isinstance(prompts, Prompts):
        prompts = pad_prompts(prompts, uids=range(len(prompts)), bucket=16)
    config = SamplingConfig(
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_new_tokens=min_new_tokens,
    )
    graphdef, params = nnx.split(policy)
    return sample(
        graphdef,
        params,
        prompts,
        Sampling.of(config),
        key=jax.random.key(key) if isinstance(key, int) else key,
        weight_version=jnp.int32(0),
        samples_per_prompt=samples_per_prompt,
        max_new_tokens=max_new_tokens,
    )


@functools.partial(
    jax.jit, static_argnames=("graphdef", "samples_per_prompt", "max_new_tokens")
)
def sample(
    graphdef: Any,
    params: Any,
    prompts: Prompts,
    sampling: Sampling,
    *,
    key: Key[Array, ""],
    weight_version: Int[Array, ""],
    samples_per_prompt: int,
    max_new_tokens: int,
) -> Rollouts:
    """Returns rollouts of the policy (graphdef, params); `key` is the step's key."""
    policy: Transformer = nnx.merge(graphdef, params)
    layers = policy.layers()
    P, S = prompts.tokens.shape
    B, T = P * samples_per_prompt, max_new_tokens
    mask_PS = jnp.arange(S, dtype=jnp.int32)[None] < prompts.lengths[:, None]
    activations, prefix = policy.prefill(prompts.tokens, mask_PS, layers=layers)
    last_PD = _at(activations.hidden, prompts.lengths - 1)
    keys_B = row_keys(key, prompts.uid, samples_per_prompt)

    def step(carry: tuple) -> tuple:
        index, hidden_BD, cache, tokens_BT, logprobs_BT, lengths_B, done_B = carry
        logits_BV = policy.logits(hidden_BD[:, None])[:, 0]
        kept_BV = sampling_logits(
            logits_BV, jnp.broadcast_to(index, B), sampling, eos_ids=policy.eos_ids
        )
        uniform_B = jax.vmap(lambda k: jax.random.uniform(jax.random.fold_in(k, index)))(
            keys_B
        )
        token_B, logprob_B = draw(kept_BV, uniform_B)
        token_B = jnp.where(done_B, 0, token_B)
        tokens_BT = _write(tokens_BT, token_B, index)
        logprobs_BT = _write(logprobs_BT, jnp.where(done_B, 0.0, logprob_B), index)
        lengths_B = lengths_B + jnp.where(done_B, 0, 1)
        done_B = done_B | is_end(token_B, policy.eos_ids)
        hidden_BD, cache = policy.decode(
            token_B, index, prefix, cache=cache, layers=layers
        )
        return index + 1, hidden_BD, cache, tokens_BT, logprobs_BT, lengths_B, done_B

    def unfinished(carry: tuple) -> jax.Array:
        return (carry[0] < T) & ~jnp.all(carry[-1])

    rows = constrain
    carry = (
        jnp.int32(0),
        rows(jnp.repeat(last_PD, samples_per_prompt, axis=0), "batch", None),
        policy.empty_cache(B, T),
        rows(jnp.zeros((B, T), jnp.int32), "batch", None),
        rows(jnp.zeros((B, T), jnp.float32), "batch", None),
        rows(jnp.zeros(B, jnp.int32), "batch"),
        rows(jnp.zeros(B, bool), "batch"),
    )
    *_, tokens_BT, logprobs_BT, lengths_B, done_B = jax.lax.while_loop(
        unfinished, step, carry
    )
    return Rollouts(
        prompts=prompts,
        tokens=tokens_BT,
        lengths=lengths_B,
        logprobs=logprobs_BT,
        finished=done_B,
        weight_version=weight_version,
    )


def row_keys(key: jax.Array, uid_P: jax.Array, samples_per_prompt: int) -> jax.Array:
    """Returns B keys, each a pure function of (key, prompt uid, sample number)."""
    samples_G = jnp.arange(samples_per_prompt, dtype=jnp.uint32)

    def of_prompt(uid: jax.Array) -> jax.Array:
        prompt_key = jax.random.fold_in(key, uid)
        return jax.vmap(lambda g: jax.random.fold_in(prompt_key, g))(samples_G)

    return jax.vmap(of_prompt)(uid_P).reshape(-1)


def is_end(tokens_B: jax.Array, eos_ids: tuple[int, ...]) -> jax.Array:
    """Returns where a token ends its completion."""
    return jnp.isin(tokens_B, jnp.array(eos_ids, jnp.int32))


def _at(hidden_PSD: jax.Array, index_P: jax.Array) -> jax.Array:
    return jnp.take_along_axis(hidden_PSD, index_P[:, None, None], axis=1)[:, 0]


def _write(buffer_BT: jax.Array, column_B: jax.Array, index: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice_in_dim(
        buffer_BT, column_B[:, None].astype(buffer_BT.dtype), index, 1
    )
