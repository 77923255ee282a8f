"""Prompts -> Rollouts, in one jitted program.

Each prompt is read once and serves its G samples; decoding stops when every row has
ended. A row's tokens depend on the key, its prompt's uid, its sample number and its own
tokens, never on its neighbours in the batch.
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

from job_jax.mesh import constrain
from job_jax.schema import require
from rlvr_jax.config import SamplingConfig
from rlvr_jax.models.distribution import Sampling, draw, is_end, sampling_logits
from rlvr_jax.models.ids import check_ids
from rlvr_jax.models.transformer import Edit, Transformer
from rlvr_jax.tokenizer import pad_rows
from rlvr_jax.types import Prompts, Rollouts


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class Edited:
    """An edit of the residual stream, and which tokens' stream it changes.

    completion  completion tokens alone; the first is drawn from the prompt as it is
    drawn       every token that one is drawn from: those and the prompt's last
    everywhere  prompt and completion

    A prompt is read once for all of its samples, so its edit is theirs in common.
    """

    edit: Edit
    where: Literal["completion", "drawn", "everywhere"] = dataclasses.field(
        default="completion", metadata={"static": True}
    )

    def of_prompts(self, prompts: Prompts) -> Edit | None:
        """Returns what the edit does to prompts, None where it leaves them alone."""
        if self.where == "completion":
            return None
        if self.where == "everywhere":
            return self.edit
        index_S = jnp.arange(prompts.tokens.shape[1], dtype=jnp.int32)
        return _Masked(self.edit, index_S[None] == prompts.lengths[:, None] - 1)


@dataclasses.dataclass(frozen=True)
class _Masked:
    """An edit of the positions in a mask alone."""

    edit: Edit
    mask: Bool[Array, " P S"]

    @property
    def layer(self) -> int:
        return self.edit.layer

    def __call__(self, x: Float[Array, "P S D"], /) -> Float[Array, "P S D"]:
        return jnp.where(self.mask[:, :, None], self.edit(x), x)


def pad_prompts(
    token_ids: Sequence[Sequence[int]], *, uids: Sequence[int], bucket: int
) -> Prompts:
    """Returns prompts padded on the right to the next multiple of `bucket`, in NumPy.

    Raises ValueError on an empty prompt, which has no last token to go on from.
    """
    tokens_PS, lengths_P = pad_rows(token_ids, bucket=bucket)
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
    key: Key[Array, ""] | UInt32[Array, " 2"] | int = 0,
    edited: Edited | None = None,
) -> Rollouts:
    """Returns `samples_per_prompt` completions of each prompt.

    `prompts` are records, or lists of token ids (then a prompt's uid is its position).
    `key` is a JAX key, of either style, or a seed. Raises ConfigError on settings out
    of range, ValueError on prompts or a key that are none.
    """
    if not isinstance(prompts, Prompts):
        prompts = _padded(prompts)
    if isinstance(prompts.tokens, np.ndarray):
        own_PS = np.arange(prompts.tokens.shape[1])[None] < prompts.lengths[:, None]
        check_ids(prompts.tokens, policy.vocab_size, "prompts", mask=own_PS)
    config = SamplingConfig(
        max_new_tokens=_plain(max_new_tokens),
        temperature=_plain(temperature),
        top_p=_plain(top_p),
        top_k=_plain(top_k),
        min_new_tokens=_plain(min_new_tokens),
    )
    samples = _plain(samples_per_prompt)
    require(
        isinstance(samples, int) and samples >= 1,
        f"samples_per_prompt={samples!r}; it must be a whole number, at least 1",
    )
    graphdef, params = nnx.split(policy)
    return sample(
        graphdef,
        params,
        prompts,
        Sampling.of(config),
        key=_typed(key),
        weight_version=jnp.int32(0),
        samples_per_prompt=samples,
        max_new_tokens=config.max_new_tokens,
        edited=edited,
    )


def _padded(prompts: Sequence[Sequence[int]]) -> Prompts:
    """Returns the record of lists of token ids. Raises ValueError."""
    for at, prompt in enumerate(prompts):
        ids = np.asarray(prompt)
        if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
            raise ValueError(
                f"prompts[{at}]={prompt!r:.60} is no list of token ids; give a list of "
                "lists, and encode text with the policy's tokenizer first"
            )
    return pad_prompts(prompts, uids=range(len(prompts)), bucket=16)


def _plain(setting: Any) -> Any:
    """Returns a setting that NumPy or JAX holds as Python's own number."""
    scalar = isinstance(setting, np.generic | np.ndarray | jax.Array)
    return setting.item() if scalar and setting.ndim == 0 else setting


def _typed(key: Any) -> Key[Array, ""]:
    """Returns a new-style key. Raises ValueError."""
    if isinstance(key, int | np.integer):
        return jax.random.key(int(key))
    array = jnp.asarray(0.0 if key is None else key)
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) and array.ndim == 0:
        return array
    if array.dtype == jnp.uint32 and array.ndim == 1:
        return jax.random.wrap_key_data(array)
    told = repr(key).splitlines()[0]
    raise ValueError(f"key={told}; give a seed such as 0, or one JAX key")


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
    edited: Edited | None = None,
) -> Rollouts:
    """Returns rollouts of the policy (graphdef, params); `key` is the step's key."""
    policy: Transformer = nnx.merge(graphdef, params)
    layers = policy.layers()
    index_S = jnp.arange(prompts.tokens.shape[1], dtype=jnp.int32)
    mask_PS = index_S[None] < prompts.lengths[:, None]
    activations, prefix = policy.prefill(
        prompts.tokens,
        mask_PS,
        layers=layers,
        edit=None if edited is None else edited.of_prompts(prompts),
    )
    last_P11 = prompts.lengths[:, None, None] - 1
    last_PD = jnp.take_along_axis(activations.hidden, last_P11, axis=1)[:, 0]
    next_token = functools.partial(
        _next_token,
        policy,
        sampling,
        keys_B=row_keys(key, prompts.uid, samples_per_prompt),
        advance=functools.partial(
            policy.decode,
            prefix=prefix,
            layers=layers,
            edit=None if edited is None else edited.edit,
        ),
    )
    written = jax.lax.while_loop(
        lambda written: (written.index < max_new_tokens) & ~written.finished.all(),
        next_token,
        _nothing_written(policy, last_PD, samples_per_prompt, max_new_tokens),
    )
    return Rollouts(
        prompts=prompts,
        tokens=written.tokens,
        lengths=written.lengths,
        logprobs=written.logprobs,
        finished=written.finished,
        weight_version=weight_version,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class _Written:
    """The completions so far, `index` tokens wide.

    `hidden` is the final hidden state that token `index` is drawn from, `cache` the
    keys and values of every layer.
    """

    index: Int[Array, ""]
    hidden: Float[Array, " B D"]
    cache: Any
    tokens: Int[Array, " B T"]
    logprobs: Float[Array, " B T"]
    lengths: Int[Array, " B"]
    finished: Bool[Array, " B"]


def _nothing_written(
    policy: Transformer, last_PD: jax.Array, G: int, T: int
) -> _Written:
    """Returns G completions of each prompt before their first token, on the mesh."""
    hidden_BD = jnp.repeat(last_PD, G, axis=0)
    B = hidden_BD.shape[0]
    return _Written(
        index=jnp.int32(0),
        hidden=constrain(hidden_BD, "batch", None),
        cache=policy.empty_cache(B, T),
        tokens=constrain(jnp.zeros((B, T), jnp.int32), "batch", None),
        logprobs=constrain(jnp.zeros((B, T), jnp.float32), "batch", None),
        lengths=constrain(jnp.zeros(B, jnp.int32), "batch"),
        finished=constrain(jnp.zeros(B, bool), "batch"),
    )


def _next_token(
    policy: Transformer,
    sampling: Sampling,
    written: _Written,
    *,
    keys_B: jax.Array,
    advance: Callable[..., tuple[jax.Array, Any]],
) -> _Written:
    """Returns the completions with one more token; those that ended get zeros."""
    index, ended_B = written.index, written.finished
    logits_BV = policy.logits(written.hidden[:, None])[:, 0]
    kept_BV = sampling_logits(
        logits_BV,
        jnp.broadcast_to(index, ended_B.shape),
        sampling,
        eos_ids=policy.eos_ids,
        known_ids=policy.known_ids,
    )
    token_B, logprob_B = draw(kept_BV, _uniform(keys_B, index))
    token_B = jnp.where(ended_B, 0, token_B)
    logprob_B = jnp.where(ended_B, 0.0, logprob_B)
    hidden_BD, cache = advance(token_B, index, cache=written.cache)

    def write(buffer_BT: jax.Array, column_B: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_index_in_dim(buffer_BT, column_B, index, axis=1)

    return _Written(
        index=index + 1,
        hidden=hidden_BD,
        cache=cache,
        tokens=write(written.tokens, token_B),
        logprobs=write(written.logprobs, logprob_B),
        lengths=written.lengths + jnp.where(ended_B, 0, 1),
        finished=ended_B | is_end(token_B, policy.eos_ids),
    )


def row_keys(key: jax.Array, uid_P: jax.Array, samples_per_prompt: int) -> jax.Array:
    """Returns B keys, each a pure function of (key, prompt uid, sample number)."""
    samples_G = jnp.arange(samples_per_prompt, dtype=jnp.uint32)

    def of_prompt(uid: jax.Array) -> jax.Array:
        prompt_key = jax.random.fold_in(key, uid)
        return jax.vmap(lambda g: jax.random.fold_in(prompt_key, g))(samples_G)

    return jax.vmap(of_prompt)(uid_P).reshape(-1)


def _uniform(keys_B: jax.Array, index: jax.Array) -> jax.Array:
    """Returns each row's random number for completion token `index`."""
    return jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, index)))(
        keys_B
    )
