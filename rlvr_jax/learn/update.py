"""Optimizer steps: gradients added up over micro-batches, then applied once.

The same two programs serve the supervised warm start and the policy optimization; only
the objective differs.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Array, Float, Int

from job_jax.processes import on_host
from rlvr_jax.config import OptimizerConfig, RFGOConfig
from rlvr_jax.learn import rfgo
from rlvr_jax.learn.adamw import make_optimizer, schedule
from rlvr_jax.learn.logprobs import Scores, token_scores
from rlvr_jax.learn.losses import no_sums
from rlvr_jax.learn.objectives import Objective
from rlvr_jax.learn.rounding import narrow, wide
from rlvr_jax.learn.token_sums import no_token_sums
from rlvr_jax.models import laid_out
from rlvr_jax.models.distribution import Sampling
from rlvr_jax.types import BANDS, Batch, Guide, LossParts


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
    """Returns the parts (on the host) by metric name; all but the loss are means."""
    tokens = max(float(parts.tokens), 1.0)
    means = {
        name: float(value) / tokens
        for name, value in vars(parts).items()
        if name in ("ratio", "clip_low", "clip_high", "kl", "entropy")
    }
    return {"loss/total": float(parts.loss)} | {
        f"loss/{name}": value for name, value in means.items()
    }


def band_metrics(by_band_QM: np.ndarray) -> dict[str, float]:
    """Returns a token's mean entropy, KL and clip share by band, of bands with any."""
    return {
        f"band_{band}/{name}": float(value / row[0])
        for band, row in zip(BANDS, by_band_QM, strict=True)
        for name, value in zip(("entropy", "kl", "clipped"), row[1:], strict=True)
        if row[0] > 0
    }


