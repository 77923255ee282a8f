"""Optimizer steps: gradients added up over micro-batches, then applied once.

The same two programs serve the supervised warm start and the policy optimization; only
the objective differs.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from rlvr_jax.config import LossConfig, OptimizerConfig
from rlvr_jax.learn.logprobs import Scores, token_scores
from rlvr_jax.learn.losses import policy_loss
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.types import Batch, LossParts

Objective = Callable[[Scores, Batch], tuple[Array, LossParts]]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything that an optimizer step reads and writes; checkpointed whole.

    `step` counts applied and skipped optimizer steps and is the version of the weights;
    `skipped` counts non-finite steps in a row.
    """

    params: Any
    opt_state: Any
    step: Int[Array, ""]
    skipped: Int[Array, ""]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class StepReport:
    """What one optimizer step says of itself. Written by `apply`, read by the loop."""

    grad_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]
    skipped: Int[Array, ""]

    def metrics(self) -> dict[str, float]:
        """Returns the report by metric name; `skipped` is 1 for a skipped step."""
        return {
            "optimizer/grad_norm": float(self.grad_norm),
            "optimizer/learning_rate": float(self.learning_rate),
            "optimizer/skipped": int(self.skipped > 0),
        }


def loss_metrics(parts: LossParts) -> dict[str, float]:
    """Returns the parts (on the host) by metric name: the loss, and means over tokens."""
    tokens = max(float(parts.tokens), 1.0)
    means = {
        name: float(value) / tokens
        for name, value in vars(parts).items()
        if name in ("ratio", "clip_low", "clip_high", "kl", "entropy")
    }
    return {"loss/total": float(parts.loss)} | {
        f"loss/{name}": value for name, value in means.items()
    }


class DivergedError(RuntimeError):
    """Too many optimizer steps in a row had a non-finite gradient."""


def check_finite(report: StepReport, max_skipped: int) -> None:
    """Raises DivergedError where more than `max_skipped` steps in a row were skipped."""
    if report.skipped > max_skipped:
        raise DivergedError(
            f"{int(report.skipped)} optimizer steps in a row had a non-finite gradient "
            f"(optimizer.max_skipped={max_skipped}); lower the learning rate, or look "
            "for infinities in the data"
        )


def policy_objective(config: LossConfig) -> Objective:
    """Returns the policy loss as a function of scores and batch."""

    def objective(scores: Scores, batch: Batch) -> tuple[Array, LossParts]:
        return policy_loss(
            scores.logprobs,
            batch.old_logprobs,
            batch.advantages,
            batch.token_weights,
            lengths=batch.lengths,
            config=config,
            ref_logprobs=batch.ref_logprobs,
            entropies=scores.entropies,
        )

    return objective


def supervised_objective(scores: Scores, batch: Batch) -> tuple[Array, LossParts]:
    """Returns the negative log-likelihood of the completions, by the token weights.

    The batch's advantages and old log-probabilities are not read.
    """
    inside_BT = batch.token_weights > 0
    logprob_BT = jnp.where(inside_BT, scores.logprobs, 0.0)
    loss = -(batch.token_weights * logprob_BT).sum()
    zero = jnp.float32(0.0)
    return loss, LossParts(
        loss=loss,
        tokens=inside_BT.sum().astype(jnp.float32),
        ratio=zero,
        clip_low=zero,
        clip_high=zero,
        kl=zero,
        entropy=jnp.where(inside_BT, scores.entropies, 0.0).sum(),
        logprob_gap=zero,
        logprob_gap_max=zero,
    )


def schedule(config: OptimizerConfig, total_steps: int) -> optax.Schedule:
    """Returns the learning rate by optimizer step: a linear warm-up, then its shape."""
    peak, ramp = config.learning_rate, config.warmup_steps
    after = {
        "constant": optax.constant_schedule(peak),
        "cosine": optax.cosine_decay_schedule(
            peak, max(1, total_steps - ramp), alpha=config.final_fraction
        ),
    }[config.schedule]
    # Step 0 of a ramp from 0 would be an optimizer step that moves nothing.
    start = peak / (ramp + 1)
    return optax.join_schedules([optax.linear_schedule(start, peak, ramp), after], [ramp])


