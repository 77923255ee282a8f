"""Prompts -> Rollouts, in one jitted program.

Each prompt is read once and serves its G samples; decoding stops when every row has
ended. A row's tokens depend on the key, its prompt's uid, its sample number and its own
tokens, never on its neighbors in the batch.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Bool, Float, Int, Key, UInt32

from job_jax.schema import check
from rlvr_jax.config import SamplingConfig
from rlvr_jax.models.activations import Prefix, last_hidden
from rlvr_jax.models.distribution import (
    SamplingParams,
    is_eos,
    sample_tokens,
    sampling_logits,
)
from rlvr_jax.models.layer_loop import Intervention
from rlvr_jax.models.parameters import check_token_ids
from rlvr_jax.models.transformer import Transformer
from rlvr_jax.sampler.slots import Rows, Slots, decode_rows
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import Prompts, Rollouts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class ScopedIntervention:
    """Edits of the residual stream, and the tokens whose stream they change.

    completion  only completion tokens; the first is drawn from the unedited prompt
    predicting  every token that one is predicted from: also the prompt's last
    everywhere  prompt and completion

    A prompt is read once for all of its samples, so they share its edits.
    """

    edits: tuple[Intervention, ...]
    scope: Literal["completion", "predicting", "everywhere"] = dataclasses.field(
        default="completion", metadata={"static": True}
    )

    def for_prompts(self, prompts: Prompts) -> tuple[Intervention, ...]:
        """Returns the edits of prompts, if any."""
        if self.scope == "completion":
            return ()
        if self.scope == "everywhere":
            return self.edits
        index_S = jnp.arange(prompts.tokens.shape[1], dtype=jnp.int32)
        last_PS = index_S[None] == prompts.lengths[:, None] - 1
        return tuple(_MaskedIntervention(each, last_PS) for each in self.edits)


@dataclasses.dataclass(frozen=True)
class _MaskedIntervention:
    """An edit of only the positions in a mask."""

    intervention: Intervention
    mask: Bool[Array, " P S"]

    @property
    def layer(self) -> int:
        return self.intervention.layer

    def __call__(self, x: Float[Array, "P S D"], /) -> Float[Array, "P S D"]:
        return jnp.where(self.mask[:, :, None], self.intervention(x), x)


def pad_prompts(
    token_ids: Sequence[Sequence[int]], *, uids: Sequence[int], pad_multiple: int
) -> Prompts:
    """Returns prompts padded on the right to the next multiple, in NumPy.

    Raises ValueError on an empty prompt, which has no last token to continue from.

    Example:
        >>> prompts = pad_prompts([[5, 6, 7], [8]], uids=[0, 1], pad_multiple=4)
        >>> prompts.tokens.tolist()
        [[5, 6, 7, 0], [8, 0, 0, 0]]
        >>> prompts.lengths.tolist()
        [3, 1]
    """
    tokens_PS, lengths_P = pad_rows(token_ids, pad_multiple=pad_multiple)
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
    num_samples: int = 1,
    key: Key[Array, ""] | UInt32[Array, " 2"] | int = 0,
    intervention: ScopedIntervention | None = None,
) -> Rollouts:
    """Returns `num_samples` completions of each prompt.

    `prompts` are a `Prompts` record, or lists of token ids (then a prompt's uid is its
    position). `key` is a JAX key, of either style, or a seed. Raises ConfigError on
    settings out of range, and ValueError on invalid prompts or an invalid key.

    Example:
        >>> from rlvr_jax.config import ModelConfig
        >>> model = ModelConfig(
        ...     num_layers=1, hidden_size=8, intermediate_size=8, num_heads=1,
        ...     num_kv_heads=1
        ... )
        >>> policy = Transformer(model, vocab_size=11, eos_ids=(0,), rngs=nnx.Rngs(0))
        >>> rollouts = generate(policy, [[3, 4], [5]], max_new_tokens=2, num_samples=3)
        >>> rollouts.tokens.shape
        (6, 2)
    """
    if not isinstance(prompts, Prompts):
        prompts = _pad_token_ids(prompts)
    if isinstance(prompts.tokens, np.ndarray):
        check_token_ids(prompts.tokens, policy.vocab_size, "prompts", mask=prompts.mask)
    config = SamplingConfig(
        max_new_tokens=_as_python_number(max_new_tokens),
        temperature=_as_python_number(temperature),
        top_p=_as_python_number(top_p),
        top_k=_as_python_number(top_k),
        min_new_tokens=_as_python_number(min_new_tokens),
    )
    samples = _as_python_number(num_samples)
    check(
        isinstance(samples, int) and samples >= 1,
        f"num_samples={samples!r}; it must be a whole number, at least 1",
    )
    graphdef, params = nnx.split(policy)
    return sample(
        graphdef,
        params,
        prompts,
        SamplingParams.from_config(config),
        key=_as_prng_key(key),
        weight_version=jnp.int32(0),
        num_samples=samples,
        max_new_tokens=config.max_new_tokens,
        intervention=intervention,
    )


def _pad_token_ids(prompts: Sequence[Sequence[int]]) -> Prompts:
    """Returns lists of token ids as a `Prompts` record. Raises ValueError."""
    for at, prompt in enumerate(prompts):
        ids = np.asarray(prompt)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(
                f"prompts[{at}]={prompt!r:.60} is not a list of token ids; give a list "
                "of lists, and encode text with the policy's tokenizer first"
            )
    return pad_prompts(prompts, uids=range(len(prompts)), pad_multiple=16)


def _as_python_number(setting: Any) -> Any:
    """Returns a NumPy or JAX scalar as Python's own number; others unchanged."""
    scalar = isinstance(setting, np.generic | np.ndarray | jax.Array)
    return setting.item() if scalar and setting.ndim == 0 else setting


