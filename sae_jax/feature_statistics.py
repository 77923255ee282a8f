"""Feature dynamics as sufficient statistics that merge.

One row per (run, step, band, split, prompt): sums over tokens of every latent's
activation. Any mean, rate, difference or interval follows, and rows add up: the row of
two bands together is the sum of their rows, the largest activation their maximum.
"""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

WRONG, RIGHT, UNJUDGED = 0, 1, 2


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureStatistics:
    """Sums over the tokens of each of G rows. Written by `collect`, read by analysis.

    `tokens_right` and `tokens_wrong` are what `sum_right` and `sum_wrong` are means of;
    a token that could not be judged is in neither.
    """

    tokens: Int[Array, " G"]
    tokens_right: Int[Array, " G"]
    tokens_wrong: Int[Array, " G"]
    sum: Float[Array, "G Z"]
    sum_squares: Float[Array, "G Z"]
    nonzero: Int[Array, "G Z"]
    max: Float[Array, "G Z"]
    sum_right: Float[Array, "G Z"]
    sum_wrong: Float[Array, "G Z"]

    def __add__(self, other: Self) -> Self:
        """Returns the rows over the tokens of both."""
        total = jax.tree.map(lambda a, b: a + b, self, other)
        larger = jnp.maximum if isinstance(self.max, jax.Array) else np.maximum
        return dataclasses.replace(total, max=larger(self.max, other.max))

    def grouped(self, row: Int[Array, " S"], rows: int) -> Self:
        """Returns these rows added up, row s into row `row[s]`; jit-able.

        A row that belongs to none of `rows` (-1, say) is left out.
        """

        def added(values: Array) -> Array:
            return jax.ops.segment_sum(values, row, rows)

        largest = jax.ops.segment_max(self.max, row, rows)
        # Of no row at all the largest activation is 0 here, and -inf to JAX.
        return dataclasses.replace(
            jax.tree.map(added, self), max=jnp.maximum(largest, 0.0)
        )

    def mean(self) -> Float[np.ndarray, "G Z"]:
        """Returns mean activations, 0 in a row without tokens."""
        return _per_token(self.sum, self.tokens)

    def rate(self) -> Float[np.ndarray, "G Z"]:
        """Returns the shares of tokens on which each latent fires."""
        return _per_token(self.nonzero, self.tokens)

    def variance(self) -> Float[np.ndarray, "G Z"]:
        """Returns the variance of activations over tokens."""
        mean_square = _per_token(self.sum_squares, self.tokens)
        return np.maximum(mean_square - self.mean() ** 2, 0.0)

    def right_minus_wrong(self) -> Float[np.ndarray, "G Z"]:
        """Returns the mean on right tokens less the mean on wrong ones."""
        return _per_token(self.sum_right, self.tokens_right) - _per_token(
            self.sum_wrong, self.tokens_wrong
        )


def collect(
    f: Float[Array, "N Z"],
    *,
    row: Int[Array, " N"],
    rows: int,
    outcome: Int[Array, " N"],
    counted: Bool[Array, " N"],
) -> FeatureStatistics:
    """Returns the statistics of tokens, by row; to be called inside a jitted step.

    `row` is the token's band (or prompt, where intervals are wanted), below `rows`;
    `outcome` is RIGHT, WRONG or UNJUDGED. Tokens not `counted` are not read.
    The sums are matrix products with the rows' indicators: a scatter would be slower by
    far for the few bands of a run.
    """
    f = jnp.where(counted[:, None], f.astype(jnp.float32), 0.0)
    of_row = row[:, None].astype(jnp.int32) == jnp.arange(rows)[None]
    member = counted[:, None] & of_row
    right = member & (outcome == RIGHT)[:, None]
    wrong = member & (outcome == WRONG)[:, None]

    def summed(mask: Bool[Array, "N G"], values: Float[Array, "N Z"]) -> Array:
        return jnp.einsum(
            "ng,nz->gz",
            mask.astype(jnp.float32),
            values,
            precision=jax.lax.Precision.HIGHEST,
        )

    def largest(members: Bool[Array, " N"]) -> Float[Array, " Z"]:
        return jnp.where(members[:, None], f, 0.0).max(axis=0)

    return FeatureStatistics(
        tokens=member.sum(axis=0),
        tokens_right=right.sum(axis=0),
        tokens_wrong=wrong.sum(axis=0),
        sum=summed(member, f),
        sum_squares=summed(member, f**2),
        nonzero=summed(member, (f > 0).astype(jnp.float32)).astype(jnp.int32),
        max=jax.lax.map(largest, member.T),
        sum_right=summed(right, f),
        sum_wrong=summed(wrong, f),
    )


