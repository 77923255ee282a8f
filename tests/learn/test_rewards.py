"""DAPO's overlong penalty on paper values."""

import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.learn.rewards import overlong_penalty


def test_penalty_is_flat_then_linear_then_flat():
    """Room for 20 tokens, the last 4 of them charged a quarter each."""
    lengths = jnp.array([0, 1, 15, 16, 17, 18, 19, 20, 21, 99])
    penalty = overlong_penalty(lengths, max_length=20, buffer=4)
    expected = [0, 0, 0, 0, -0.25, -0.5, -0.75, -1, -1, -1]
    np.testing.assert_array_equal(penalty, np.array(expected, np.float32))


def test_buffer_of_the_whole_length_charges_from_the_first_token():
    penalty = overlong_penalty(jnp.array([0, 1, 2, 4]), max_length=4, buffer=4)
    np.testing.assert_array_equal(penalty, np.float32([0, -0.25, -0.5, -1]))


@pytest.mark.parametrize("buffer", [0, -1, 21])
def test_impossible_buffer_is_refused_with_its_value(buffer):
    with pytest.raises(ValueError, match=f"buffer={buffer} must lie in 1..max_length"):
        overlong_penalty(jnp.array([1]), max_length=20, buffer=buffer)
