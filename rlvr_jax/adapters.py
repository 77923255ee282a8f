"""What RL trains of a policy: all parameters, or adapters beside those that stay."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from job_jax.checkpoint import StageCheckpoints, latest_step
from rlvr_jax.learn.update import TrainState
from rlvr_jax.models import Transformer, lora, shardings
from rlvr_jax.run import Run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Learner:
    """What RL starts from. Made once, by `learner`.

    `run` is the run whose graphdef goes with whole parameters; `start` returns those
    that are trained as they are before the first step, `frozen` completes them.
    """

    run: Run
    start: Callable[[], Any]
    frozen: tuple[Any, ...] = ()

    def whole(self, params: Any) -> Any:
        """Returns the policy's parameters from those that are trained; no copies."""
        return nnx.merge_state(params, *self.frozen) if self.frozen else params

    def acting(self, state: TrainState) -> TrainState:
        """Returns the state with whole parameters: what is sampled from."""
        return dataclasses.replace(state, params=self.whole(state.params))


def learner(run: Run, initial: Callable[[], Any]) -> Learner:
    """Returns what RL trains, given the parameters that it starts from.

    With train.lora.rank those are taken over: they stay as they are or quantised, and
    new adapters are trained. The reference policy is then the adapters' start, which
    changes nothing, beside the same weights.
    """
    config = run.config.train.lora
    if not config.rank:
        return Learner(run=run, start=initial)
    abstract = _adapted(run)
    which = (lora.ADAPTERS, ...)
    layouts = tuple(
        shardings(abstract, run.mesh, one)
        for one in (lora.ADAPTERS, nnx.Not(lora.ADAPTERS))
    )

    def split(base: Any, key: jax.Array) -> tuple[Any, ...]:
        policy = lora.adapt(nnx.merge(run.graphdef, base), config, key)
        return tuple(nnx.split(policy, *which)[1:])

    take_over = jax.jit(split, out_shardings=layouts, donate_argnums=0)
    adapters, frozen = take_over(initial(), run.key("lora"))
    return Learner(
        run=dataclasses.replace(run, graphdef=nnx.split(abstract, *which)[0]),
        start=lambda: jax.tree.map(jnp.copy, adapters),
        frozen=(frozen,),
    )


def saved_params(run: Run, directory: Path, step: int) -> Any:
    """Returns the policy's parameters after a stage's step, from its checkpoints.

    A checkpoint of RL with adapters holds those alone; they are merged into what it
    started from, which is the warm start's last checkpoint or else drawn anew.
    """
    adapted = run.config.train.lora.rank > 0 and directory.resolve().name == "train"
    like = abstract_adapters(run) if adapted else run.abstract_params()
    with StageCheckpoints(directory) as checkpoints:
        params = checkpoints.restore_params(step, like)
    if not adapted:
        return params
    warm = directory.resolve().parent / "warmup"
    last = latest_step(warm)
    base = run.initial_params() if last is None else saved_params(run, warm, last)
    merge = jax.jit(
        lambda base, adapters: lora.merged(
            run.graphdef, base, adapters, run.config.train.lora
        ),
        out_shardings=run.params_layout(),
        donate_argnums=0,
    )
    return merge(base, params)


def abstract_adapters(run: Run) -> Any:
    """Returns the adapters' shapes, types and layout."""
    adapted = _adapted(run)
    return jax.tree.map(
        lambda layout, param: jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout), param
        ),
        shardings(adapted, run.mesh, lora.ADAPTERS),
        nnx.state(adapted, lora.ADAPTERS),
    )


def _adapted(run: Run) -> Transformer:
    """Returns the policy with its adapters, abstract."""
    return nnx.eval_shape(
        lambda base, key: lora.adapt(
            nnx.merge(run.graphdef, base), run.config.train.lora, key
        ),
        nnx.state(nnx.merge(run.graphdef, run.abstract_params())),
        run.key("lora"),
    )
