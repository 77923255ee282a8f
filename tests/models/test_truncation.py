"""The first layers of a policy have its residual stream, in less work."""

import jax
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.models import keep_first_layers
from tests.support.policies import random_tokens, tiny_policy

TEXTS = (random_tokens(3, 5, seed=1), np.array([5, 2, 4]), random_tokens(3, 9, seed=2))
WINDOWS = {"layer_types": ("sliding", "full"), "sliding_window": 3}


def stream(policy, layer):
    states = policy.hidden_states(*TEXTS, capture_layers=(layer,))
    return states.completions.captured[0]


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_stream_is_the_whole_policys(layer, scan_layers):
    whole = tiny_policy(num_layers=3, scan_layers=scan_layers, **WINDOWS)
    first = keep_first_layers(whole, layer + 1)
    np.testing.assert_allclose(
        stream(first, layer), stream(whole, layer), rtol=1e-6, atol=1e-6
    )
    assert {leaf.shape[0] for leaf in jax.tree.leaves(nnx.state(first.blocks))} == {
        layer + 1
    }
    assert first.config.num_layers == layer + 1


def test_the_whole_policy_stays_as_it_was():
    whole = tiny_policy(num_layers=3)
    before = stream(whole, 2)
    keep_first_layers(whole, 1)
    np.testing.assert_array_equal(stream(whole, 2), before)
    with pytest.raises(ValueError, match=r"capture_layers=\(1,\) must be in 0\.\.0"):
        stream(keep_first_layers(whole, 1), 1)
    with pytest.raises(ValueError, match=r"4 layers of a policy with 3; layers are 0"):
        keep_first_layers(whole, 4)
