"""Synthetic activations with known factors: some persist over tokens, some do not.

    x_t = offset + sum_i on_ti size_ti direction_i + noise

A persistent factor turns on and off as a Markov chain and keeps its size while it is
on, like a topic or a running value. A momentary factor is drawn again at every token,
like a word. Momentary factors are stronger. So if an autoencoder is too small for all
factors and minimizes only the squared error, it prefers momentary ones; the contrast
prefers factors that positives share.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from sae_jax.data.tokens import TokenArrays

PERSISTENT, MOMENTARY = "persistent", "momentary"
_ON_PROBABILITY = 0.1  # share of tokens on which a factor is on
_NOISE_STD = 0.05  # of each coordinate
_OFFSET_STD = 1.0  # of each coordinate: activations have a mean


class SyntheticWorld(NamedTuple):
    """Documents of activations, and the direction that each factor adds: [F, D].

    Persistent factors come first, in the order of their columns.
    """

    data: TokenArrays
    directions: Float[np.ndarray, "F D"]


def make_synthetic_data(**settings: Any) -> TokenArrays:
    """Returns the documents of `make_synthetic_world`.

    >>> data = make_synthetic_data(seed=0, width=8, num_sequences=3, length=6)
    >>> data.activations.shape, ground_truth_labels(data, PERSISTENT).shape
    ((18, 8), (18, 24))
    """
    return make_synthetic_world(**settings).data


def make_synthetic_world(
    *,
    seed: int,
    width: int = 64,
    num_sequences: int = 800,
    length: int = 128,
    num_persistent: int = 24,
    num_momentary: int = 72,
    mean_duration: float = 20.0,
    momentary_scale: float = 2.0,
) -> SyntheticWorld:
    """Returns documents and their factors, determined by the arguments alone.

    `mean_duration` is the mean number of tokens for which a persistent factor stays on,
    and `momentary_scale` the size of momentary factors relative to persistent ones. The
    columns persistent_00, momentary_00, ... say where each factor is on.

    >>> world = make_synthetic_world(seed=0, width=8, num_sequences=3, length=6)
    >>> world.data.activations.shape, world.directions.shape
    ((18, 8), (96, 8))
    """
    rng = np.random.default_rng(seed)
    shape = (num_sequences, length)
    on = {
        PERSISTENT: _sample_markov_chains(
            rng, (*shape, num_persistent), mean_duration=mean_duration
        ),
        MOMENTARY: rng.random((*shape, num_momentary), np.float32) < _ON_PROBABILITY,
    }
    size = {
        PERSISTENT: _hold_sizes(rng, on[PERSISTENT]),
        MOMENTARY: momentary_scale * _sample_sizes(rng, on[MOMENTARY].shape),
    }
    x = _sample_background(rng, (*shape, width))
    columns: dict[str, np.ndarray] = {
        "sequence": np.repeat(np.arange(num_sequences, dtype=np.int32), length),
        "role": np.zeros(num_sequences * length, np.uint8),
        "special": np.zeros(num_sequences * length, np.uint8),
    }
    directions = []
    for kind, on_STF in on.items():
        factors = on_STF.shape[-1]
        directions.append(_sample_directions(rng, (factors, width)))
        x += np.where(on_STF, size[kind], np.float32(0)) @ directions[-1]
        flat = on_STF.reshape(-1, factors).astype(np.int32)
        columns |= {f"{kind}_{i:02d}": flat[:, i] for i in range(factors)}
    sizes = (num_persistent, num_momentary, mean_duration, momentary_scale)
    data = TokenArrays(
        activations=x.reshape(-1, width),
        columns=columns,
        role_names=("response",),
        data_hash=f"synthetic{(seed, width, shape, *sizes)}",
    )
    return SyntheticWorld(data, np.concatenate(directions))


def ground_truth_labels(data: TokenArrays, kind: str) -> Bool[np.ndarray, "N Y"]:
    """Returns where each factor of a kind (PERSISTENT or MOMENTARY) is on."""
    names = sorted(name for name in data.columns if name.startswith(f"{kind}_"))
    return np.stack([data.columns[name] > 0 for name in names], axis=1)


def _sample_background(
    rng: np.random.Generator, shape: tuple[int, int, int]
) -> Float[np.ndarray, "S T D"]:
    """Returns activations without factors: the offset plus noise."""
    offset = _OFFSET_STD * rng.standard_normal(shape[-1], np.float32)
    return offset + _NOISE_STD * rng.standard_normal(shape, np.float32)


def _sample_directions(
    rng: np.random.Generator, shape: tuple[int, int]
) -> Float[np.ndarray, "F D"]:
    """Returns random rows of length 1."""
    direction = rng.standard_normal(shape, np.float32)
    return direction / np.linalg.norm(direction, axis=1, keepdims=True)


def _sample_markov_chains(
    rng: np.random.Generator, shape: tuple[int, int, int], *, mean_duration: float
) -> Bool[np.ndarray, "S T F"]:
    """Returns chains that are on for a share _ON_PROBABILITY of tokens."""
    end = 1.0 / mean_duration
    begin = end * _ON_PROBABILITY / (1.0 - _ON_PROBABILITY)
    draws = rng.random(shape, np.float32)
    on = np.empty(shape, bool)
    on[:, 0] = draws[:, 0] < _ON_PROBABILITY
    for t in range(1, shape[1]):
        on[:, t] = np.where(on[:, t - 1], draws[:, t] >= end, draws[:, t] < begin)
    return on


def _hold_sizes(
    rng: np.random.Generator, on: Bool[np.ndarray, "S T F"]
) -> Float[np.ndarray, "S T F"]:
    """Returns sizes that are drawn when a factor turns on and kept while it is on."""
    size = _sample_sizes(rng, on.shape)
    for t in range(1, on.shape[1]):
        stays = on[:, t] & on[:, t - 1]
        size[:, t] = np.where(stays, size[:, t - 1], size[:, t])
    return size


def _sample_sizes(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> Float[np.ndarray, "S T F"]:
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)