class Observer(Protocol):
    """Statistics of every latent of a dictionary, gathered inside the update."""

    def nothing(self, dictionary: Any) -> Any:
        """Returns the statistics of no tokens; they add up."""
        ...

    def __call__(
        self, stream: Float[Array, " B T D"], batch: Batch, dictionary: Any
    ) -> Any:
        """Returns the statistics of a micro-batch, of the stream at tokens 0..T-2."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probing:
    """How an update reads the residual stream after `layer`, and what it does of it."""

    layer: int
    rfgo: RFGOConfig
    shuffled: bool
    observer: Observer


class DivergedError(RuntimeError):
    """Too many optimizer steps in a row had a non-finite gradient."""


def check_finite(report: StepReport, max_skipped: int) -> None:
    """Raises DivergedError after more than `max_skipped` skipped steps in a row."""
    if report.skipped > max_skipped:
        raise DivergedError(
            f"{int(report.skipped)} optimizer steps in a row had a non-finite gradient "
            f"(optimizer.max_skipped={max_skipped}); lower the learning rate, or look "
            "for infinities in the data"
        )


class Updater:
    """The jitted programs of one stage's optimizer steps.

    Gradients and the update are float32 whatever parameters and moments are kept in;
    what is kept in bfloat16 is rounded stochastically, by bits of `seed`. All of them
    lie on the mesh as the parameters do, so a step's buffers are reused by the next and
    no device holds more than its share. With `frozen`, states that complete the policy,
    `params` are everywhere what is trained alone.
    """

    def __init__(
        self,
        graphdef: Any,
        objective: Objective,
        *,
        optimizer: OptimizerConfig,
        total_steps: int,
        logit_chunk: int,
        probing: Probing | None = None,
        frozen: tuple[Any, ...] = (),
        seed: int = 0,
    ):
        self._graphdef = graphdef
        self._frozen = frozen
        self._objective = objective
        self._optimizer = make_optimizer(optimizer, total_steps)
        self._schedule = schedule(optimizer, total_steps)
        self._moments = optimizer.moments
        self._seed = seed
        self._logit_chunk = logit_chunk
        self._probing = probing
        self._opened = jax.jit(self._opening_state)
        self._scored = jax.jit(self._scores)
        self._levelled = jax.jit(self._levels)
        self._nothing = jax.jit(self._no_gradient)
        self._accumulate = jax.jit(self._with_gradient, donate_argnums=0)
        self._apply = jax.jit(self._applied, donate_argnums=0)

    def init(self, params: Any) -> TrainState:
        """Returns the state before the first step; the parameters are taken over."""
        return dataclasses.replace(self._opened(params), params=params)

    def scores(
        self, params: Any, batch: Batch, sampling: Sampling
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns log-probabilities and entropies [B, T], 0 beyond each length."""
        scored, lengths_B = on_host(
            (self._scored(params, self._frozen, batch, sampling), batch.lengths)
        )
        index_T = np.arange(scored.logprobs.shape[1])
        mask_BT = index_T[None] < lengths_B[:, None]
        logprobs_BT = np.where(mask_BT, scored.logprobs, np.float32(0))
        return logprobs_BT, np.where(mask_BT, scored.entropies, np.float32(0))

    def levels(
        self, params: Any, batch: Batch, sampling: Sampling, guide: Guide
    ) -> np.ndarray:
        """Returns the feature levels [B, T] of the policy `params`, 0 where none is."""
        return on_host(self._levelled(params, self._frozen, batch, sampling, guide))

    def step(
        self,
        state: TrainState,
        micro_batches: Iterable[Batch],
        sampling: Sampling,
        *,
        guide: Guide | None = None,
        dictionary: Any = None,
    ) -> tuple[TrainState, LossParts, StepReport]:
        """Returns the state after one optimizer step on the sum of the micro-batches.

        A step whose gradient is not finite changes neither parameters nor optimizer
        state; it is counted in `skipped`. The state given is used up. `guide` and
        `dictionary` are for an update with a probe: with the dictionary, the statistics
        of all its latents are gathered as well.
        """
        total = self._nothing(state.params, guide, dictionary)
        for batch in micro_batches:
            total = self._accumulate(
                total, state.params, self._frozen, batch, sampling, guide, dictionary
            )
        grads, parts = total
        state, report = self._apply(state, grads)
        return state, parts, report

    def gradient(
        self,
        params: Any,
        batch: Batch,
        sampling: Sampling,
        guide: Guide | None,
        dictionary: Any,
    ) -> tuple[Any, LossParts]:
        """Returns a micro-batch's gradient and parts, by the program that `step` uses.

        What a step takes longer for a probe is measured by it.
        """
        nothing = self._nothing(params, guide, dictionary)
        return self._accumulate(
            nothing, params, self._frozen, batch, sampling, guide, dictionary
        )

    def shapes(
        self, params: Any, guide: Guide | None
    ) -> tuple[TrainState, tuple[Any, LossParts]]:
        """Returns the shapes that live between programs, from those of parameters."""
        state = dataclasses.replace(_shapes(self._opened, params), params=params)
        return state, _shapes(self._nothing, params, guide, None)

    def lowered(
        self, params: Any, batch: Batch, sampling: Sampling, guide: Guide | None
    ) -> dict[str, Callable[[], Any]]:
        """Returns a step's programs on shapes, by name: a call lowers one."""
        state, total = self.shapes(params, guide)

        def scorer() -> Any:
            if guide is None:
                return self._scored.lower(params, self._frozen, batch, sampling)
            return self._levelled.lower(params, self._frozen, batch, sampling, guide)

        return {
            "scorer": scorer,
            "gradient": lambda: self._accumulate.lower(
                total, params, self._frozen, batch, sampling, guide, None
            ),
            "update": lambda: self._apply.lower(state, total[0]),
        }

    def _opening_state(self, params: Any) -> TrainState:
        moments = self._optimizer.init(wide(params))
        opt_state = jax.tree.map(
            lambda x: x.astype(self._moments) if x.dtype == jnp.float32 else x, moments
        )
        zero = jnp.int32(0)
        return laid_out(
            TrainState(params=None, opt_state=opt_state, step=zero, skipped=zero)
        )

    def _scores(
        self,
        params: Any,
        frozen: tuple[Any, ...],
        batch: Batch,
        sampling: Sampling,
        *,
        tap: int | None = None,
    ) -> Scores:
        policy = nnx.merge(self._graphdef, params, *frozen)
        return token_scores(policy, batch, sampling, chunk=self._logit_chunk, tap=tap)

    def _levels(
        self,
        params: Any,
        frozen: tuple[Any, ...],
        batch: Batch,
        sampling: Sampling,
        guide: Guide,
    ) -> Array:
        assert self._probing is not None
        tap = self._probing.layer
        scores = self._scores(params, frozen, batch, sampling, tap=tap)
        assert scores.stream is not None
        level_BT = rfgo.levels(rfgo.features(scores.stream, guide), guide)
        known_BT = rfgo.has_level(batch.lengths, level_BT.shape[1])
        return jnp.pad(jnp.where(known_BT, level_BT, 0.0), ((0, 0), (0, 1)))

    def _no_gradient(
        self, params: Any, guide: Guide | None = None, dictionary: Any = None
    ) -> tuple[Any, LossParts]:
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        names = {field.name for field in dataclasses.fields(LossParts)}
        not_scalar = {"by_band", "by_cell", "guide", "latents"}
        parts = LossParts(
            **dict.fromkeys(names - not_scalar, jnp.float32(0.0)),
            by_band=no_sums(),
            by_cell=no_token_sums(),
            guide=None if guide is None else rfgo.no_sums(guide),
            latents=self._observed(None, None, dictionary),
        )
        return laid_out((zeros, parts))

    def _observed(self, stream: Any, batch: Batch | None, dictionary: Any) -> Any:
        """Returns the statistics of all latents; None in steps that ask for none."""
        if dictionary is None or self._probing is None:
            return None
        if batch is None:
            return self._probing.observer.nothing(dictionary)
        return self._probing.observer(stream, batch, dictionary)

    def _guided_loss(
        self, scores: Scores, batch: Batch, guide: Guide | None, dictionary: Any
    ) -> tuple[Array, LossParts]:
        """Returns the objective of the batch as the probe, if any, has guided it."""
        if self._probing is None or guide is None or scores.stream is None:
            return self._objective(scores, batch)
        guided, seen = rfgo.guided(
            scores.stream,
            batch,
            guide,
            config=self._probing.rfgo,
            shuffled=self._probing.shuffled,
        )
        value, parts = self._objective(scores, guided)
        latents = self._observed(scores.stream, batch, dictionary)
        return value, dataclasses.replace(parts, guide=seen, latents=latents)

    def _with_gradient(
        self,
        total: tuple[Any, LossParts],
        params: Any,
        frozen: tuple[Any, ...],
        batch: Batch,
        sampling: Sampling,
        guide: Guide | None = None,
        dictionary: Any = None,
    ) -> tuple[Any, LossParts]:
        tap = None
        if self._probing is not None and guide is not None:
            tap = self._probing.layer

        def loss(params: Any) -> tuple[Array, LossParts]:
            scores = self._scores(params, frozen, batch, sampling, tap=tap)
            return self._guided_loss(scores, batch, guide, dictionary)

        grads, parts = jax.grad(loss, has_aux=True)(params)
        summed = jax.tree.map(jnp.add, total[0], wide(grads))
        return laid_out((summed, total[1] + parts))

    def _applied(self, state: TrainState, grads: Any) -> tuple[TrainState, StepReport]:
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(norm)
        # The schedule stands still in a skipped step, as the rest of the optimizer.
        done = optax.tree.get(state.opt_state, "ScaleByScheduleState").count
        with jax.numpy_dtype_promotion("standard"):  # optax: 0.9 ** an integer
            updates, opt_state = self._optimizer.update(
                grads, wide(state.opt_state), wide(state.params)
            )
            rate = jnp.asarray(self._schedule(done), jnp.float32)
        params, opt_state = narrow(
            (jax.tree.map(jnp.add, wide(state.params), updates), opt_state),
            (state.params, state.opt_state),
            seed=self._seed,
            step=state.step,
        )

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        skipped = jnp.where(finite, 0, state.skipped + 1)
        new_state = TrainState(
            params=jax.tree.map(keep, params, state.params),
            opt_state=jax.tree.map(keep, opt_state, state.opt_state),
            step=state.step + 1,
            skipped=skipped,
        )
        report = StepReport(grad_norm=norm, learning_rate=rate, skipped=skipped)
        return laid_out((new_state, report))


def _shapes(program: Any, *args: Any) -> Any:
    """Returns the shapes of a jitted program's results, with their layouts."""
    lowered = program.lower(*args)
    return jax.tree.map(
        lambda x, layout: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout),
        lowered.out_info,
        lowered.compile().output_shardings,
    )