def _as_prng_key(key: object) -> Key[Array, ""]:
    """Returns a new-style key. Raises ValueError."""
    if isinstance(key, int | np.integer):
        return jax.random.key(int(key))
    array = jnp.asarray(0.0 if key is None else key)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) and array.ndim == 0:
        return array
    if array.dtype == jnp.uint32 and array.ndim == 1:
        return jax.random.wrap_key_data(array)
    shown = repr(key).splitlines()[0]
    raise ValueError(f"key={shown}; give a seed such as 0, or one JAX key")


@functools.partial(
    jax.jit,
    static_argnames=("graphdef", "num_samples", "max_new_tokens", "num_slots"),
)
def sample(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    prompts: Prompts,
    sampling: SamplingParams,
    *,
    key: Key[Array, ""],
    weight_version: Int[Array, ""],
    num_samples: int,
    max_new_tokens: int,
    num_slots: int = 0,
    intervention: ScopedIntervention | None = None,
) -> Rollouts:
    """Returns rollouts of the policy (graphdef, params); `key` is the step's key.

    They do not depend on `num_slots`, the most rows that are decoded at a time (0: all
    rows). If prompts hold begun rows, `num_samples` is 1; then `max_new_tokens` counts
    only tokens drawn now, but `min_new_tokens` the whole completion. Raises ConfigError
    if the mesh does not divide `num_slots`.
    """
    policy: Transformer = nnx.merge(graphdef, params)
    layers = policy.cast_layers()
    edited = ScopedIntervention(edits=()) if intervention is None else intervention
    activations, prefix = policy.prefill(
        prompts.tokens,
        prompts.mask,
        layers=layers,
        interventions=edited.for_prompts(prompts),
    )
    completions, slot_steps = decode_rows(
        Rows(
            prefix=prefix,
            hidden=last_hidden(activations.hidden, prompts.lengths),
            **_row_starts(key, prompts, num_samples),
        ),
        step=functools.partial(
            _decode_step,
            policy,
            sampling,
            max_new_tokens=max_new_tokens,
            decode=functools.partial(
                policy.decode_step, layers=layers, interventions=edited.edits
            ),
        ),
        init_cache=policy.init_cache,
        num_slots=num_slots,
        max_new_tokens=max_new_tokens,
    )
    return Rollouts(
        prompts=prompts,
        tokens=completions.tokens,
        lengths=completions.lengths,
        logprobs=completions.logprobs,
        finished=completions.finished,
        weight_version=weight_version,
        slot_steps=slot_steps,
    )


def _decode_step(
    policy: Transformer,
    sampling: SamplingParams,
    slots: Slots,
    prefix: Prefix,
    clock: Int[Array, ""],
    *,
    max_new_tokens: int,
    decode: Callable[..., tuple[jax.Array, Any]],
) -> Slots:
    """Returns the slots with one more token each, except slots that have ended."""
    ended_R = slots.ended(max_new_tokens)
    index_R = slots.offset + slots.index
    kept_RV = sampling_logits(
        policy.logits(slots.hidden[:, None])[:, 0],
        index_R,
        sampling,
        eos_ids=policy.eos_ids,
        num_real_tokens=policy.num_real_tokens,
    )
    token_R, logprob_R = sample_tokens(kept_RV, token_keys(slots.keys, index_R))
    column = clock % slots.tokens.shape[1]
    hidden_RD, cache = decode(
        token_R, slots.index, prefix, column=column, cache=slots.cache
    )

    def write(buffer_RW: jax.Array, new_R: jax.Array) -> jax.Array:
        old_R = jax.lax.dynamic_index_in_dim(buffer_RW, column, axis=1, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(
            buffer_RW, jnp.where(ended_R, old_R, new_R), column, axis=1
        )

    return dataclasses.replace(
        slots,
        index=slots.index + jnp.where(ended_R, 0, 1),
        finished=slots.finished | (~ended_R & is_eos(token_R, policy.eos_ids)),
        hidden=hidden_RD,
        tokens=write(slots.tokens, token_R),
        logprobs=write(slots.logprobs, logprob_R),
        cache=cache,
    )


def _row_starts(
    key: jax.Array, prompts: Prompts, num_samples: int
) -> dict[str, jax.Array]:
    """Returns the rows' keys, and how many completion tokens each has already."""
    begun = prompts.begun
    if begun is None:
        keys_B = row_keys(key, prompts.uid, num_samples)
        return {"keys": keys_B, "offset": jnp.zeros(keys_B.shape, jnp.int32)}

    def of_row(uid: jax.Array, sample: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(key, uid), sample)

    return {"keys": jax.vmap(of_row)(prompts.uid, begun.sample), "offset": begun.length}


def row_keys(key: jax.Array, uid_P: jax.Array, num_samples: int) -> jax.Array:
    """Returns B keys, each a pure function of (key, prompt uid, sample number)."""
    samples_G = jnp.arange(num_samples, dtype=jnp.uint32)

    def of_prompt(uid: jax.Array) -> jax.Array:
        prompt_key = jax.random.fold_in(key, uid)
        return jax.vmap(lambda g: jax.random.fold_in(prompt_key, g))(samples_G)

    return jax.vmap(of_prompt)(uid_P).reshape(-1)


def token_keys(keys_B: jax.Array, index_B: jax.Array) -> jax.Array:
    """Returns the key with which each row draws its completion token `index`."""
    return jax.vmap(jax.random.fold_in)(keys_B, index_B)
