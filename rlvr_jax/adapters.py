"""What RL trains of a policy: all parameters, or adapters beside those that stay."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from job_jax.checkpoint import StageCheckpoints, latest_step
from rlvr_jax.config import LoRAConfig
from rlvr_jax.learn.update import TrainState
from rlvr_jax.models import laid_out_shapes, lora
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


class Parts(NamedTuple):
    """A policy's graphdef, and its parameters in parts: trained, and left alone."""

    graphdef: Any
    trained: Any
    frozen: tuple[Any, ...]


def abstract_parts(graphdef: Any, base: Any, mesh: Mesh, config: LoRAConfig) -> Parts:
    """Returns what RL makes of a policy, from its parameters' shapes, with layouts."""
    if not config.rank:
        return Parts(graphdef, base, ())
    adapted = lora.adapted_shapes(graphdef, base, config)
    trained, frozen = (
        laid_out_shapes(adapted, mesh, which)
        for which in (lora.ADAPTERS, nnx.Not(lora.ADAPTERS))
    )
    return Parts(nnx.graphdef(adapted), trained, (frozen,))


def learner(run: Run, initial: Callable[[], Any]) -> Learner:
    """Returns what RL trains, given the parameters that it starts from.

    With train.lora.rank those are taken over: they stay as they are or quantised, and
    new adapters are trained. The reference policy is then the adapters' start, which
    changes nothing, beside the same weights.
    """
    config = run.config.train.lora
    if not config.rank:
        return Learner(run=run, start=initial)
    parts = _parts(run)

    def split(base: Any, key: jax.Array) -> tuple[Any, ...]:
        policy = lora.adapt(nnx.merge(run.graphdef, base), config, key)
        return tuple(nnx.split(policy, lora.ADAPTERS, ...)[1:])

    layouts = jax.tree.map(lambda x: x.sharding, (parts.trained, *parts.frozen))
    take_over = jax.jit(split, out_shardings=layouts, donate_argnums=0)
    adapters, frozen = take_over(initial(), run.key("lora"))
    return Learner(
        run=dataclasses.replace(run, graphdef=parts.graphdef),
        start=lambda: jax.tree.map(jnp.copy, adapters),
        frozen=(frozen,),
    )


def saved_params(run: Run, directory: Path, step: int) -> Any:
    """Returns the policy's parameters after a stage's step, from its checkpoints.

    A checkpoint of RL with adapters holds those alone; they are merged into what it
    started from, which is the warm start's last checkpoint or else drawn anew.
    """
    adapted = run.config.train.lora.rank > 0 and directory.resolve().name == "train"
    like = _parts(run).trained if adapted else run.abstract_params()
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


def _parts(run: Run) -> Parts:
    config = run.config.train.lora
    return abstract_parts(run.graphdef, run.abstract_params(), run.mesh, config)
