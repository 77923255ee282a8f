"""Rows of statistics are right by hand, and equal for any division of the tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.stats.feature_statistics import (
    CORRECT,
    INCORRECT,
    UNVERIFIED,
    FeatureStatistics,
    FeatureTable,
    RowKey,
    sequence_statistics,
)
from sae_jax.stats.resample import bootstrap_interval

F = np.array([[1, 0], [3, 2], [0, 5], [7, 7]], np.float32)
BAND = np.array([0, 0, 1, 0])
OUTCOME = np.array([CORRECT, INCORRECT, UNVERIFIED, CORRECT])
MASK = np.array([True, True, True, False])


def by_token(f, row, rows, outcome, mask) -> FeatureStatistics:
    """Returns the statistics of the masked tokens, row by row, by definition."""
    groups = [f[mask & (row == g)] for g in range(rows)]
    correct, incorrect = (
        [f[mask & (row == g) & (outcome == value)] for g in range(rows)]
        for value in (CORRECT, INCORRECT)
    )

    def sums(parts) -> np.ndarray:
        return np.stack([part.sum(axis=0) for part in parts])

    return FeatureStatistics(
        tokens=np.array([len(part) for part in groups]),
        tokens_correct=np.array([len(part) for part in correct]),
        tokens_incorrect=np.array([len(part) for part in incorrect]),
        sum=sums(groups),
        sum_squares=sums([part**2 for part in groups]),
        nonzero=sums([part > 0 for part in groups]),
        max=np.stack([part.max(axis=0, initial=0.0) for part in groups]),
        sum_correct=sums(correct),
        sum_incorrect=sums(incorrect),
    )


def statistics(rows=2, row=BAND) -> FeatureStatistics:
    return by_token(F, row, rows, OUTCOME, MASK)


def test_means_rates_and_differences_by_hand():
    found = statistics()
    np.testing.assert_array_equal(found.mean(), [[2, 1], [0, 5]])
    np.testing.assert_array_equal(found.rate(), [[1, 0.5], [0, 1]])
    np.testing.assert_array_equal(found.variance(), [[1, 1], [0, 0]])
    np.testing.assert_array_equal(found.correct_minus_incorrect(), [[-2, -2], [0, 0]])


def test_batches_merge_exactly():
    """Small whole numbers make sums exact, so the parts must equal the whole."""
    f_STZ, options = sequences()

    def part(s: slice) -> FeatureStatistics:
        found = sequence_statistics(f_STZ[s], **{n: a[s] for n, a in options.items()})
        return found.segment_sum(jnp.zeros(len(found.tokens), int), 1)

    together = part(slice(0, 2)) + part(slice(2, 6))
    jax.tree.map(np.testing.assert_array_equal, together, part(slice(0, 6)))


def sequences() -> tuple[jax.Array, dict[str, jax.Array]]:
    """Returns six ragged sequences of whole activations, one without a token."""
    rng = np.random.default_rng(1)
    f_STZ = rng.integers(-4, 9, (6, 5, 7)).clip(0).astype(np.float32)
    lengths_S = np.array([5, 3, 0, 4, 1, 5])
    counted_ST = np.arange(5)[None] < lengths_S[:, None]
    f_STZ[~counted_ST] = np.nan
    outcome_S = np.array([CORRECT, INCORRECT, CORRECT, UNVERIFIED, INCORRECT, CORRECT])
    options = {"mask": jnp.asarray(counted_ST), "outcome": jnp.asarray(outcome_S)}
    return jnp.asarray(f_STZ), options


def test_sequences_are_summed_as_their_tokens_are():
    f_STZ, options = sequences()
    found = jax.jit(sequence_statistics)(f_STZ, **options)
    expected = by_token(
        np.nan_to_num(f_STZ.reshape(30, 7)),
        np.arange(6).repeat(5),
        6,
        np.asarray(options["outcome"]).repeat(5),
        np.asarray(options["mask"]).reshape(30),
    )
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_sequences_add_up_to_prompts():
    """Sequence 4 is in no row, row 1 has a sequence without tokens, row 3 has none."""
    f_STZ, options = sequences()
    row = jnp.array([0, 2, 1, 0, -1, 2])
    grouped = jax.jit(
        lambda f: sequence_statistics(f, **options).segment_sum(row, 4),
    )(f_STZ)
    expected = by_token(
        np.nan_to_num(f_STZ.reshape(30, 7)),
        np.asarray(row).repeat(5),
        4,
        np.asarray(options["outcome"]).repeat(5),
        np.asarray(options["mask"]).reshape(30),
    )
    jax.tree.map(np.testing.assert_array_equal, grouped, expected)
    np.testing.assert_array_equal(grouped.tokens, [9, 0, 8, 0])


def table(step: int, scale: float = 1.0) -> FeatureTable:
    rows = [RowKey("run", step, band, "probe") for band in ("easy", "hard")]
    scaled = jax.tree.map(lambda a: a * np.asarray(scale, a.dtype), statistics())
    return FeatureTable.from_device(rows, scaled)


def test_bands_merge_into_the_row_of_all_their_tokens():
    merged = table(1).sum_by("run", "step")
    assert merged.rows == (RowKey("run", 1, "", ""),)
    alone = statistics(rows=1, row=np.zeros(4, int))
    jax.tree.map(np.testing.assert_array_equal, merged.statistics, alone)


def test_steps_merge_and_bands_stay():
    joined = FeatureTable.concatenate([table(1), table(2, 3.0)])
    by_band = joined.sum_by("band")
    assert [row.band for row in by_band.rows] == ["easy", "hard"]
    np.testing.assert_array_equal(by_band.statistics.tokens, [8, 4])
    np.testing.assert_array_equal(by_band.statistics.max, [[9, 6], [0, 15]])


def test_prompts_merge_into_their_band():
    rows = [RowKey("run", 0, "hard", "probe", prompt) for prompt in ("p1", "p2")]
    merged = FeatureTable.from_device(rows, statistics()).sum_by(
        "run", "step", "band", "split"
    )
    assert merged.rows == (RowKey("run", 0, "hard", "probe"),)
    np.testing.assert_array_equal(merged.statistics.sum, [[4, 7]])


def test_a_table_comes_back_from_disk(tmp_path):
    of_prompts = FeatureTable(
        rows=tuple(RowKey("run", 0, "hard", "probe", p) for p in ("a", "b")),
        statistics=table(1).statistics,
    )
    saved = FeatureTable.concatenate([table(1), of_prompts])
    saved.save(tmp_path / "features.npz")
    loaded = FeatureTable.load(tmp_path / "features.npz")
    assert loaded.rows == saved.rows
    jax.tree.map(np.testing.assert_array_equal, loaded.statistics, saved.statistics)
    assert [path.name for path in tmp_path.iterdir()] == ["features.npz"]


def test_rows_must_fit_their_statistics():
    with pytest.raises(ValueError, match="1 rows for statistics of 2"):
        FeatureTable.from_device([RowKey("run", 1, "easy", "probe")], statistics())


def test_rows_of_prompts_give_an_interval_that_covers_the_truth():
    """40 prompts of 25 tokens: a prompt's mean is 1 +- 0.5, so the error is 0.08."""
    rng = np.random.default_rng(3)
    prompt_mean = 1 + 0.5 * rng.normal(size=40)
    f = prompt_mean.repeat(25)[:, None] + 0.1 * rng.random((1000, 1))
    found = by_token(
        f, np.arange(1000) // 25, 40, np.full(1000, UNVERIFIED), np.ones(1000, bool)
    )
    sums = {
        "sum": np.asarray(found.sum, np.float64),
        "tokens": np.asarray(found.tokens, np.float64),
    }
    found = bootstrap_interval(
        lambda s: s["sum"] / s["tokens"], sums, num_resamples=400
    )
    assert found.low[0] < 1.05 < found.high[0]
    standard_error = prompt_mean.std() / 40**0.5
    assert found.high[0] - found.low[0] == pytest.approx(
        2 * 1.96 * standard_error, rel=0.15
    )


def test_an_interval_needs_two_prompts():
    with pytest.raises(ValueError, match="1 prompts"):
        bootstrap_interval(lambda s: s, np.ones((1, 2)))
