"""Values read inside a layer equal those that transformers computes there."""

import json
import pathlib

import jax
import numpy as np
import pytest

from rlvr_jax.models import load_hf
from rlvr_jax.models.hooks import HOOKS, read_hook
from tests.golden.family_models import LENGTHS, padded
from tests.support.hub import written

GOLDEN = json.loads(
    (pathlib.Path(__file__).parents[1] / "golden" / "hook_goldens.json").read_text()
)["families"]


@pytest.fixture(scope="module", params=sorted(GOLDEN))
def family(request):
    return request.param


@pytest.fixture(scope="module")
def policy(family, tmp_path_factory):
    return load_hf(written(tmp_path_factory.mktemp("hf") / family, family))


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_of_every_layer_equals_transformers(policy, family, hook):
    layers = tuple(range(policy.config.num_layers))
    read = read_hook(policy, *padded("right"), hook=hook, layers=layers)
    for layer, values in zip(layers, read, strict=True):
        kept = [
            np.asarray(values)[b, length - 1, ::4] for b, length in enumerate(LENGTHS)
        ]
        np.testing.assert_allclose(kept, GOLDEN[family][hook][layer], atol=5e-5)


def test_the_stream_after_a_layer_is_the_one_that_the_policy_captures(policy):
    tokens, mask = padded("right")
    (read,) = read_hook(policy, tokens, mask, hook="resid_post", layers=(1,))
    captured = jax.jit(lambda: policy.prefill(tokens, mask, capture_layers=(1,)))()
    np.testing.assert_allclose(read, captured[0].captured[0], atol=1e-4)


def test_layers_come_back_in_the_order_in_which_they_are_named(policy):
    tokens, mask = padded("right")
    last, first = read_hook(policy, tokens, mask, hook="mlp_out", layers=(2, 0))
    for layer, values in ((2, last), (0, first)):
        (alone,) = read_hook(policy, tokens, mask, hook="mlp_out", layers=(layer,))
        np.testing.assert_array_equal(values, alone)