def collect_sequences(
    f: Float[Array, "S T Z"],
    *,
    counted: Bool[Array, "S T"],
    outcome: Int[Array, " S"],
) -> FeatureStatistics:
    """Returns one row of statistics per sequence; to be called inside a jitted step.

    What `collect` finds where a token's row is its sequence, without products: each sum
    is one reduction over T, which a compiler fuses with its siblings into one reading
    of f. A sequence has one outcome, so its right and wrong sums cost nothing more.
    Latents are never negative. `grouped` makes rows of prompts or bands of these.
    """
    f = jnp.where(counted[:, :, None], f.astype(jnp.float32), 0.0)
    tokens = counted.sum(axis=1, dtype=jnp.int32)
    total = f.sum(axis=1)

    def if_outcome(value: int, sums: Array) -> Array:
        is_value = jnp.expand_dims(outcome == value, tuple(range(1, sums.ndim)))
        return jnp.where(is_value, sums, 0)

    return FeatureStatistics(
        tokens=tokens,
        tokens_right=if_outcome(RIGHT, tokens),
        tokens_wrong=if_outcome(WRONG, tokens),
        sum=total,
        sum_squares=(f**2).sum(axis=1),
        # XLA on CPU writes out what a comparison gives, and fuses what sign does: 2x.
        nonzero=jnp.sign(f).sum(axis=1).astype(jnp.int32),
        max=f.max(axis=1, initial=0.0),
        sum_right=if_outcome(RIGHT, total),
        sum_wrong=if_outcome(WRONG, total),
    )


class Row(NamedTuple):
    """What a row of statistics is about; no prompt where several are added up."""

    run: str
    step: int
    band: str
    split: str
    prompt: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTable:
    """Rows and their statistics in float64; row g of each array is rows[g]."""

    rows: tuple[Row, ...]
    statistics: FeatureStatistics

    @classmethod
    def of(cls, rows: Sequence[Row], statistics: FeatureStatistics) -> Self:
        """Returns the table of statistics still on a device."""
        host = jax.tree.map(
            lambda a: np.asarray(a, np.float64), jax.device_get(statistics)
        )
        if len(rows) != len(host.tokens):
            raise ValueError(f"{len(rows)} rows for statistics of {len(host.tokens)}")
        return cls(rows=tuple(rows), statistics=host)

    @classmethod
    def joined(cls, tables: Iterable[Self]) -> Self:
        """Returns the rows of all tables, one after another."""
        parts = list(tables)
        return cls(
            rows=tuple(row for table in parts for row in table.rows),
            statistics=jax.tree.map(
                lambda *arrays: np.concatenate(arrays), *(t.statistics for t in parts)
            ),
        )

    def where(self, **fields: Any) -> Self:
        """Returns the rows that have these values: `where(split="probe", band="")`."""
        kept = [
            i
            for i, row in enumerate(self.rows)
            if all(value == row._asdict()[name] for name, value in fields.items())
        ]
        return type(self)(
            rows=tuple(self.rows[i] for i in kept),
            statistics=jax.tree.map(lambda a: a[kept], self.statistics),
        )

    def merged(self, *fields: str) -> Self:
        """Returns one row for each combination of these fields; "" and -1 elsewhere.

        `merged("run", "step")` adds up bands, splits and prompts.
        """
        keys = [
            row._replace(**{n: v for n, v in _MERGED.items() if n not in fields})
            for row in self.rows
        ]
        order = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        place = np.array([order[key] for key in keys])

        def added(array: np.ndarray) -> np.ndarray:
            out = np.zeros((len(order), *array.shape[1:]))
            np.add.at(out, place, array)
            return out

        total = jax.tree.map(added, self.statistics)
        largest = np.zeros_like(total.max)
        np.maximum.at(largest, place, self.statistics.max)
        statistics = dataclasses.replace(total, max=largest)
        return type(self)(rows=tuple(order), statistics=statistics)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the table as a compressed .npz: a column of the rows, then arrays."""
        arrays: dict[str, Any] = dict(vars(self.statistics))
        for i, name in enumerate(Row._fields):
            arrays[f"row_{name}"] = np.array([row[i] for row in self.rows])
        partial = Path(path).with_suffix(".partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, **arrays)
        partial.rename(path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Returns the table that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            columns = [file[f"row_{name}"].tolist() for name in Row._fields]
            fields = [f.name for f in dataclasses.fields(FeatureStatistics)]
            statistics = FeatureStatistics(**{name: file[name] for name in fields})
        return cls(
            rows=tuple(Row(*entry) for entry in zip(*columns, strict=True)),
            statistics=statistics,
        )


_MERGED: dict[str, Any] = {"run": "", "step": -1, "band": "", "split": "", "prompt": ""}


def _per_token(sums: Array, tokens: Array) -> np.ndarray:
    counts = np.maximum(np.asarray(tokens, np.float64), 1.0)
    return np.asarray(sums, np.float64) / counts[..., None]
