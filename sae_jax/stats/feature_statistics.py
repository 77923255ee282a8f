"""Statistics of every latent as sums that can be merged, a row for each token group.

There is one row per (run, step, band, split, prompt), with sums over tokens of every
latent's activation. Means, rates, differences and intervals follow from these. Rows add
up: two bands together have the sum of their rows, and the maximum of their maxima.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from job_jax.files import write_atomically

INCORRECT, CORRECT, UNVERIFIED = 0, 1, 2


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureStatistics:
    """Sums over the tokens of each of G rows. Made by `sequence_statistics`.

    `tokens_correct` and `tokens_incorrect` count the tokens in `sum_correct` and
    `sum_incorrect`. A token of an unverified completion is in neither.
    """

    tokens: Int[Array, " G"]
    tokens_correct: Int[Array, " G"]
    tokens_incorrect: Int[Array, " G"]
    sum: Float[Array, "G Z"]
    sum_squares: Float[Array, "G Z"]
    nonzero: Int[Array, "G Z"]
    max: Float[Array, "G Z"]
    sum_correct: Float[Array, "G Z"]
    sum_incorrect: Float[Array, "G Z"]

    def __add__(self, other: Self) -> Self:
        """Returns the rows for the tokens of both."""
        total = jax.tree.map(lambda a, b: a + b, self, other)
        larger = jnp.maximum if isinstance(self.max, jax.Array) else np.maximum
        return dataclasses.replace(total, max=larger(self.max, other.max))

    def segment_sum(self, row: Int[Array, " S"], rows: int) -> Self:
        """Adds up rows: row s is added to row `row[s]`. It can be jitted.

        A row with an index of -1, or not below `rows`, is left out.
        """

        def added(values: Array) -> Array:
            return jax.ops.segment_sum(values, row, rows)

        largest = jax.ops.segment_max(self.max, row, rows)
        # Without rows, our maximum is 0, but JAX's is -inf.
        return dataclasses.replace(
            jax.tree.map(added, self), max=jnp.maximum(largest, 0.0)
        )

    def mean(self) -> Float[np.ndarray, "G Z"]:
        """Returns mean activations, 0 in a row without tokens."""
        return _per_token(self.sum, self.tokens)

    def rate(self) -> Float[np.ndarray, "G Z"]:
        """Returns the share of tokens on which each latent fires."""
        return _per_token(self.nonzero, self.tokens)

    def variance(self) -> Float[np.ndarray, "G Z"]:
        """Returns the variance of activations over tokens."""
        mean_square = _per_token(self.sum_squares, self.tokens)
        return np.maximum(mean_square - self.mean() ** 2, 0.0)

    def correct_minus_incorrect(self) -> Float[np.ndarray, "G Z"]:
        """Returns the mean over correct completions' tokens minus incorrect ones'."""
        return _per_token(self.sum_correct, self.tokens_correct) - _per_token(
            self.sum_incorrect, self.tokens_incorrect
        )


def sequence_statistics(
    f: Float[Array, "S T Z"],
    *,
    mask: Bool[Array, "S T"],
    outcome: Int[Array, " S"],
) -> FeatureStatistics:
    """Returns one row of statistics per sequence; call it inside a jitted step.

    `outcome` is CORRECT, INCORRECT or UNVERIFIED for each sequence. Each sum is one
    reduction over T, and the compiler fuses all of them into one pass over f. Latents
    are never negative. `segment_sum` adds the rows up to prompts or bands.

    >>> f = jnp.array([[[1.0], [3.0]], [[0.0], [5.0]]])
    >>> found = sequence_statistics(
    ...     f, mask=jnp.ones((2, 2), bool), outcome=jnp.array([CORRECT, UNVERIFIED])
    ... )
    >>> found.sum.tolist(), found.sum_correct.tolist(), found.rate().tolist()
    ([[4.0], [5.0]], [[4.0], [0.0]], [[1.0], [0.5]])
    """
    f = jnp.where(mask[:, :, None], f.astype(jnp.float32), 0.0)
    tokens = mask.sum(axis=1, dtype=jnp.int32)
    total = f.sum(axis=1)

    def if_outcome(value: int, sums: Array) -> Array:
        is_value = jnp.expand_dims(outcome == value, tuple(range(1, sums.ndim)))
        return jnp.where(is_value, sums, 0)

    return FeatureStatistics(
        tokens=tokens,
        tokens_correct=if_outcome(CORRECT, tokens),
        tokens_incorrect=if_outcome(INCORRECT, tokens),
        sum=total,
        sum_squares=(f**2).sum(axis=1),
        # XLA on CPU materializes a comparison but fuses sign, which is twice as fast.
        nonzero=jnp.sign(f).sum(axis=1).astype(jnp.int32),
        max=f.max(axis=1, initial=0.0),
        sum_correct=if_outcome(CORRECT, total),
        sum_incorrect=if_outcome(INCORRECT, total),
    )


class RowKey(NamedTuple):
    """The key of a row of statistics; `prompt` is "" if several are added up."""

    run: str
    step: int
    band: str
    split: str
    prompt: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTable:
    """Rows and their statistics in float64; row g of each array is rows[g]."""

    rows: tuple[RowKey, ...]
    statistics: FeatureStatistics

    @classmethod
    def from_device(cls, rows: Sequence[RowKey], statistics: FeatureStatistics) -> Self:
        """Returns the table of statistics, copied from a device."""
        host = jax.tree.map(
            lambda a: np.asarray(a, np.float64), jax.device_get(statistics)
        )
        if len(rows) != len(host.tokens):
            raise ValueError(f"{len(rows)} rows for statistics of {len(host.tokens)}")
        return cls(rows=tuple(rows), statistics=host)

    @classmethod
    def concatenate(cls, tables: Iterable[Self]) -> Self:
        """Returns the rows of all tables, one after another."""
        parts = list(tables)
        return cls(
            rows=tuple(row for table in parts for row in table.rows),
            statistics=jax.tree.map(
                lambda *arrays: np.concatenate(arrays), *(t.statistics for t in parts)
            ),
        )

    def select(self, **fields: object) -> Self:
        """Returns the rows with these values: `select(split="reference", band="")`."""
        indices = [
            i
            for i, row in enumerate(self.rows)
            if all(value == row._asdict()[name] for name, value in fields.items())
        ]
        return type(self)(
            rows=tuple(self.rows[i] for i in indices),
            statistics=jax.tree.map(lambda a: a[indices], self.statistics),
        )

    def sum_by(self, *fields: str) -> Self:
        """Returns one row for each combination of fields; the others become "" or -1.

        `sum_by("run", "step")` adds up bands, splits and prompts.
        """
        keys = [
            row._replace(**{n: v for n, v in _MERGED_FIELDS.items() if n not in fields})
            for row in self.rows
        ]
        order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        index = np.array([order[key] for key in keys])

        def added(array: np.ndarray) -> np.ndarray:
            out = np.zeros((len(order), *array.shape[1:]))
            np.add.at(out, index, array)
            return out

        total = jax.tree.map(added, self.statistics)
        largest = np.zeros_like(total.max)
        np.maximum.at(largest, index, self.statistics.max)
        statistics = dataclasses.replace(total, max=largest)
        return type(self)(rows=tuple(order), statistics=statistics)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table as a compressed .npz: the keys by column, and the arrays."""
        arrays: dict[str, Any] = dict(vars(self.statistics))
        for i, name in enumerate(RowKey._fields):
            arrays[f"row_{name}"] = np.array([row[i] for row in self.rows])
        with write_atomically(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Returns the table that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            columns = [file[f"row_{name}"].tolist() for name in RowKey._fields]
            fields = [f.name for f in dataclasses.fields(FeatureStatistics)]
            statistics = FeatureStatistics(**{name: file[name] for name in fields})
        return cls(
            rows=tuple(RowKey(*entry) for entry in zip(*columns, strict=True)),
            statistics=statistics,
        )


_MERGED_FIELDS: dict[str, Any] = {
    "run": "",
    "step": -1,
    "band": "",
    "split": "",
    "prompt": "",
}


def _per_token(sums: Array, tokens: Array) -> np.ndarray:
    counts = np.maximum(np.asarray(tokens, np.float64), 1.0)
    return np.asarray(sums, np.float64) / counts[..., None]
