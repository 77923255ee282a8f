"""Latents changed in place: what a model does without them, or with more of them.

    x + gain * (f' - f) decoder        f' = scale * f + shift, on the chosen latents

The difference alone is added, so that what the autoencoder fails to reconstruct stays
in x; where f' = f, so does every bit of x. Only the chosen columns are encoded. Modes:

    ablate   f' = (1 - dose) f      the share taken away: 1 is all of it
    clamp    f' = dose * unit       whatever x says
    scale    f' = dose * f          0 ablates, 1 changes nothing
    add      f' = f + dose * unit

where a latent's unit is its mean activation on the tokens on which it fires. Controls
are latents that fire as often and move x as far, and a random direction that moves each
token exactly as far.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Self, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from job_jax.schema import ConfigError
from sae_jax.sae import TSAE

Mode = Literal["ablate", "clamp", "scale", "add"]
MODES: tuple[Mode, ...] = get_args(Mode)

_BLOCK = 1024  # tokens whose latents exist at once
_CANDIDATES = 16  # a control is drawn from as many latents, the nearest in firing rate
_MOST_TRIES = 100  # to draw a set that was not drawn before


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class LatentEdit:
    """An edit of R latents of the stream after `layer`. Made by `latent_edit`.

    `columns` is the dictionary of these latents alone. With `turned`, x moves along
    the unit vector `direction`, as far as it would have moved. Mode, dose, latents and
    control are arrays: edits of one R share a program.
    """

    columns: TSAE
    scale: Float[Array, " R"]
    shift: Float[Array, " R"]
    gain: Float[Array, ""]
    direction: Float[Array, " D"]
    turned: Bool[Array, ""]
    layer: int = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Float[Array, "*B D"], /) -> Float[Array, "*B D"]:
        """Returns the edited stream, in the dtype of x."""
        return x + self.delta(x).astype(x.dtype)

    def delta(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        """Returns by how much x moves, in float32."""
        lead = tuple(range(x.ndim - 1))
        scale, shift, direction = (
            jnp.expand_dims(each, lead)
            for each in (self.scale, self.shift, self.direction)
        )
        f = self.columns.encode(x)
        moved = self.gain * ((scale * f + shift - f) @ self.columns.decoder)
        far = jnp.linalg.norm(moved, axis=-1, keepdims=True)
        return jnp.where(self.turned, far * direction, moved)

    def with_gain(self, gain: float) -> Self:
        """Returns the edit that moves x `gain` times as far; 0 is the sham."""
        return dataclasses.replace(self, gain=jnp.float32(gain))

    def along(self, direction: Float[np.ndarray, " D"]) -> Self:
        """Returns the edit that moves every x as far as this one, in a direction."""
        unit = direction / np.linalg.norm(direction)
        return dataclasses.replace(
            self, direction=jnp.asarray(unit, jnp.float32), turned=jnp.asarray(True)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Firing:
    """How often each latent fires, and its mean where it does (0 where it never does).

    Written by `firing`, on tokens of the unedited model.
    """

    rate: Float[np.ndarray, " Z"]
    unit: Float[np.ndarray, " Z"]

    def dead(self, latents: Sequence[int]) -> tuple[int, ...]:
        """Returns those of the latents that never fire."""
        return tuple(latent for latent in latents if not self.rate[latent])


def check_latents(tsae: TSAE, latents: Sequence[int]) -> None:
    """Raises ConfigError unless the latents are some of the dictionary's, each once."""
    if not latents:
        raise ConfigError(f"no latents; name some of 0..{tsae.latents - 1}")
    beyond = [latent for latent in latents if not 0 <= latent < tsae.latents]
    if beyond:
        raise ConfigError(f"latents {beyond} lie outside 0..{tsae.latents - 1}")
    if len(set(latents)) < len(latents):
        raise ConfigError(f"latents {list(latents)} name one of them twice")
    if tsae.top_k is not None:
        raise ConfigError(
            f"a dictionary that keeps the {tsae.top_k} largest latents must be encoded "
            "whole; give one with a threshold"
        )


