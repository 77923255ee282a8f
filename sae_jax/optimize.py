"""Optimizer steps over clones: one program trains C dictionaries on the same pairs.

A step: gradient, the part along decoder rows removed, clip, Adam, rows back to length
1; then the inference threshold follows the smallest activation kept, and the counters
of silence go on. Normalised activations are s x with mean square 1; `dictionaries`
folds s, so that what leaves this module works on raw activations.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from job_jax.mesh import constrain
from sae_jax.config import Config, LossConfig, OptimizerConfig, TrainConfig
from sae_jax.losses import tsae_loss
from sae_jax.sae import TSAE, unit_rows
from sae_jax.types import LossParts, Pairs, StepReport

_MEDIAN_STEPS = 100
_MEDIAN_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Clone:
    """One of the dictionaries trained together: which start, how much contrast."""

    seed: int
    alpha: float

    @property
    def name(self) -> str:
        """Returns what its files are called: seed0, seed0_twin."""
        return f"seed{self.seed}" + ("" if self.alpha > 0 else "_twin")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """Everything that a step reads and writes; checkpointed whole.

    `tsae` and `opt_state` have a leading clone axis and live on normalised activations
    `scale` x. The threshold passes through the optimizer with a gradient of 0.
    """

    tsae: TSAE
    opt_state: Any
    silence: Int[Array, " C Z"]
    alpha: Float[Array, " C"]
    scale: Float[Array, ""]
    step: Int[Array, ""]


def clones(config: Config) -> tuple[Clone, ...]:
    """Returns the clones in the order of the clone axis: each seed, then its twin."""
    alphas = [config.loss.alpha]
    if config.train.twin and config.loss.alpha > 0:
        alphas.append(0.0)
    seeds = range(config.seed, config.seed + config.train.seeds)
    return tuple(Clone(seed, alpha) for seed in seeds for alpha in alphas)


@functools.partial(jax.jit, static_argnames="config")
def init_state(first: Pairs, *, config: Config) -> TrainState:
    """Returns the state before the first step, from the first batch of pairs.

    The batch sets the scale and, by its geometric median, the decoder bias. A seed and
    its twin begin with the same weights, whatever other clones there are.
    """
    x_BD = jnp.where(first.valid[:, None], first.x, 0.0).astype(jnp.float32)
    rows = jnp.maximum(first.valid.sum(), 1).astype(jnp.float32)
    mean_square = jnp.sum(x_BD**2) / (rows * x_BD.shape[1])
    scale = jnp.float32(1.0)
    if config.sae.normalize:
        scale = jnp.where(mean_square > 0, jax.lax.rsqrt(mean_square), 1.0)
    median_D = geometric_median(scale * x_BD, first.valid)

    def start(seed: Array) -> TSAE:
        return TSAE.init(
            jax.random.key(seed),
            width=x_BD.shape[1],
            latents=config.sae.latents,
            group_sizes=config.sae.group_sizes,
            decoder_bias=median_D,
        )

    copies = clones(config)
    tsae = jax.vmap(start)(jnp.array([copy.seed for copy in copies], jnp.uint32))
    state = TrainState(
        tsae=tsae,
        opt_state=jax.vmap(_optimizer(config).init)(tsae),
        silence=jnp.zeros((len(copies), config.sae.latents), jnp.int32),
        alpha=jnp.array([copy.alpha for copy in copies], jnp.float32),
        scale=scale,
        step=jnp.int32(0),
    )
    return _laid_out(state)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=0)
def step(
    state: TrainState, pairs: Pairs, *, config: Config
) -> tuple[TrainState, StepReport]:
    """Returns the state after one optimizer step of every clone; `state` is used up.

    AuxK costs as much as all else together, so a batch before which no latent of any
    clone could be dead takes a program without it.
    """
    pairs = dataclasses.replace(
        pairs,
        x=state.scale * pairs.x.astype(jnp.float32),
        partner=state.scale * pairs.partner.astype(jnp.float32),
    )

    def gradients(loss: LossConfig) -> tuple[TSAE, LossParts]:
        def objective(tsae: TSAE, silence_Z: Array, alpha: Array) -> tuple:
            return tsae_loss(
                tsae,
                pairs,
                silence_Z,
                sae=config.sae,
                config=loss,
                alpha=alpha,
                compute_dtype=config.train.compute_dtype,
            )

        gradient = jax.vmap(jax.grad(objective, has_aux=True))
        return gradient(state.tsae, state.silence, state.alpha)

    if config.loss.auxk_coef > 0:
        batch = pairs.x.shape[0]
        grads, parts = jax.lax.cond(
            jnp.any(state.silence + batch >= config.loss.dead_after),
            lambda: gradients(config.loss),
            lambda: gradients(dataclasses.replace(config.loss, auxk_coef=0.0)),
        )
    else:
        grads, parts = gradients(config.loss)
    grads = dataclasses.replace(
        grads, decoder=_without_parallel(grads.decoder, state.tsae.decoder)
    )
    with jax.numpy_dtype_promotion("standard"):  # optax: 0.9 ** an integer
        updates, opt_state = jax.vmap(_optimizer(config).update)(grads, state.opt_state)
        rate = jnp.asarray(schedule(config.optimizer, config.train)(state.step))
    tsae = optax.apply_updates(state.tsae, updates)
    threshold_CZ = _followed(state, parts.cut, config.train)
    tsae = dataclasses.replace(
        tsae, decoder=unit_rows(tsae.decoder), threshold=threshold_CZ
    )
    report = _report(
        parts,
        threshold=threshold_CZ[:, 0],
        grad_norm=jax.vmap(optax.tree.norm)(grads),
        learning_rate=jnp.full_like(parts.loss, rate),
    )
    new_state = TrainState(
        tsae=tsae,
        opt_state=opt_state,
        silence=parts.silence,
        alpha=state.alpha,
        scale=state.scale,
        step=state.step + 1,
    )
    return _laid_out(new_state), report


def dictionaries(state: TrainState) -> TSAE:
    """Returns the clones' dictionaries for raw activations, along the clone axis."""
    return state.tsae.rescaled(state.scale)