def make_optimizer(
    config: OptimizerConfig, total_steps: int
) -> optax.GradientTransformation:
    """Returns AdamW behind a global-norm clip; norms and biases are not decayed."""
    return optax.chain(
        optax.clip_by_global_norm(config.clip_norm),
        optax.adamw(
            schedule(config, total_steps),
            b1=config.b1,
            b2=config.b2,
            eps=config.eps,
            weight_decay=config.weight_decay,
            mask=lambda params: jax.tree_util.tree_map_with_path(_is_matrix, params),
        ),
    )


def _is_matrix(path: tuple, _: Array) -> bool:
    return not any("norm" in str(part) for part in path)


class Updater:
    """The jitted programs of one stage's optimizer steps."""

    def __init__(
        self,
        graphdef: Any,
        objective: Objective,
        *,
        optimizer: OptimizerConfig,
        total_steps: int,
        logit_chunk: int,
    ):
        self._optimizer = make_optimizer(optimizer, total_steps)
        self._schedule = schedule(optimizer, total_steps)

        def loss(params: Any, batch: Batch, sampling: Sampling) -> Any:
            policy = nnx.merge(graphdef, params)
            scores = token_scores(policy, batch, sampling, chunk=logit_chunk)
            return objective(scores, batch)

        def accumulate(
            total: tuple[Any, LossParts], params: Any, batch: Batch, sampling: Sampling
        ) -> tuple[Any, LossParts]:
            grads, parts = jax.grad(loss, has_aux=True)(params, batch, sampling)
            summed = jax.tree.map(
                lambda so_far, g: so_far + g.astype(jnp.float32), total[0], grads
            )
            return summed, total[1] + parts

        def nothing(params: Any) -> tuple[Any, LossParts]:
            zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
            names = [field.name for field in dataclasses.fields(LossParts)]
            return zeros, LossParts(**dict.fromkeys(names, jnp.float32(0.0)))

        def logprobs(params: Any, batch: Batch, sampling: Sampling) -> Array:
            policy = nnx.merge(graphdef, params)
            return token_scores(policy, batch, sampling, chunk=logit_chunk).logprobs

        self._logprobs = jax.jit(logprobs)
        self._nothing = jax.jit(nothing)
        self._accumulate = jax.jit(accumulate, donate_argnums=0)
        self._apply = jax.jit(self._apply_gradients, donate_argnums=(0, 1))

    def init(self, params: Any) -> TrainState:
        """Returns the state before the first step; the parameters are taken over."""
        return TrainState(
            params=params,
            opt_state=jax.jit(self._optimizer.init)(params),
            step=jnp.int32(0),
            skipped=jnp.int32(0),
        )

    def logprobs(self, params: Any, batch: Batch, sampling: Sampling) -> np.ndarray:
        """Returns the scorer's log-probabilities [B, T], 0 beyond each length."""
        scored_BT = jax.device_get(self._logprobs(params, batch, sampling))
        index_T = np.arange(scored_BT.shape[1])
        lengths_B = jax.device_get(batch.lengths)
        return np.where(index_T[None] < lengths_B[:, None], scored_BT, np.float32(0))

    def step(
        self, state: TrainState, micro_batches: Iterable[Batch], sampling: Sampling
    ) -> tuple[TrainState, LossParts, StepReport]:
        """Returns the state after one optimizer step on the sum of the micro-batches.

        A step whose gradient is not finite changes neither parameters nor optimizer
        state; it is counted in `skipped`.
        """
        total = self._nothing(state.params)
        for batch in micro_batches:
            total = self._accumulate(total, state.params, batch, sampling)
        grads, parts = total
        state, report = self._apply(state, grads)
        return state, parts, report

    def _apply_gradients(
        self, state: TrainState, grads: Any
    ) -> tuple[TrainState, StepReport]:
        norm = optax.global_norm(grads)
        finite = jnp.isfinite(norm)
        safe = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), grads)
        updates, opt_state = self._optimizer.update(
            safe, state.opt_state, state.params
        )
        params = optax.apply_updates(state.params, updates)

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        skipped = jnp.where(finite, 0, state.skipped + 1)
        new_state = TrainState(
            params=jax.tree.map(keep, params, state.params),
            opt_state=jax.tree.map(keep, opt_state, state.opt_state),
            step=state.step + 1,
            skipped=skipped,
        )
        rate = jnp.asarray(self._schedule(state.step), jnp.float32)
        return new_state, StepReport(
            grad_norm=norm, learning_rate=rate, skipped=skipped
        )
