"""How a matrix moved: values from paper, and the effect of noise."""

import numpy as np
import pytest

from rlvr_jax.analysis.geometry.measures import (
    add_noise,
    largest_entries,
    measure_change,
    measure_path,
    measure_walk,
)


def random(*shape, seed=0):
    """Returns a normal random array."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_outer_product_is_of_rank_one_and_two_equal_ones_share():
    before = random(30, 20)
    rows, columns = np.eye(30, dtype=np.float32), np.eye(20, dtype=np.float32)
    one = 0.5 * np.outer(rows[0], columns[3])
    two = one + 0.5 * np.outer(rows[1], columns[4])
    assert measure_change(before, before + one).rank_one_share == pytest.approx(
        1, abs=1e-5
    )
    assert measure_change(before, before + two).rank_one_share == pytest.approx(
        0.5, abs=1e-5
    )


def test_relative_size_is_of_the_whole_matrix():
    before = random(8, 6)
    change = measure_change(before, 1.25 * before)
    assert change.relative_size == pytest.approx(0.25, rel=1e-6)
    assert change.rank_one_share < 0.9


def test_growth_along_leading_directions_lies_inside_and_turns_nothing():
    """Of 20 singular directions the two largest are principal."""
    values = np.arange(20, 0, -1).astype(np.float32)
    before = np.diag(values)
    inside, outside = np.zeros_like(before), np.zeros_like(before)
    inside[0, 1], outside[5, 6] = 0.1, 0.1
    assert measure_change(before, before + inside).principal_share == pytest.approx(1)
    assert measure_change(before, before + outside).principal_share == pytest.approx(0)
    grown = measure_change(before, np.diag(values + (np.arange(20) < 2)))
    assert grown.principal_angle == pytest.approx(0, abs=1e-2)


def test_exchanged_direction_turns_by_ninety_degrees_on_both_sides():
    """One of K = 2 principal directions is replaced: angles 0 and 90, mean 45."""
    values = np.arange(20, 0, -1).astype(np.float32)
    swapped = values.copy()
    swapped[[1, 10]] = values[[10, 1]]
    change = measure_change(np.diag(values), np.diag(swapped))
    assert change.principal_angle == pytest.approx(45, abs=1e-2)


def test_moved_entries_are_counted_in_both_types():
    """At 1, bfloat16's spacing is 2^-7: half of it or less rounds away to even."""
    before = np.ones(8, np.float32)
    steps = np.array([0, 0, 2**-20, 2**-9, 2**-8, 2**-7, 2**-6, 1], np.float32)
    change = measure_change(before, before + steps)
    assert change.moved_float32 == 6 / 8
    assert change.moved_bfloat16 == 3 / 8
    assert np.isnan(change.rank_one_share)


def test_an_unmoved_matrix_has_no_direction():
    change = measure_change(random(6, 5), random(6, 5))
    assert change.relative_size == change.moved_float32 == change.moved_bfloat16 == 0
    assert np.isnan(change.rank_one_share)
    assert np.isnan(change.principal_share)
    assert np.isnan(change.principal_angle)


def test_noise_is_as_large_and_spread_over_all_directions():
    before = random(200, 100)
    after = before + 0.1 * np.outer(random(200, seed=1), random(100, seed=2))
    noise = add_noise(before, after, generator=np.random.default_rng(0))
    real, null = measure_change(before, after), measure_change(before, noise)
    assert null.relative_size == pytest.approx(real.relative_size, rel=1e-5)
    # (sqrt(M) + sqrt(N))^2 / (M N), and k^2 / (M N) for an even direction
    assert null.rank_one_share == pytest.approx((200**0.5 + 10) ** 2 / 20000, rel=0.1)
    assert null.principal_share == pytest.approx(100 / 20000, rel=0.4)
    assert real.rank_one_share > 0.99


def test_noise_moves_stored_weights_as_far_where_most_entries_are_rounded_away():
    before = random(200, 100).astype("bfloat16")
    after = before.copy()
    after[0, :5] += before.dtype.type(0.5)
    noise = add_noise(before, after, generator=np.random.default_rng(0))
    size = np.linalg.norm(after.astype(np.float32) - before.astype(np.float32))
    moved = np.linalg.norm(noise - before.astype(np.float32))
    assert size > 0.5
    assert moved == pytest.approx(size, rel=1e-4)


def test_largest_entries_are_a_hundredth_and_at_least_one():
    before = np.zeros((20, 20), np.float32)
    after = np.arange(400, dtype=np.float32).reshape(20, 20)
    assert np.flatnonzero(largest_entries(before, -after)).tolist() == [
        396,
        397,
        398,
        399,
    ]
    assert largest_entries(before[0], after[0]).sum() == 1


def test_unmoved_entries_are_not_among_the_largest():
    assert not largest_entries(random(20, 20), random(20, 20)).any()


def test_only_straightness_separates_a_line_from_a_walk():
    steps = [10, 20, 30, 40]
    line = measure_path(steps, [1, 2, 3, 4], lengths=[1] * 4, size=4)
    walk = measure_walk(steps, [1] * 4)
    assert line.linearity == pytest.approx(1)
    assert line.straightness == pytest.approx(1)
    assert walk.linearity == pytest.approx(1)
    assert walk.straightness == pytest.approx(0.5)


def test_walk_matches_independent_increments():
    increments = random(4, 100, 100)
    ends = np.cumsum(increments, axis=0)
    left, _, right = np.linalg.svd(ends[-1])
    lengths = [float(np.linalg.norm(x)) for x in increments]
    size = float(np.linalg.norm(ends[-1]))
    projections = [float(left[:, 0] @ end @ right[0]) for end in ends]
    drawn = measure_path([1, 2, 3, 4], projections, lengths=lengths, size=size)
    walk = measure_walk([1, 2, 3, 4], lengths)
    assert drawn.straightness == pytest.approx(walk.straightness, rel=0.02)
    assert drawn.linearity == pytest.approx(walk.linearity, abs=0.1)


def test_curve_is_less_linear():
    path = measure_path([1, 2, 3], [0, 0, 1], lengths=[1, 1, 1], size=1)
    # over (0, 0), (1, 0), (2, 0), (3, 1): r = 1.5 / sqrt(5 * 0.75)
    assert path.linearity == pytest.approx(0.6)
    assert path.straightness == pytest.approx(1 / 3)


def test_one_checkpoint_makes_no_path():
    path = measure_path([5], [1.0], lengths=[1.0], size=1.0)
    assert np.isnan(path.linearity)
    assert np.isnan(path.straightness)
