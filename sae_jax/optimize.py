"""Optimizer steps over replicas: one program trains C autoencoders on the same pairs.

A step takes the gradient, removes its part along decoder rows, clips it, applies Adam,
and scales decoder rows back to length 1. Then it updates the inference threshold, a
moving average of the smallest kept activation, and the counters of tokens since each
latent fired. Training runs on s x, which has mean square 1. `inference_dictionaries`
folds s into the weights, so that these read raw activations.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from job_jax.mesh import mesh_platform, with_logical_constraint
from sae_jax.config import Config, LossConfig, OptimizerConfig, TrainConfig
from sae_jax.latents import SparseBatch, find_sparse, matmul
from sae_jax.losses import tsae_loss
from sae_jax.sae import TSAE, matmul_float32, normalize_rows
from sae_jax.sparse import ENTRIES_PER_K, MIN_LATENTS_PER_ENTRY
from sae_jax.types import LossAux, Pairs, StepMetrics

_LATENTS_PER_DEAD = 16  # if at most one latent in 16 is dead, AuxK gathers only these
_MEDIAN_STEPS = 100
_MEDIAN_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class Replica:
    """One of the autoencoders trained together: its seed and its contrast weight."""

    seed: int
    alpha: float

    @property
    def name(self) -> str:
        """Returns the name of its files and metrics: seed0, seed0_no_contrast."""
        return f"seed{self.seed}" + ("" if self.alpha > 0 else "_no_contrast")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainState:
    """The state of training, which `train_step` advances and checkpoints store.

    `tsae` and `opt_state` have a leading replica axis and apply to the normalized
    activations `scale` x. The threshold passes through the optimizer with a gradient of
    0.
    """

    tsae: TSAE
    opt_state: PyTree
    tokens_since_fired: Int[Array, " C Z"]
    alpha: Float[Array, " C"]
    scale: Float[Array, ""]
    step: Int[Array, ""]


def replicas(config: Config) -> tuple[Replica, ...]:
    """Returns the replicas in order: each seed, then its baseline without contrast.

    >>> [replica.name for replica in replicas(Config())]
    ['seed0', 'seed0_no_contrast']
    """
    alphas = [config.loss.alpha]
    if config.train.no_contrast_baseline and config.loss.alpha > 0:
        alphas.append(0.0)
    seeds = range(config.seed, config.seed + config.train.num_seeds)
    return tuple(Replica(seed, alpha) for seed in seeds for alpha in alphas)


@functools.partial(jax.jit, static_argnames="config")
def init_state(first_batch: Pairs, *, config: Config) -> TrainState:
    """Returns the training state before the first step, made from the first batch.

    The batch sets the scale and, by its geometric median, the decoder bias. A seed and
    its baseline start from the same weights, independent of other replicas.

    >>> from sae_jax.config import SAEConfig
    >>> config = Config(sae=SAEConfig(latents=32, k=4))
    >>> x = jax.random.normal(jax.random.key(0), (17, 8))
    >>> pairs = Pairs(x=x[1:], positive=x[:-1], valid=jnp.ones(16, bool))
    >>> state = init_state(pairs, config=config)
    >>> state, metrics = train_step(state, pairs, config=config)
    >>> int(state.step), metrics.loss.shape  # one loss a replica
    (1, (2,))
    >>> inference_dictionaries(state).replica(0).encode(x).shape
    (17, 32)
    """
    x_BD = jnp.where(first_batch.valid[:, None], first_batch.x, 0.0).astype(jnp.float32)
    rows = jnp.maximum(first_batch.valid.sum(), 1).astype(jnp.float32)
    mean_square = jnp.sum(x_BD**2) / (rows * x_BD.shape[1])
    scale = jnp.float32(1.0)
    if config.sae.normalize:
        scale = jnp.where(mean_square > 0, jax.lax.rsqrt(mean_square), 1.0)
    median_D = geometric_median(scale * x_BD, first_batch.valid)

    def init_tsae(seed: Array) -> TSAE:
        return TSAE.init(
            jax.random.key(seed),
            width=x_BD.shape[1],
            latents=config.sae.latents,
            group_sizes=config.sae.group_sizes,
            decoder_bias=median_D,
            num_checkpoints=1 + len(config.pairs.beside),
        )

    copies = replicas(config)
    tsae = jax.vmap(init_tsae)(jnp.array([copy.seed for copy in copies], jnp.uint32))
    state = TrainState(
        tsae=tsae,
        opt_state=jax.vmap(_make_optimizer(config).init)(tsae),
        tokens_since_fired=jnp.zeros((len(copies), config.sae.latents), jnp.int32),
        alpha=jnp.array([copy.alpha for copy in copies], jnp.float32),
        scale=scale,
        step=jnp.int32(0),
    )
    return _with_sharding(state)


@functools.partial(jax.jit, static_argnames="config", donate_argnums=0)
def train_step(
    state: TrainState, pairs: Pairs, *, config: Config
) -> tuple[TrainState, StepMetrics]:
    """Returns the state after one optimizer step of every replica, and its metrics.

    The buffers of `state` are donated: do not use it again.
    """
    pairs = dataclasses.replace(
        pairs,
        x=state.scale * pairs.x.astype(jnp.float32),
        positive=state.scale * pairs.positive.astype(jnp.float32),
    )
    grads, parts = _projected_gradients(state, pairs, config)
    with jax.numpy_dtype_promotion("standard"):  # optax: 0.9 ** an integer
        updates, opt_state = jax.vmap(_make_optimizer(config).update)(
            grads, state.opt_state
        )
        rate = jnp.asarray(
            learning_rate_schedule(config.optimizer, config.train)(state.step)
        )
    tsae = optax.apply_updates(state.tsae, updates)
    threshold_CZ = _update_threshold(state, parts.min_kept, config.train)
    tsae = dataclasses.replace(
        tsae, decoder=normalize_rows(tsae.decoder), threshold=threshold_CZ
    )
    report = _step_metrics(
        parts,
        threshold=threshold_CZ[:, 0],
        grad_norm=jax.vmap(optax.tree.norm)(grads),
        learning_rate=jnp.full_like(parts.loss, rate),
    )
    new_state = TrainState(
        tsae=tsae,
        opt_state=opt_state,
        tokens_since_fired=parts.tokens_since_fired,
        alpha=state.alpha,
        scale=state.scale,
        step=state.step + 1,
    )
    return _with_sharding(new_state), report


def inference_dictionaries(state: TrainState) -> TSAE:
    """Returns the autoencoders for raw activations, along the replica axis."""
    return state.tsae.fold_scale(state.scale)


def learning_rate_schedule(
    config: OptimizerConfig, train: TrainConfig
) -> optax.Schedule:
    """Returns the learning rate by step: linear from 0, constant, then linear to 0.

    >>> config = OptimizerConfig(learning_rate=1.0, warmup_steps=10)
    >>> rate = learning_rate_schedule(config, TrainConfig(steps=1100))
    >>> [round(float(rate(step)), 2) for step in (0, 5, 500, 990, 1100)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    peak, ramp, steps = config.learning_rate, config.warmup_steps, train.steps
    level_until = steps - round(config.lr_decay_fraction * steps)
    return optax.join_schedules(
        [
            optax.linear_schedule(0.0 if ramp else peak, peak, max(ramp, 1)),
            optax.constant_schedule(peak),
            optax.linear_schedule(peak, 0.0, max(steps - level_until, 1)),
        ],
        [ramp, level_until if level_until < steps else steps + 1],
    )


def geometric_median(x_BD: Float[Array, " B D"], valid_B: Array) -> Float[Array, " D"]:
    """Returns the point with the least summed distance to the valid rows (Weiszfeld).

    It stops after 100 iterations, or once one moves the point by less than 1e-5.

    >>> x = jnp.array([[0.0, 0.0], [0.0, 2.0], [0.0, 90.0]])
    >>> geometric_median(x, jnp.ones(3, bool)).round(2).tolist()
    [0.0, 2.0]
    """

    def step(carry: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        guess_D, _, count = carry
        distance_B = jnp.linalg.norm(x_BD - guess_D[None], axis=1)
        weight_B = jnp.where(valid_B, 1.0 / jnp.maximum(distance_B, 1e-12), 0.0)
        new_D = matmul_float32(weight_B / jnp.maximum(weight_B.sum(), 1e-12), x_BD)
        return new_D, jnp.linalg.norm(new_D - guess_D), count + 1

    def unfinished(carry: tuple[Array, Array, Array]) -> Array:
        return (carry[1] >= _MEDIAN_TOLERANCE) & (carry[2] < _MEDIAN_STEPS)

    rows = jnp.maximum(valid_B.sum(), 1).astype(jnp.float32)
    mean_D = jnp.sum(x_BD, axis=0, where=valid_B[:, None]) / rows
    start = (mean_D, jnp.float32(jnp.inf), jnp.int32(0))
    return jax.lax.while_loop(unfinished, step, start)[0]


def _make_optimizer(config: Config) -> optax.GradientTransformation:
    adam = config.optimizer
    return optax.chain(
        optax.clip_by_global_norm(adam.clip_norm),
        optax.scale_by_adam(b1=adam.b1, b2=adam.b2, eps=adam.eps),
        optax.scale_by_learning_rate(learning_rate_schedule(adam, config.train)),
    )


def _projected_gradients(
    state: TrainState, pairs: Pairs, config: Config
) -> tuple[TSAE, LossAux]:
    """Returns gradients without their part along decoder rows, and the loss's parts.

    AuxK over all latents costs as much as everything else together. So it is skipped
    while no latent of any replica can be dead, and with few dead latents it gathers
    only their columns.
    """
    found, fits = None, jnp.bool(True)
    if (entries := _count_entries(config)) is not None:
        found = _find_sparse(state.tsae, pairs, config, entries=entries)
        fits = found.fits.all()
    few = math.ceil(config.sae.latents / _LATENTS_PER_DEAD)
    unrevived = dataclasses.replace(config.loss, auxk_coef=0.0)
    programs = [
        lambda: _gradients(state, pairs, found, config, unrevived, None),
        lambda: _gradients(state, pairs, found, config, config.loss, few),
        lambda: _gradients(state, pairs, None, config, config.loss, None),
    ]
    silent_CZ = (
        state.tokens_since_fired + pairs.x.shape[0] >= config.loss.dead_after_tokens
    )
    dead = silent_CZ.sum(axis=1).max()
    choice = jnp.where(fits & (dead <= few), (dead > 0).astype(jnp.int32), 2)
    if config.loss.auxk_coef == 0:
        programs, choice = [programs[0], programs[2]], (~fits).astype(jnp.int32)
    grads, parts = jax.lax.switch(choice, programs)
    decoder_CZD = _remove_parallel_gradient(grads.decoder, state.tsae.decoder)
    return dataclasses.replace(grads, decoder=decoder_CZD), parts


def _gradients(
    state: TrainState,
    pairs: Pairs,
    found: SparseBatch | None,
    config: Config,
    loss: LossConfig,
    max_dead: int | None,
) -> tuple[TSAE, LossAux]:
    """Returns every replica's gradients: vectorized if dense, one by one if sparse."""

    def objective(
        tsae: TSAE, silence_Z: Array, alpha: Array, found: SparseBatch | None
    ) -> tuple[Array, LossAux]:
        return tsae_loss(
            tsae,
            pairs,
            silence_Z,
            sae=config.sae,
            config=loss,
            alpha=alpha,
            compute_dtype=config.train.compute_dtype,
            found=found,
            max_dead=max_dead,
        )

    gradient = jax.grad(objective, has_aux=True)
    operands = state.tsae, state.tokens_since_fired, state.alpha, found
    if found is None:
        return jax.vmap(gradient)(*operands)
    return jax.lax.map(lambda each: gradient(*each), operands)


def _find_sparse(
    tsae: TSAE, pairs: Pairs, config: Config, *, entries: int
) -> SparseBatch:
    """Returns the kept latents of the rows for every replica, along its axis."""
    dot = functools.partial(matmul, dtype=config.train.compute_dtype)
    return jax.lax.map(
        lambda each: find_sparse(
            each, pairs, sae=config.sae, config=config.loss, entries=entries, dot=dot
        ),
        tsae,
    )


def _count_entries(config: Config) -> int | None:
    """Returns the number of entries per row in sparse products, or None for dense ones.

    With products=auto, only a single CPU device uses sparse products, because elsewhere
    we have not measured whether gathering and scattering rows is faster.
    """
    entries = ENTRIES_PER_K * config.sae.k
    mesh = jax.sharding.get_abstract_mesh()
    suits = (
        mesh_platform() == "cpu"
        and (mesh.empty or mesh.size == 1)
        and config.train.compute_dtype == "float32"
        and config.sae.latents >= MIN_LATENTS_PER_ENTRY * entries
    )
    sparse = {"auto": suits, "sparse": True, "dense": False}[config.train.products]
    return entries if sparse else None


def _remove_parallel_gradient(
    gradient_CZD: Float[Array, " C Z D"], decoder_CZD: Float[Array, " C Z D"]
) -> Float[Array, " C Z D"]:
    """Returns the gradient without its part along the decoder's unit rows."""
    along_CZ1 = jnp.sum(gradient_CZD * decoder_CZD, axis=-1, keepdims=True)
    return gradient_CZD - along_CZ1 * decoder_CZD


def _update_threshold(
    state: TrainState, min_kept_C: Float[Array, " C"], train: TrainConfig
) -> Float[Array, " C Z"]:
    """Returns the thresholds, moving averages of the smallest kept activations."""
    old_CZ, min_kept_C1 = state.tsae.threshold, min_kept_C[:, None]
    mixed_CZ = (
        train.threshold_decay * old_CZ + (1.0 - train.threshold_decay) * min_kept_C1
    )
    new_CZ = jnp.where(old_CZ < 0, min_kept_C1, mixed_CZ)
    return jnp.where(state.step > train.threshold_start_step, new_CZ, old_CZ)


def _step_metrics(parts: LossAux, **others: Array) -> StepMetrics:
    variance_C1 = jnp.where(parts.variance > 0, parts.variance, 1.0)[:, None]
    fve_CG = 1.0 - parts.reconstruction / variance_C1
    return StepMetrics(
        loss=parts.loss,
        contrast=parts.contrast,
        auxk=parts.auxk,
        fve=fve_CG[:, -1],
        fve_high=fve_CG[:, 0],
        l0=parts.num_active.astype(jnp.float32) / parts.num_rows.astype(jnp.float32),
        dead=parts.num_dead,
        **others,
    )


def _with_sharding(state: TrainState) -> TrainState:
    """Returns the state on the current mesh: latents on `tensor`, width on `fsdp`."""

    def shard(node: Any) -> Any:
        if not isinstance(node, TSAE):
            return with_logical_constraint(node)
        return dataclasses.replace(
            node,
            encoder=with_logical_constraint(node.encoder, None, "embed", "latents"),
            encoder_bias=with_logical_constraint(node.encoder_bias, None, "latents"),
            decoder=with_logical_constraint(node.decoder, None, "latents", "embed"),
            decoder_bias=with_logical_constraint(node.decoder_bias, None, None),
            threshold=with_logical_constraint(node.threshold, None, "latents"),
        )

    return jax.tree.map(shard, state, is_leaf=lambda node: isinstance(node, TSAE))
