"""A policy with an edited residual stream: its rollouts, and its KL from clean."""

import functools
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rlvr_jax.models import Activations, Transformer, keep_first_layers
from rlvr_jax.rollouts.sample import sample_problems
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.sampler import ScopedIntervention
from rlvr_jax.types import Problem, Rollouts


def sample_edited(
    policy: LoadedPolicy,
    problems: Sequence[Problem],
    intervention: ScopedIntervention | None,
) -> Iterator[tuple[list[Problem], Rollouts]]:
    """Yields batches of problems with rollouts as evaluation draws them, in NumPy.

    The intervention must be on the mesh; None leaves the policy unedited. A row's
    sampling key is the same with and without one.
    """
    config = policy.setup.config.eval
    return sample_problems(
        policy.setup,
        policy.params,
        problems,
        sampling=config.sampling,
        num_samples=config.num_samples,
        batch_size=config.batch_size,
        stream="eval",
        weight_version=policy.step,
        intervention=intervention,
    )


def kl_from_clean(
    policy: LoadedPolicy, rollouts: Rollouts, intervention: ScopedIntervention | None
) -> np.ndarray:
    """Returns KL(edited || clean) summed over each completion's tokens, [B] float64.

    It is in nats, from all logits at temperature 1 on the edited policy's own
    completions, one position at a time. Without an intervention it is 0.
    """
    if intervention is None:
        return np.zeros(len(rollouts.lengths))
    setup = policy.setup
    kl_B = _kl_from_clean(
        setup.graphdef, policy.params, _on_mesh(setup, rollouts), intervention
    )
    return np.asarray(kl_B, np.float64)


def clean_residuals(
    policy: LoadedPolicy, rollouts: Rollouts, *, layer: int
) -> np.ndarray:
    """Returns the unedited residual stream of completions after a layer, [B, T, D]."""
    setup = policy.setup
    return jax.device_get(
        _residuals(
            setup.graphdef, policy.params, _on_mesh(setup, rollouts), layer=layer
        )
    )


def _on_mesh(setup: RunSetup, rollouts: Rollouts) -> Rollouts:
    """Returns rollouts (in NumPy) on the mesh, split over the batch."""
    return jax.tree.map(
        lambda x: (setup.shard_batch if x.ndim else setup.replicate)(x), rollouts
    )


def _hidden_states(
    policy: Transformer,
    rollouts: Rollouts,
    intervention: ScopedIntervention | None,
    *,
    taps: tuple[int, ...] = (),
) -> tuple[jax.Array, Activations]:
    """Returns the hidden state [B, D] that predicts token 0, and the later ones."""
    prompts, edit = rollouts.prompts, intervention
    states = policy.hidden_states(
        prompts.tokens,
        prompts.lengths,
        rollouts.tokens,
        capture_layers=taps,
        interventions=() if edit is None else edit.edits,
        prompt_interventions=() if edit is None else edit.for_prompts(prompts),
    )
    return states.first, states.completions


@functools.partial(jax.jit, static_argnames=("graphdef", "layer"))
def _residuals(
    graphdef: nnx.GraphDef, params: nnx.State, rollouts: Rollouts, *, layer: int
) -> jax.Array:
    """Returns the residual stream of completions after a layer, [B, T, D]."""
    policy = keep_first_layers(nnx.merge(graphdef, params), layer + 1)
    return _hidden_states(policy, rollouts, None, taps=(layer,))[1].captured[0]


@functools.partial(jax.jit, static_argnames="graphdef")
def _kl_from_clean(
    graphdef: nnx.GraphDef,
    params: nnx.State,
    rollouts: Rollouts,
    intervention: ScopedIntervention,
) -> jax.Array:
    """Returns KL(edited || clean) summed over each completion's tokens, [B].

    The logits of only one position exist at a time.
    """
    policy: Transformer = nnx.merge(graphdef, params)

    def states(edited: ScopedIntervention | None) -> jax.Array:
        first_BD, rest = _hidden_states(policy, rollouts, edited)
        hidden_BTD = jnp.concatenate([first_BD[:, None], rest.hidden[:, :-1]], axis=1)
        return hidden_BTD.swapaxes(0, 1)

    def of_token(hidden: tuple[jax.Array, jax.Array]) -> jax.Array:
        ours_BV, clean_BV = (
            jax.nn.log_softmax(policy.logits(each_BD[:, None])[:, 0])
            for each_BD in hidden
        )
        return (jnp.exp(ours_BV) * (ours_BV - clean_BV)).sum(axis=-1)

    kl_TB = jax.lax.map(of_token, (states(intervention), states(None)))
    index_T = jnp.arange(kl_TB.shape[0], dtype=jnp.int32)
    return jnp.where(index_T[:, None] < rollouts.lengths[None], kl_TB, 0.0).sum(axis=0)
