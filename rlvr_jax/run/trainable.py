"""The part of a policy that RL trains: all parameters, or only adapters."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from rlvr_jax.config import LoRAConfig
from rlvr_jax.learn.update import TrainState
from rlvr_jax.models import abstract_params, lora
from rlvr_jax.run.setup import RunSetup


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainableParams:
    """The parameters that RL trains, and the frozen ones.

    Made by `split_trainable`. `setup` is the run with the graphdef of the whole policy.
    `init` returns the trained parameters before the first step, and `abstract` has
    their shapes, dtypes and shardings. `frozen` holds the other parameters.
    """

    setup: RunSetup
    init: Callable[[], nnx.State]
    abstract: nnx.State
    frozen: tuple[nnx.State, ...] = ()

    def merge_frozen(self, params: nnx.State) -> nnx.State:
        """Returns the policy's parameters from the trained ones, without copies."""
        return nnx.merge_state(params, *self.frozen) if self.frozen else params

    def policy_state(self, state: TrainState) -> TrainState:
        """Returns the state with the whole policy's parameters, for sampling."""
        return dataclasses.replace(state, params=self.merge_frozen(state.params))


class PolicyParts(NamedTuple):
    """A policy's graphdef, and its trained and frozen parameters."""

    graphdef: nnx.GraphDef
    trained: nnx.State
    frozen: tuple[nnx.State, ...]


def abstract_policy_parts(
    graphdef: nnx.GraphDef, base: nnx.State, mesh: Mesh, config: LoRAConfig
) -> PolicyParts:
    """Returns the parts that RL splits a policy into, as shapes with shardings."""
    if not config.rank:
        return PolicyParts(graphdef, base, ())
    adapted = lora.abstract_adapted_policy(graphdef, base, config)
    trained, frozen = (
        abstract_params(adapted, mesh, which)
        for which in (lora.ADAPTERS, nnx.Not(lora.ADAPTERS))
    )
    return PolicyParts(nnx.graphdef(adapted), trained, (frozen,))


def split_trainable(
    setup: RunSetup, init_params: Callable[[], nnx.State]
) -> TrainableParams:
    """Returns the parameters that RL trains, given those that it starts from.

    With train.lora.rank the weights are frozen, as they are or quantized, and RL trains
    new adapters. Adapters start without an effect, so the initial adapters with the
    same frozen weights are the reference policy.
    """
    config = setup.config.train.lora
    if not config.rank:
        return TrainableParams(
            setup=setup, init=init_params, abstract=setup.abstract_params()
        )
    parts = abstract_trainable(setup)

    def split(base: nnx.State, key: jax.Array) -> tuple[nnx.State, ...]:
        policy = lora.add_adapters(nnx.merge(setup.graphdef, base), config, key)
        return tuple(nnx.split(policy, lora.ADAPTERS, ...)[1:])

    layouts = jax.tree.map(lambda x: x.sharding, (parts.trained, *parts.frozen))
    take_over = jax.jit(split, out_shardings=layouts, donate_argnums=0)
    adapters, frozen = take_over(init_params(), setup.stream_key("lora"))
    return TrainableParams(
        setup=dataclasses.replace(setup, graphdef=parts.graphdef),
        init=lambda: jax.tree.map(jnp.copy, adapters),
        abstract=parts.trained,
        frozen=(frozen,),
    )


def abstract_trainable(setup: RunSetup) -> PolicyParts:
    """Returns shapes, dtypes and shardings of the trained and frozen parameters."""
    config = setup.config.train.lora
    return abstract_policy_parts(
        setup.graphdef, setup.abstract_params(), setup.mesh, config
    )
