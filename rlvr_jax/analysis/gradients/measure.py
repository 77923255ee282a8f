"""How well a batch's gradient aligns with many batches, depending on token weights.

    cosine = <g, G> / (|g| |G|)

g is the policy gradient of one batch with token weights. G is the total gradient of
many other batches with all weights 1. Weights that give credit to the right tokens
remove noise, so the cosine is larger. Controls are weights of 1, weights from random
latents, and the same weights in a random order. The measure is ours.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jaxtyping import Float

from job_jax.resampling import Interval
from rlvr_jax.metrics.bootstrap import t_interval

EVEN = "none: weights of 1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Direction:
    """The effect of one kind of token weights on the gradients of N batches.

    Intervals are Student's t over batches. `less_even` is the cosine minus the cosine
    with weights of 1. `less_draws` is the cosine minus the average over the controls'
    draws. `num_as_high` counts the draws with a mean at least as high.
    """

    cosine: Interval
    less_even: Interval
    less_draws: Interval
    num_as_high: int

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {
            **{
                name: interval.to_json()
                for name, interval in vars(self).items()
                if isinstance(interval, Interval)
            },
            "num_as_high": self.num_as_high,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the direction that `to_json` wrote."""
        given = {**fields}
        num_as_high = given.pop("num_as_high")
        intervals = {name: Interval.from_json(each) for name, each in given.items()}
        return cls(num_as_high=num_as_high, **intervals)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DirectionComparison:
    """Kinds of token weights by label (with EVEN), and each draw's mean cosine."""

    kinds: dict[str, Direction]
    draws: Interval
    of_draws: list[float]
    num_batches: int

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON."""
        return {
            "kinds": {name: kind.to_json() for name, kind in self.kinds.items()},
            "draws": self.draws.to_json(),
            "of_draws": self.of_draws,
            "num_batches": self.num_batches,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Returns the comparison that `to_json` wrote."""
        kinds = fields["kinds"].items()
        return cls(
            kinds={name: Direction.from_json(kind) for name, kind in kinds},
            draws=Interval.from_json(fields["draws"]),
            of_draws=fields["of_draws"],
            num_batches=fields["num_batches"],
        )


def compare_directions(
    cosines: Mapping[str, Sequence[float]], draws: Float[np.ndarray, "K N"]
) -> DirectionComparison:
    """Compares each kind with weights of 1 and with the draws, paired by batch.

    `cosines` has the cosines of N batches by kind, including EVEN. Raises ValueError if
    there are fewer than two batches.
    """
    even_N, average_N = np.array(cosines[EVEN]), np.mean(draws, axis=0)
    if len(even_N) < 2:
        raise ValueError(
            f"{len(even_N)} of the batches have a gradient, but two are needed; raise "
            "--num_batches, or use problems that are sometimes answered right"
        )
    of_draws = np.mean(draws, axis=1)
    kinds = {name: np.array(each) for name, each in cosines.items()}
    return DirectionComparison(
        kinds={
            name: Direction(
                cosine=t_interval(cosine_N),
                less_even=t_interval(cosine_N - even_N),
                less_draws=t_interval(cosine_N - average_N),
                num_as_high=int((of_draws >= cosine_N.mean()).sum()),
            )
            for name, cosine_N in kinds.items()
        },
        draws=t_interval(average_N),
        of_draws=of_draws.tolist(),
        num_batches=len(even_N),
    )


def measure_cosines(
    gradient: Callable[[Float[np.ndarray, "B T"]], Any],
    reference: nnx.State,
    weights: Sequence[Float[np.ndarray, "B T"]],
) -> list[float]:
    """Returns the cosine of a batch's gradient with `reference`, for each weighting."""
    return [float(_cosine(gradient(weight_BT), reference)) for weight_BT in weights]


@jax.jit
def _cosine(gradient: nnx.State, reference: nnx.State) -> jax.Array:
    norms = optax.tree.norm(gradient) * optax.tree.norm(reference)
    return optax.tree.vdot(gradient, reference) / jnp.maximum(norms, 1e-30)


def shuffle_weights(
    weights: Float[np.ndarray, "B T"], lengths: np.ndarray, *, seed: int
) -> Float[np.ndarray, "B T"]:
    """Returns each row's weights, shuffled among its tokens."""
    rng, shuffled = np.random.default_rng(seed), weights.copy()
    for row, length in zip(shuffled, lengths, strict=True):
        row[:length] = rng.permutation(row[:length])
    return shuffled