def latent_edit(
    tsae: TSAE,
    latents: Sequence[int],
    *,
    layer: int,
    mode: Mode,
    dose: float,
    unit: Float[np.ndarray, " Z"],
) -> LatentEdit:
    """Returns the edit of some latents. `unit` is `Firing.unit`.

    Raises ConfigError where the latents are not the dictionary's, as `check_latents`.
    """
    check_latents(tsae, latents)
    at = np.asarray(latents)
    scale = {"ablate": 1.0 - dose, "clamp": 0.0, "scale": dose, "add": 1.0}[mode]
    shift = dose * unit[at] if mode in ("clamp", "add") else np.zeros(len(at))
    return LatentEdit(
        columns=TSAE(
            encoder=jnp.asarray(tsae.encoder[:, at]),
            encoder_bias=jnp.asarray(tsae.encoder_bias[at]),
            decoder=jnp.asarray(tsae.decoder[at]),
            decoder_bias=jnp.asarray(tsae.decoder_bias),
            threshold=jnp.asarray(tsae.threshold[at]),
            group_sizes=(len(at),),
        ),
        scale=jnp.full(len(at), scale, jnp.float32),
        shift=jnp.asarray(shift, jnp.float32),
        gain=jnp.float32(1.0),
        direction=jnp.zeros(tsae.width, jnp.float32),
        turned=jnp.asarray(False),
        layer=layer,
    )


def firing(tsae: TSAE, x: Float[np.ndarray, "N D"]) -> Firing:
    """Returns how the dictionary's latents fire on tokens."""
    count = total = np.zeros(tsae.latents)
    for start in range(0, len(x), _BLOCK):
        fired, summed = _fired(tsae, x[start : start + _BLOCK])
        count, total = count + np.asarray(fired), total + np.asarray(summed)
    unit = np.divide(total, count, out=np.zeros(tsae.latents), where=count > 0)
    return Firing(rate=count / len(x), unit=unit)


@jax.jit
def _fired(tsae: TSAE, x: Float[Array, "N D"]) -> tuple[Array, Array]:
    f = tsae.encode(x)
    return (f > 0).sum(axis=0), f.sum(axis=0)


def move(edit: LatentEdit, x: Float[np.ndarray, "N D"]) -> float:
    """Returns the mean distance by which an edit moves tokens."""
    return float(_move(edit, x))


@jax.jit
def _move(edit: LatentEdit, x: Float[Array, "N D"]) -> Float[Array, ""]:
    return jnp.linalg.norm(edit.delta(x), axis=-1).mean()


def matched(
    edit: LatentEdit, target: LatentEdit, x: Float[np.ndarray, "N D"]
) -> LatentEdit:
    """Returns the edit with the gain at which it moves tokens as far as the target.

    An edit that moves nothing cannot be matched: its gain becomes 0.
    """
    own = move(edit, x)
    return edit.with_gain(move(target, x) / own if own else 0.0)


def matched_latents(
    rate: Float[np.ndarray, " Z"], latents: Sequence[int], *, draws: int, seed: int
) -> list[tuple[int, ...]]:
    """Returns `draws` random sets, no two alike, each of as many latents as targets.

    One for each target, drawn from the 16 latents nearest to it in log firing rate; no
    target, no latent that never fires, and none twice in a set. Raises ConfigError
    where there are not so many.
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

    def drawn() -> tuple[int, ...]:
        free, found = alive, []
        for latent in latents:
            far = np.abs(log_rate[free] - log_rate[latent])
            nearest = free[np.argsort(far, kind="stable")[:_CANDIDATES]]
            found.append(int(rng.choice(nearest)))
            free = free[free != found[-1]]
        return tuple(found)

    sets: dict[frozenset[int], tuple[int, ...]] = {}
    for _ in range(_MOST_TRIES * draws):
        found = drawn()
        sets.setdefault(frozenset(found), found)
        if len(sets) == draws:
            return list(sets.values())
    raise ConfigError(
        f"{len(sets)} sets of latents match {list(latents)}, not {draws}; ask for "
        "fewer draws"
    )