def schedule(config: OptimizerConfig, train: TrainConfig) -> optax.Schedule:
    """Returns the learning rate by step: up from 0, level, and down to 0 at the end."""
    peak, ramp, steps = config.learning_rate, config.warmup_steps, train.steps
    level_until = steps - round(config.decay_share * steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0 if ramp else peak, peak, max(ramp, 1)),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, max(steps - level_until, 1)),
        ],
        [ramp, level_until if level_until < steps else steps + 1],
    )


def geometric_median(x_BD: Float[Array, " B D"], valid_B: Array) -> Float[Array, " D"]:
    """Returns the point of least summed distance to the valid rows (Weiszfeld).

    At most 100 steps, fewer where the last moved the point by less than 1e-5.
    """

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        guess_D, _, count = carry
        distance_B = jnp.linalg.norm(x_BD - guess_D[None], axis=1)
        weight_B = jnp.where(valid_B, 1.0 / jnp.maximum(distance_B, 1e-12), 0.0)
        new_D = (weight_B / jnp.maximum(weight_B.sum(), 1e-12)) @ x_BD
        return new_D, jnp.linalg.norm(new_D - guess_D), count + 1

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[1] >= _MEDIAN_TOLERANCE) & (carry[2] < _MEDIAN_STEPS)

    rows = jnp.maximum(valid_B.sum(), 1).astype(jnp.float32)
    mean_D = jnp.sum(x_BD, axis=0, where=valid_B[:, None]) / rows
    start = (mean_D, jnp.float32(jnp.inf), jnp.int32(0))
    return jax.lax.while_loop(unfinished, step, start)[0]


def _optimizer(config: Config) -> optax.GradientTransformation:
    adam = config.optimizer
    return optax.chain(
        optax.clip_by_global_norm(adam.clip_norm),
        optax.scale_by_adam(b1=adam.b1, b2=adam.b2, eps=adam.eps),
        optax.scale_by_learning_rate(schedule(adam, config.train)),
    )


def _without_parallel(
    gradient_CZD: Float[Array, " C Z D"], decoder_CZD: Float[Array, " C Z D"]
) -> Float[Array, " C Z D"]:
    """Returns the gradient without what would only change the length of unit rows."""
    along_CZ1 = jnp.sum(gradient_CZD * decoder_CZD, axis=-1, keepdims=True)
    return gradient_CZD - along_CZ1 * decoder_CZD


def _followed(
    state: TrainState, cut_C: Float[Array, " C"], train: TrainConfig
) -> Float[Array, " C Z"]:
    """Returns the thresholds: the first cut after the start, then a running average."""
    old_CZ, cut_C1 = state.tsae.threshold, cut_C[:, None]
    mixed_CZ = train.threshold_decay * old_CZ + (1.0 - train.threshold_decay) * cut_C1
    new_CZ = jnp.where(old_CZ < 0, cut_C1, mixed_CZ)
    return jnp.where(state.step > train.threshold_start, new_CZ, old_CZ)


def _report(parts: LossParts, **given: Array) -> StepReport:
    variance_C1 = jnp.where(parts.variance > 0, parts.variance, 1.0)[:, None]
    fve_CG = 1.0 - parts.reconstruction / variance_C1
    return StepReport(
        loss=parts.loss,
        contrast=parts.contrast,
        auxk=parts.auxk,
        fve=fve_CG[:, -1],
        fve_high=fve_CG[:, 0],
        l0=parts.active.astype(jnp.float32) / parts.rows.astype(jnp.float32),
        dead=parts.dead,
        **given,
    )


def _laid_out(state: TrainState) -> TrainState:
    """Returns the state on the current mesh: latents on `tensor`, width on `fsdp`."""

    def lay(node: Any) -> Any:
        if not isinstance(node, TSAE):
            return constrain(node)
        return dataclasses.replace(
            node,
            encoder=constrain(node.encoder, None, "embed", "latents"),
            encoder_bias=constrain(node.encoder_bias, None, "latents"),
            decoder=constrain(node.decoder, None, "latents", "embed"),
            decoder_bias=constrain(node.decoder_bias, None, None),
            threshold=constrain(node.threshold, None, "latents"),
        )

    return jax.tree.map(lay, state, is_leaf=lambda node: isinstance(node, TSAE))
