"""Interventions on latents: remove, clamp, scale or add them in the residual stream.

    x + scale * (f' - f) decoder     f' = latent_scale * f + latent_shift

Only the difference is added. So the part of x that the autoencoder does not reconstruct
stays, and where f' = f, x keeps every bit. Only the chosen latents are encoded. Modes:

    ablate   f' = (1 - strength) f     1 removes the latent
    clamp    f' = strength * mean      for every x
    scale    f' = strength * f         0 removes it, 1 changes nothing
    add      f' = f + strength * mean

where `mean` is the latent's mean activation on the tokens where it fires. There are two
controls: random latents that fire as often, scaled to move x as far, and a random
direction that moves each token exactly as far.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Self, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from job_jax.schema import ConfigError
from sae_jax.sae import TSAE, matmul_float32

Mode = Literal["ablate", "clamp", "scale", "add"]
MODES: tuple[Mode, ...] = get_args(Mode)

_BLOCK = 1024  # tokens whose latents exist at once
_NUM_CANDIDATES = 16  # controls are drawn from this many latents of nearest rate
_MAX_TRIES = 100  # per set, to draw one that was not drawn before


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentEdit:
    """An edit of R latents in the residual stream after `layer`: call it on the stream.

    Made by `make_latent_edit`. `columns` is the autoencoder reduced to these latents.
    With `use_direction`, x moves equally far, but along the unit vector `direction`.
    All fields but `layer` are arrays, so edits of equally many latents share a program.
    """

    columns: TSAE
    latent_scale: Float[Array, " R"]
    latent_shift: Float[Array, " R"]
    scale: Float[Array, ""]
    direction: Float[Array, " D"]
    use_direction: Bool[Array, ""]
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Float[Array, "*B D"], /) -> Float[Array, "*B D"]:
        """Returns the edited stream, in the dtype of x."""
        return x + self.delta(x).astype(x.dtype)

    def delta(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Returns the change that the edit adds to x, in float32."""
        lead = tuple(range(x.ndim - 1))
        scale, shift, direction = (
            jnp.expand_dims(array, lead)
            for array in (self.latent_scale, self.latent_shift, self.direction)
        )
        f = self.columns.encode(x)
        change = scale * f + shift - f
        delta = self.scale * matmul_float32(change, self.columns.decoder)
        distance = jnp.linalg.norm(delta, axis=-1, keepdims=True)
        return jnp.where(self.use_direction, distance * direction, delta)

    def with_scale(self, scale: float) -> Self:
        """Returns the edit that moves x `scale` times as far; 0 is the null edit."""
        return dataclasses.replace(self, scale=jnp.float32(scale))

    def toward(self, direction: Float[np.ndarray, " D"]) -> Self:
        """Returns the edit that moves every x as far as this one, along `direction`."""
        unit = direction / np.linalg.norm(direction)
        return dataclasses.replace(
            self,
            direction=jnp.asarray(unit, jnp.float32),
            use_direction=jnp.asarray(True),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class FiringStats:
    """Each latent's firing rate, and its mean where it fires (0 if it never does).

    Made by `measure_firing`, on tokens of the unedited model.
    """

    rate: Float[np.ndarray, " Z"]
    mean_when_active: Float[np.ndarray, " Z"]

    def select_dead(self, latents: Sequence[int]) -> tuple[int, ...]:
        """Returns which of these latents never fire."""
        return tuple(latent for latent in latents if not self.rate[latent])


def check_latents(tsae: TSAE, latents: Sequence[int]) -> None:
    """Raises ConfigError unless these are latents of the autoencoder, each named once.

    >>> check_latents(TSAE.init(0, width=2, latents=4), [5])
    Traceback (most recent call last):
    ...
    job_jax.schema.ConfigError: latents [5] lie outside 0..3
    """
    if not latents:
        raise ConfigError(f"no latents; name some of 0..{tsae.latents - 1}")
    beyond = [latent for latent in latents if not 0 <= latent < tsae.latents]
    if beyond:
        raise ConfigError(f"latents {beyond} lie outside 0..{tsae.latents - 1}")
    if len(set(latents)) < len(latents):
        raise ConfigError(f"latents {list(latents)} name one of them twice")
    if tsae.top_k is not None:
        raise ConfigError(
            f"a dictionary that keeps the {tsae.top_k} largest latents needs all of "
            "them to encode; give one with a threshold"
        )


def make_latent_edit(
    tsae: TSAE,
    latents: Sequence[int],
    *,
    layer: int,
    mode: Mode,
    strength: float | Sequence[float],
    mean_when_active: Float[np.ndarray, " Z"],
) -> LatentEdit:
    """Returns the edit that changes these latents in one of the four modes.

    `strength` is one number for all latents, or one for each. `mean_when_active` comes
    from `measure_firing`. Raises ConfigError on latents that the autoencoder does not
    have (`check_latents`).

    >>> tsae = TSAE.init(0, width=2, latents=4)
    >>> x = jnp.array([[1.0, 2.0]])
    >>> edit = make_latent_edit(
    ...     tsae, [1, 3], layer=0, mode="ablate", strength=1.0,
    ...     mean_when_active=np.zeros(4),
    ... )
    >>> removed = tsae.encode(x)[:, [1, 3]] @ tsae.decoder[jnp.array([1, 3])]
    >>> bool(jnp.allclose(edit(x), x - removed, atol=1e-6))
    True
    """
    check_latents(tsae, latents)
    at = np.asarray(latents)
    strength_R = np.broadcast_to(np.asarray(strength, np.float64), at.shape)
    zeros_R = np.zeros(len(at))
    scale_R, shift_R = {
        "ablate": (1.0 - strength_R, zeros_R),
        "clamp": (zeros_R, strength_R * mean_when_active[at]),
        "scale": (strength_R, zeros_R),
        "add": (zeros_R + 1.0, strength_R * mean_when_active[at]),
    }[mode]
    return LatentEdit(
        columns=TSAE(
            encoder=jnp.asarray(tsae.encoder[:, at]),
            encoder_bias=jnp.asarray(tsae.encoder_bias[at]),
            decoder=jnp.asarray(tsae.decoder[at]),
            decoder_bias=jnp.asarray(tsae.decoder_bias),
            threshold=jnp.asarray(tsae.threshold[at]),
            group_sizes=(len(at),),
        ),
        latent_scale=jnp.asarray(scale_R, jnp.float32),
        latent_shift=jnp.asarray(shift_R, jnp.float32),
        scale=jnp.float32(1.0),
        direction=jnp.zeros(tsae.width, jnp.float32),
        use_direction=jnp.asarray(False),
        layer=layer,
    )


def measure_firing(tsae: TSAE, x: Float[np.ndarray, "N D"]) -> FiringStats:
    """Returns how often, and how strongly, each latent fires on N tokens.

    >>> x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    >>> stats = measure_firing(TSAE.init(0, width=2, latents=4), x)
    >>> stats.rate.shape, stats.mean_when_active.shape
    ((4,), (4,))
    """
    count = total = np.zeros(tsae.latents)
    for start in range(0, len(x), _BLOCK):
        fired, summed = _firing_sums(tsae, x[start : start + _BLOCK])
        count, total = count + np.asarray(fired), total + np.asarray(summed)
    unit = np.divide(total, count, out=np.zeros(tsae.latents), where=count > 0)
    return FiringStats(rate=count / len(x), mean_when_active=unit)


@jax.jit
def _firing_sums(tsae: TSAE, x: Float[Array, "N D"]) -> tuple[Array, Array]:
    f = tsae.encode(x)
    return (f > 0).sum(axis=0), f.sum(axis=0)


def mean_shift(edit: LatentEdit, x: Float[np.ndarray, "N D"]) -> float:
    """Returns the mean distance by which an edit moves N tokens (see `match_shift`)."""
    return float(_mean_shift(edit, x))


@jax.jit
def _mean_shift(edit: LatentEdit, x: Float[Array, "N D"]) -> Float[Array, ""]:
    return jnp.linalg.norm(edit.delta(x), axis=-1).mean()


def match_shift(
    edit: LatentEdit, target: LatentEdit, x: Float[np.ndarray, "N D"]
) -> LatentEdit:
    """Returns the edit, scaled to move N tokens as far on average as the target.

    An edit that moves nothing cannot be matched, so its scale becomes 0.

    >>> tsae = TSAE.init(0, width=2, latents=4)
    >>> x = np.random.default_rng(0).normal(size=(100, 2)).astype(np.float32)
    >>> mean = measure_firing(tsae, x).mean_when_active
    >>> target, other = (
    ...     make_latent_edit(
    ...         tsae, [z], layer=0, mode="ablate", strength=1.0, mean_when_active=mean
    ...     )
    ...     for z in (0, 1)
    ... )
    >>> matched = match_shift(other, target, x)
    >>> bool(np.isclose(mean_shift(matched, x), mean_shift(target, x)))
    True
    """
    distance = mean_shift(edit, x)
    return edit.with_scale(mean_shift(target, x) / distance if distance else 0.0)


def rate_matched_latents(
    rate: Float[np.ndarray, " Z"], latents: Sequence[int], *, num_draws: int, seed: int
) -> list[tuple[int, ...]]:
    """Returns `num_draws` different random sets of latents that fire as often as these.

    Each set holds one latent per target, drawn from the latents nearest to it in log
    firing rate (16, or `num_draws` if that is more). A set contains no target, no
    latent that never fires, and no latent twice. Raises ConfigError if there are not
    enough of these sets.

    >>> rate = np.array([0.5, 0.5, 0.1, 0.0])
    >>> rate_matched_latents(rate, [0], num_draws=2, seed=0)
    [(2,), (1,)]
    """
    alive = np.flatnonzero(rate > 0)
    alive = alive[~np.isin(alive, latents)]
    if len(alive) < len(latents):
        raise ConfigError(
            f"{len(alive)} other latents fire: too few to match {len(latents)}; edit "
            "fewer latents"
        )
    rng = np.random.default_rng(seed)
    log_rate = np.log(np.maximum(rate, rate[alive].min()))

    def draw_set() -> tuple[int, ...]:
        free, chosen = alive, []
        for latent in latents:
            distance = np.abs(log_rate[free] - log_rate[latent])
            order = np.argsort(distance, kind="stable")
            nearest = free[order[: max(_NUM_CANDIDATES, num_draws)]]
            chosen.append(int(rng.choice(nearest)))
            free = free[free != chosen[-1]]
        return tuple(chosen)

    sets: dict[frozenset[int], tuple[int, ...]] = {}
    for _ in range(_MAX_TRIES * num_draws):
        drawn = draw_set()
        sets.setdefault(frozenset(drawn), drawn)
        if len(sets) == num_draws:
            return list(sets.values())
    raise ConfigError(
        f"{len(sets)} sets of latents match {list(latents)}, not {num_draws}; request "
        "fewer draws"
    )
