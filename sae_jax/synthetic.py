"""Activations whose factors are known: some persist over many tokens, some do not.

    x_t = offset + sum_i on_ti size_ti direction_i + noise

A persistent factor goes on and off as a Markov chain and keeps its size while it is
on: a topic, a running value. A momentary one is drawn anew at every token: a word.
Momentary factors are the stronger ones, so a dictionary too small for all of them that
minimises squared error alone prefers those; the contrast asks for what the partner
repeats.
"""

import numpy as np
from jaxtyping import Bool, Float

from sae_jax.tokens import TokenArrays

PERSISTENT, MOMENTARY = "persistent", "momentary"
_ON = 0.1  # share of tokens at which a factor is on
_NOISE = 0.05  # of each coordinate
_OFFSET = 1.0  # of each coordinate: activations have a mean


def world(
    *,
    seed: int,
    width: int = 64,
    sequences: int = 800,
    length: int = 128,
    persistent: int = 24,
    momentary: int = 72,
    dwell: float = 20.0,
    strength: float = 2.0,
) -> TokenArrays:
    """Returns documents of activations, a function of the arguments alone.

    `dwell` is the mean number of tokens that a persistent factor stays on, `strength`
    the size of momentary factors relative to persistent ones. Columns persistent_00,
    momentary_00, ... say where each factor is on.
    """
    rng = np.random.default_rng(seed)
    shape = (sequences, length)
    on = {
        PERSISTENT: _chains(rng, (*shape, persistent), dwell=dwell),
        MOMENTARY: rng.random((*shape, momentary), np.float32) < _ON,
    }
    size = {
        PERSISTENT: _held(rng, on[PERSISTENT]),
        MOMENTARY: strength * _sizes(rng, on[MOMENTARY].shape),
    }
    x = _OFFSET * rng.standard_normal(width, np.float32)
    x = x + _NOISE * rng.standard_normal((*shape, width), np.float32)
    columns: dict[str, np.ndarray] = {
        "sequence": np.repeat(np.arange(sequences, dtype=np.int32), length),
        "role": np.zeros(sequences * length, np.uint8),
        "special": np.zeros(sequences * length, np.uint8),
    }
    for kind, on_STF in on.items():
        factors = on_STF.shape[-1]
        direction = rng.standard_normal((factors, width), np.float32)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        x += np.where(on_STF, size[kind], np.float32(0)) @ direction
        flat = on_STF.reshape(-1, factors).astype(np.int32)
        columns |= {f"{kind}_{i:02d}": flat[:, i] for i in range(factors)}
    settings = (seed, width, shape, persistent, momentary, dwell, strength)
    return TokenArrays(
        activations=x.reshape(-1, width),
        columns=columns,
        role_names=("response",),
        data_hash=f"synthetic{settings}",
    )


def truths(data: TokenArrays, kind: str) -> Bool[np.ndarray, "N Y"]:
    """Returns where each persistent, or momentary, factor is on."""
    names = sorted(name for name in data.columns if name.startswith(f"{kind}_"))
    return np.stack([data.columns[name] > 0 for name in names], axis=1)


def _chains(
    rng: np.random.Generator, shape: tuple[int, int, int], *, dwell: float
) -> Bool[np.ndarray, "S T F"]:
    """Returns chains that start, and stay, with a share _ON of tokens on."""
    end = 1.0 / dwell
    begin = end * _ON / (1.0 - _ON)
    draws = rng.random(shape, np.float32)
    on = np.empty(shape, bool)
    on[:, 0] = draws[:, 0] < _ON
    for t in range(1, shape[1]):
        on[:, t] = np.where(on[:, t - 1], draws[:, t] >= end, draws[:, t] < begin)
    return on


def _held(
    rng: np.random.Generator, on: Bool[np.ndarray, "S T F"]
) -> Float[np.ndarray, "S T F"]:
    """Returns sizes that are drawn where a factor goes on and kept while it is."""
    size = _sizes(rng, on.shape)
    for t in range(1, on.shape[1]):
        stays = on[:, t] & on[:, t - 1]
        size[:, t] = np.where(stays, size[:, t - 1], size[:, t])
    return size


def _sizes(
    rng: np.random.Generator, shape: tuple[int, ...]
) -> Float[np.ndarray, "S T F"]:
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)
