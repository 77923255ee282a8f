"""Optimizer steps: gradients added up over micro-batches, then applied once.

The same two programs serve the supervised warm start and the policy optimization; only
the objective differs.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Int

from job_jax.mesh import await_on_cpu, output_shapes
from rlvr_jax.config import OptimizerConfig
from rlvr_jax.learn import rfgo
from rlvr_jax.learn.logprobs import TokenScores, token_scores
from rlvr_jax.learn.objectives import Objective, zero_aux
from rlvr_jax.learn.optimizer import (
    OptimizerMetrics,
    cast_like,
    make_optimizer,
    make_schedule,
    to_float32,
)
from rlvr_jax.learn.probe_inputs import ProbeInputs, ProbeSpec
from rlvr_jax.models import with_sharding
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.types import Batch, LossAux


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything that an optimizer step reads and writes; checkpointed whole.

    `step` counts applied and skipped optimizer steps and is the version of the weights;
    `consecutive_nonfinite` counts the steps in a row whose gradient was not finite.
    """

    params: nnx.State
    opt_state: optax.OptState
    step: Int[Array, ""]
    consecutive_nonfinite: Int[Array, ""]


class Updater:
    """The jitted programs of one stage's optimizer steps.

    Gradients and the update are float32, even if parameters and moments are not.
    Results stored in bfloat16 are rounded stochastically, with bits from `seed`. All
    arrays are laid out on the mesh as the parameters are, so the next step reuses this
    step's buffers and no device holds more than its part. `frozen` holds states that
    complete the policy; `params` are then only the trained parameters.
    """

    def __init__(
        self,
        graphdef: nnx.GraphDef,
        objective: Objective,
        *,
        optimizer: OptimizerConfig,
        total_steps: int,
        logits_chunk_size: int,
        probe: ProbeSpec | None = None,
        frozen: tuple[nnx.State, ...] = (),
        seed: int = 0,
    ):
        self._graphdef = graphdef
        self._frozen = frozen
        self._objective = objective
        self._optimizer = make_optimizer(optimizer, total_steps)
        self._schedule = make_schedule(optimizer, total_steps)
        self._moments_dtype = optimizer.moments_dtype
        self._seed = seed
        self._logits_chunk_size = logits_chunk_size
        self._probe = probe
        self._init = jax.jit(self._init_state)
        self._score = jax.jit(self._masked_scores, static_argnames="with_entropies")
        self._score_features = jax.jit(self._read_features)
        self._zero_grads = jax.jit(self._make_zero_grads)
        self._accumulate = jax.jit(self._accumulate_grads, donate_argnums=0)
        self._apply = jax.jit(self._apply_gradients, donate_argnums=0)

    def init(self, params: nnx.State) -> TrainState:
        """Returns the state before the first step; it takes over the parameters."""
        return dataclasses.replace(self._init(params), params=params)

    def score(
        self,
        params: nnx.State,
        batch: Batch,
        sampling: SamplingParams,
        *,
        with_entropies: bool = False,
    ) -> tuple[Array, Array | None]:
        """Returns log-probabilities and entropies [B, T], 0 beyond each length.

        Entropies are None, and not computed, unless `with_entropies` is set.
        """
        return self._score(
            params, self._frozen, batch, sampling, with_entropies=with_entropies
        )

    def read_features(
        self,
        params: nnx.State,
        batch: Batch,
        sampling: SamplingParams,
        probe: ProbeInputs,
    ) -> Array:
        """Returns the probe's features at each token [B, T, R], under `params`.

        They are 0 at a completion's last token and beyond, where no features exist.
        """
        return self._score_features(params, self._frozen, batch, sampling, probe)

    def step(
        self,
        state: TrainState,
        micro_batches: Iterable[Batch],
        sampling: SamplingParams,
        *,
        probe: ProbeInputs | None = None,
    ) -> tuple[TrainState, LossAux, OptimizerMetrics]:
        """Returns the state after one optimizer step on the sum of the micro-batches.

        A step whose gradient is not finite changes neither parameters nor optimizer
        state; it is counted in `consecutive_nonfinite`. The state passed in is donated
        and must not be used again. A `probe` reads the update's residual stream, and
        RFGO weights the batch by its features.
        """
        total = self._zero_grads(state.params, probe)
        for batch in micro_batches:
            total = self._accumulate(
                total, state.params, self._frozen, batch, sampling, probe
            )
            await_on_cpu(total)
        grads, aux = total
        state, report = await_on_cpu(self._apply(state, grads))
        return state, aux, report

    def gradient(
        self,
        params: nnx.State,
        batch: Batch,
        sampling: SamplingParams,
        probe: ProbeInputs | None,
    ) -> tuple[nnx.State, LossAux]:
        """Returns a micro-batch's gradient and sums, with the program that `step` uses.

        It serves measurements: the cost of a probe, the direction of token weights.
        """
        zeros = self._zero_grads(params, probe)
        return self._accumulate(zeros, params, self._frozen, batch, sampling, probe)

    def shapes(
        self, params: nnx.State, probe: ProbeInputs | None
    ) -> tuple[TrainState, tuple[nnx.State, LossAux]]:
        """Returns the shapes that live between programs, given the parameters'."""
        return self.abstract_state(params), output_shapes(
            self._zero_grads, params, probe
        )

    def abstract_state(self, params: nnx.State) -> TrainState:
        """Returns the shapes, dtypes and shardings of the state that `init` returns.

        `params` are the parameters' shapes, and become part of it. Nothing is
        allocated.
        """
        return dataclasses.replace(output_shapes(self._init, params), params=params)

    def lower(
        self,
        params: nnx.State,
        batch: Batch,
        sampling: SamplingParams,
        probe: ProbeInputs | None,
    ) -> dict[str, Callable[[], Any]]:
        """Returns every program of a step on shapes, by name: a call lowers one.

        If `probe` has an observer, `gradient_logged` is the program of a logged step.
        """
        quiet = probe and probe.without_observer()
        state, total = self.shapes(params, quiet)
        score = functools.partial(
            self._score.lower, params, self._frozen, batch, sampling
        )
        programs: dict[str, Callable[[], Any]] = {
            "scorer": functools.partial(score, with_entropies=False),
            "scorer_entropies": functools.partial(score, with_entropies=True),
            "gradient": lambda: self._accumulate.lower(
                total, params, self._frozen, batch, sampling, quiet
            ),
            "update": lambda: self._apply.lower(state, total[0]),
        }
        if probe is not None:
            programs["scorer_features"] = lambda: self._score_features.lower(
                params, self._frozen, batch, sampling, quiet
            )
        if probe is not None and probe.observer is not None:
            programs["gradient_logged"] = lambda: self._accumulate.lower(
                self.shapes(params, probe)[1],
                params,
                self._frozen,
                batch,
                sampling,
                probe,
            )
        return programs

    def _init_state(self, params: nnx.State) -> TrainState:
        moments = self._optimizer.init(to_float32(params))
        opt_state = jax.tree.map(
            lambda x: x.astype(self._moments_dtype) if x.dtype == jnp.float32 else x,
            moments,
        )
        zero = jnp.int32(0)
        return with_sharding(
            TrainState(
                params=nnx.State({}),  # the caller puts them in, without a copy
                opt_state=opt_state,
                step=zero,
                consecutive_nonfinite=zero,
            )
        )

    def _token_scores(
        self,
        params: nnx.State,
        frozen: tuple[nnx.State, ...],
        batch: Batch,
        sampling: SamplingParams,
        *,
        capture_layer: int | None = None,
    ) -> TokenScores:
        policy = nnx.merge(self._graphdef, params, *frozen)
        return token_scores(
            policy,
            batch,
            sampling,
            logits_chunk_size=self._logits_chunk_size,
            packing=batch.packing,
            capture_layer=capture_layer,
        )

    def _masked_scores(
        self,
        params: nnx.State,
        frozen: tuple[nnx.State, ...],
        batch: Batch,
        sampling: SamplingParams,
        *,
        with_entropies: bool,
    ) -> tuple[Array, Array | None]:
        scores = self._token_scores(params, frozen, batch, sampling)
        logprobs_BT = jnp.where(batch.mask, scores.logprobs, 0.0)
        if not with_entropies:
            return logprobs_BT, None
        return logprobs_BT, jnp.where(batch.mask, scores.entropies, 0.0)

    def _read_features(
        self,
        params: nnx.State,
        frozen: tuple[nnx.State, ...],
        batch: Batch,
        sampling: SamplingParams,
        probe: ProbeInputs,
    ) -> Array:
        assert self._probe is not None
        layer = self._probe.layer
        scores = self._token_scores(
            params, frozen, batch, sampling, capture_layer=layer
        )
        assert scores.residual is not None
        f_BTR = rfgo.read_features(probe.reader, scores.residual)
        mask_BT = rfgo.activation_mask(batch)[:, : f_BTR.shape[1]]
        f_BTR = jnp.where(mask_BT[:, :, None], f_BTR, 0.0)
        return jnp.pad(f_BTR, ((0, 0), (0, 1), (0, 0)))

    def _make_zero_grads(
        self, params: nnx.State, probe: ProbeInputs | None = None
    ) -> tuple[nnx.State, LossAux]:
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        aux = dataclasses.replace(
            zero_aux(self._objective),
            feature_sums=(
                None
                if probe is None
                else rfgo.zero_feature_sums(probe.reasoning_features)
            ),
            latent_sums=(
                None
                if probe is None or probe.observer is None
                else probe.observer.init()
            ),
        )
        return with_sharding((zeros, aux))

    def _rfgo_loss(
        self, scores: TokenScores, batch: Batch, probe: ProbeInputs | None
    ) -> tuple[Array, LossAux]:
        """Returns the objective of the batch, weighted by RFGO if there is a probe."""
        if self._probe is None or probe is None or scores.residual is None:
            return self._objective(scores, batch)
        T = batch.tokens.shape[1]
        weighted_batch, feature_sums = rfgo.apply_rfgo(
            rfgo.read_features(probe.reader, scores.residual[:, : T - 1]),
            batch,
            probe.reasoning_features,
            config=self._probe.rfgo,
            shuffle_weights=self._probe.shuffle_weights,
        )
        value, aux = self._objective(scores, weighted_batch)
        latent_sums = (
            None
            if probe.observer is None
            else probe.observer.observe(scores.residual, batch)
        )
        return value, dataclasses.replace(
            aux, feature_sums=feature_sums, latent_sums=latent_sums
        )

    def _accumulate_grads(
        self,
        total: tuple[nnx.State, LossAux],
        params: nnx.State,
        frozen: tuple[nnx.State, ...],
        batch: Batch,
        sampling: SamplingParams,
        probe: ProbeInputs | None = None,
    ) -> tuple[nnx.State, LossAux]:
        layer = None
        if self._probe is not None and probe is not None:
            layer = self._probe.layer

        def loss(params: nnx.State) -> tuple[Array, LossAux]:
            scores = self._token_scores(
                params, frozen, batch, sampling, capture_layer=layer
            )
            return self._rfgo_loss(scores, batch, probe)

        grads, aux = jax.grad(loss, has_aux=True)(params)
        summed = jax.tree.map(jnp.add, total[0], to_float32(grads))
        return with_sharding((summed, total[1] + aux))

    def _apply_gradients(
        self, state: TrainState, grads: nnx.State
    ) -> tuple[TrainState, OptimizerMetrics]:
        norm = optax.tree.norm(grads)
        finite = jnp.isfinite(norm)
        # In a skipped step the schedule does not move, like the rest of the optimizer.
        done = optax.tree.get(state.opt_state, "ScaleByScheduleState").count
        with jax.numpy_dtype_promotion("standard"):  # optax: 0.9 ** an integer
            updates, opt_state = self._optimizer.update(
                grads, to_float32(state.opt_state), to_float32(state.params)
            )
            rate = jnp.asarray(self._schedule(done), jnp.float32)
        params, opt_state = cast_like(
            (jax.tree.map(jnp.add, to_float32(state.params), updates), opt_state),
            (state.params, state.opt_state),
            seed=self._seed,
            step=state.step,
        )

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(finite, new, old)

        skipped = jnp.where(finite, 0, state.consecutive_nonfinite + 1)
        new_state = TrainState(
            params=jax.tree.map(keep, params, state.params),
            opt_state=jax.tree.map(keep, opt_state, state.opt_state),
            step=state.step + 1,
            consecutive_nonfinite=skipped,
        )
        report = OptimizerMetrics(
            grad_norm=norm, learning_rate=rate, consecutive_nonfinite=skipped
        )
        return with_sharding((new_state, report))
