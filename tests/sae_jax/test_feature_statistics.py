"""Rows of statistics: right by hand, and equal however the tokens are cut up."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.feature_statistics import (
    RIGHT,
    UNJUDGED,
    WRONG,
    FeatureStatistics,
    FeatureTable,
    Row,
    collect,
    collect_sequences,
)
from sae_jax.resample import interval

F = np.array([[1, 0], [3, 2], [0, 5], [7, 7]], np.float32)
BAND = np.array([0, 0, 1, 0])
OUTCOME = np.array([RIGHT, WRONG, UNJUDGED, RIGHT])
COUNTED = np.array([True, True, True, False])


def collected(**changes) -> FeatureStatistics:
    options = {"row": BAND, "rows": 2, "outcome": OUTCOME, "counted": COUNTED}
    return collect(jnp.asarray(F), **options | changes)


def test_rows_by_hand():
    found = collected()
    np.testing.assert_array_equal(found.tokens, [2, 1])
    np.testing.assert_array_equal(found.tokens_right, [1, 0])
    np.testing.assert_array_equal(found.tokens_wrong, [1, 0])
    np.testing.assert_array_equal(found.sum, [[4, 2], [0, 5]])
    np.testing.assert_array_equal(found.sum_squares, [[10, 4], [0, 25]])
    np.testing.assert_array_equal(found.nonzero, [[2, 1], [0, 1]])
    np.testing.assert_array_equal(found.max, [[3, 2], [0, 5]])
    np.testing.assert_array_equal(found.sum_right, [[1, 0], [0, 0]])
    np.testing.assert_array_equal(found.sum_wrong, [[3, 2], [0, 0]])
    np.testing.assert_array_equal(found.mean(), [[2, 1], [0, 5]])
    np.testing.assert_array_equal(found.rate(), [[1, 0.5], [0, 1]])
    np.testing.assert_array_equal(found.variance(), [[1, 1], [0, 0]])
    np.testing.assert_array_equal(found.right_minus_wrong(), [[-2, -2], [0, 0]])


def test_what_is_not_counted_is_not_read():
    f = F.copy()
    f[3] = np.nan
    with_nan = collect(f, row=BAND, rows=2, outcome=OUTCOME, counted=COUNTED)
    jax.tree.map(np.testing.assert_array_equal, with_nan, collected())


def test_batches_merge_exactly():
    """Small whole numbers: no sum is rounded, so the parts must equal the whole."""
    f = np.random.default_rng(0).integers(0, 9, (64, 6)).astype(np.float32)
    row, outcome = np.arange(64) % 3, np.arange(64) % 3
    counted = np.arange(64) % 5 > 0

    def part(s: slice) -> FeatureStatistics:
        return jax.jit(collect, static_argnames="rows")(
            f[s], row=row[s], rows=3, outcome=outcome[s], counted=counted[s]
        )

    together = part(slice(0, 17)) + part(slice(17, 64))
    jax.tree.map(np.testing.assert_array_equal, together, part(slice(0, 64)))


def sequences() -> tuple[jax.Array, dict[str, jax.Array]]:
    """Six sequences of whole activations, ragged, one of them without a token."""
    rng = np.random.default_rng(1)
    f_STZ = rng.integers(-4, 9, (6, 5, 7)).clip(0).astype(np.float32)
    lengths_S = np.array([5, 3, 0, 4, 1, 5])
    counted_ST = np.arange(5)[None] < lengths_S[:, None]
    f_STZ[~counted_ST] = np.nan
    outcome_S = np.array([RIGHT, WRONG, RIGHT, UNJUDGED, WRONG, RIGHT])
    masks = {"counted": jnp.asarray(counted_ST), "outcome": jnp.asarray(outcome_S)}
    return jnp.asarray(f_STZ), masks


def test_sequences_are_collected_as_their_tokens_are():
    f_STZ, masks = sequences()
    by_token = collect(
        f_STZ.reshape(30, 7),
        row=jnp.arange(6).repeat(5),
        rows=6,
        outcome=masks["outcome"].repeat(5),
        counted=masks["counted"].reshape(30),
    )
    by_sequence = jax.jit(collect_sequences)(f_STZ, **masks)
    jax.tree.map(np.testing.assert_array_equal, by_sequence, by_token)
    assert jax.tree.map(lambda a: a.dtype, by_sequence) == jax.tree.map(
        lambda a: a.dtype, by_token
    )


def test_sequences_add_up_to_prompts():
    """Sequence 4 belongs to no row, row 1 has a sequence without tokens, row 3 none."""
    f_STZ, masks = sequences()
    row = jnp.array([0, 2, 1, 0, -1, 2])
    grouped = jax.jit(
        lambda f: collect_sequences(f, **masks).grouped(row, 4),
    )(f_STZ)
    by_token = collect(
        f_STZ.reshape(30, 7),
        row=row.repeat(5),
        rows=4,
        outcome=masks["outcome"].repeat(5),
        counted=masks["counted"].reshape(30),
    )
    jax.tree.map(np.testing.assert_array_equal, grouped, by_token)
    np.testing.assert_array_equal(grouped.tokens, [9, 0, 8, 0])


def table(step: int, scale: float = 1.0) -> FeatureTable:
    rows = [Row("run", step, band, "probe") for band in ("easy", "hard")]
    statistics = collected()
    return FeatureTable.of(
        rows, jax.tree.map(lambda a: a * jnp.asarray(scale, a.dtype), statistics)
    )


def test_bands_merge_into_the_row_of_all_their_tokens():
    merged = table(1).merged("run", "step")
    assert merged.rows == (Row("run", 1, "", ""),)
    alone = collected(row=np.zeros(4, np.int32), rows=1)
    jax.tree.map(np.testing.assert_array_equal, merged.statistics, alone)


def test_steps_merge_and_bands_stay():
    joined = FeatureTable.joined([table(1), table(2, 3.0)])
    by_band = joined.merged("band")
    assert [row.band for row in by_band.rows] == ["easy", "hard"]
    np.testing.assert_array_equal(by_band.statistics.tokens, [8, 4])
    np.testing.assert_array_equal(by_band.statistics.max, [[9, 6], [0, 15]])


def test_prompts_merge_into_their_band():
    rows = [Row("run", 0, "hard", "probe", prompt) for prompt in ("p1", "p2")]
    merged = FeatureTable.of(rows, collected()).merged("run", "step", "band", "split")
    assert merged.rows == (Row("run", 0, "hard", "probe"),)
    np.testing.assert_array_equal(merged.statistics.sum, [[4, 7]])


def test_a_table_comes_back_from_disk(tmp_path):
    of_prompts = FeatureTable(
        rows=tuple(Row("run", 0, "hard", "probe", p) for p in ("a", "b")),
        statistics=table(1).statistics,
    )
    saved = FeatureTable.joined([table(1), of_prompts])
    saved.save(tmp_path / "features.npz")
    loaded = FeatureTable.load(tmp_path / "features.npz")
    assert loaded.rows == saved.rows
    jax.tree.map(np.testing.assert_array_equal, loaded.statistics, saved.statistics)
    assert [path.name for path in tmp_path.iterdir()] == ["features.npz"]


def test_rows_must_fit_their_statistics():
    with pytest.raises(ValueError, match="1 rows for statistics of 2"):
        FeatureTable.of([Row("run", 1, "easy", "probe")], collected())


def test_rows_of_prompts_give_an_interval_that_covers_the_truth():
    """40 prompts of 25 tokens; a prompt's mean is 1 +- 0.5: the error is 0.08."""
    rng = np.random.default_rng(3)
    prompt_mean = 1 + 0.5 * rng.normal(size=40)
    f = prompt_mean.repeat(25)[:, None] + 0.1 * rng.random((1000, 1))
    statistics = collect(
        f.astype(np.float32),
        row=np.arange(1000) // 25,
        rows=40,
        outcome=np.full(1000, UNJUDGED),
        counted=np.ones(1000, bool),
    )
    sums = {
        "sum": np.asarray(statistics.sum, np.float64),
        "tokens": np.asarray(statistics.tokens, np.float64),
    }
    found = interval(lambda s: s["sum"] / s["tokens"], sums, replicates=400)
    assert found.low[0] < 1.05 < found.high[0]
    standard_error = prompt_mean.std() / 40**0.5
    assert found.high[0] - found.low[0] == pytest.approx(
        2 * 1.96 * standard_error, rel=0.15
    )


def test_an_interval_needs_two_prompts():
    with pytest.raises(ValueError, match="1 prompts"):
        interval(lambda s: s, np.ones((1, 2)))
