"""The cut keeps exactly what sorting would keep, up to ties."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sae_jax.sparsity import (
    apply_threshold,
    batch_threshold,
    just_below,
    row_thresholds,
)

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@jax.jit
def kept(values: jax.Array, count: int, slack: int = 0) -> tuple:
    cut, number = batch_threshold([values], count, max_excess=slack)
    return apply_threshold(values, cut[None, None]), number


@functools.partial(jax.jit, static_argnums=1)
def kept_by_row(values: jax.Array, count: int) -> jax.Array:
    cut_B, _ = row_thresholds(values, count)
    return apply_threshold(values, cut_B[:, None])


def by_sorting(values: np.ndarray, count: int) -> np.ndarray:
    """Returns what torch's topk and relu would keep, for values without ties."""
    flat = np.maximum(values, 0).ravel()
    expected = np.zeros_like(flat)
    largest = np.argsort(flat, kind="stable")[-count:]
    expected[largest] = flat[largest]
    return expected.reshape(values.shape)


SCALED = {
    "normal": normal(16, 48),
    "few positive": normal(16, 48) - 3.0,
    "one huge": np.where(np.arange(768).reshape(16, 48) == 5, 3e38, normal(16, 48)),
    "tiny": normal(16, 48) * np.float32(1e-37),
    "many octaves": np.exp(20 * normal(16, 48)),
    "rows apart": normal(16, 48) * np.exp(5 * normal(16, 1)),
    "columns apart": normal(16, 48) * np.exp(5 * normal(1, 48)),
}


@pytest.mark.parametrize("name", SCALED)
@pytest.mark.parametrize("count", [1, 40, 300])
def test_batch_threshold_keeps_what_sorting_keeps(name, count):
    values = SCALED[name].astype(np.float32)
    values = np.where(np.abs(values) < 2e-38, 0, values)  # subnormals count as zeros
    got, number = kept(jnp.asarray(values), count)
    expected = by_sorting(values, count)
    np.testing.assert_array_equal(got, expected)
    assert number == (expected > 0).sum()


@pytest.mark.parametrize("name", SCALED)
def test_row_cuts_keep_what_sorting_each_row_keeps(name):
    values = SCALED[name].astype(np.float32)
    values = np.where(np.abs(values) < 2e-38, 0, values)
    expected = np.stack([by_sorting(row, 4) for row in values])
    np.testing.assert_array_equal(kept_by_row(jnp.asarray(values), 4), expected)


@pytest.mark.parametrize("fill", [0.0, -1.0, -0.0])
def test_nothing_positive_keeps_nothing(fill):
    got, number = kept(jnp.full((4, 8), fill), 3)
    assert number == 0
    assert not np.any(got)


def test_ties_at_the_cut_are_kept_together():
    values = jnp.asarray([[1.0, 2.0, 2.0, 2.0], [3.0, 0.5, 0.25, 2.0]])
    got, number = kept(values, 2)
    assert number == 5  # 3 and the four 2s; a third of them would be an arbitrary one
    np.testing.assert_array_equal(got, np.where(values >= 2, values, 0))
    got, number = kept(values, 6)
    assert number == 6
    got, number = kept(jnp.ones((5, 7)), 3)
    assert number == 35


def test_fewer_positives_than_k_are_all_kept():
    values = jnp.asarray([[-1.0, 2.0, 0.0], [1e-30, -3.0, -2.0]])
    got, number = kept(values, 5)
    assert number == 2
    np.testing.assert_array_equal(got, np.maximum(values, 0))


@pytest.mark.parametrize("slack", [0, 30])
def test_a_sampled_start_changes_nothing(slack):
    """Above 2**20 entries a sample suggests where to begin, rightly or wrongly."""
    even = normal(1024, 1040)
    misleading = even.copy()
    misleading[::4, ::8] *= 100  # the sample comes from these rows and columns
    for values in (even, misleading):
        count = 8 * 1024
        got, number = kept(jnp.asarray(values), count, slack)
        assert count <= number <= count + slack
        np.testing.assert_array_equal(got, by_sorting(values, int(number)))


def test_several_parts_are_cut_as_one():
    values = normal(16, 48)
    whole, _ = batch_threshold([jnp.asarray(values)], 40)
    parts, _ = batch_threshold(
        [jnp.asarray(v) for v in np.split(values, [10], axis=1)], 40
    )
    assert whole == parts


def test_clones_are_cut_each_by_itself():
    values = jnp.asarray(normal(3, 16, 48) * np.array([1, 10, 0.1])[:, None, None])
    together, _ = jax.vmap(lambda v: batch_threshold([v], 40))(
        values.astype(jnp.float32)
    )
    alone = [batch_threshold([v], 40)[0] for v in values.astype(jnp.float32)]
    for cut, single, v in zip(together, alone, values, strict=True):
        assert (v >= cut).sum() == (v >= single).sum() == 40


def test_gradients_pass_where_an_entry_is_kept():
    values = jnp.asarray([[1.0, 2.0, -1.0], [0.5, 3.0, 0.1]])
    gradient = jax.grad(lambda v: kept(v, 2)[0].sum())(values)
    np.testing.assert_array_equal(gradient, [[0, 1, 0], [0, 1, 0]])


def test_just_below_is_exceeded_by_the_cut_and_by_nothing_smaller():
    cut = jnp.float32(0.3)
    below = just_below(cut)
    assert np.nextafter(np.float32(0.3), np.float32(0)) == below < cut
