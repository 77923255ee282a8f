"""Inputs of `learn` functions: lists become arrays, wrong shapes are errors."""

import re

import numpy as np
import pytest

from rlvr_jax.algorithms.losses import aggregation_weights, policy_loss
from rlvr_jax.config import LossConfig


def _plain(**changed):
    """Returns the on-policy loss of two completions in lists: (-1 - 1 + 0.5) / 3."""
    logprobs = [[-0.1, -0.2], [-0.3, -0.4]]
    weights = aggregation_weights(
        [2, 1], width=2, aggregation="token_mean", max_length=2
    )
    arrays = {
        "logprobs": logprobs,
        "old_logprobs": np.array(logprobs),
        "advantages": [1, -0.5],
        "loss_weights": weights,
        "lengths": [2, 1],
    }
    return policy_loss(**(arrays | changed), config=LossConfig())[0]


def test_lists_are_arrays():
    assert _plain() == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("advantages", [[1.0], [-0.5]], "B=2"),
        ("advantages", [[1.0, -0.5]], "B=2"),
        ("advantages", np.ones((2, 2)), "B=2"),
        ("advantages", [1.0], "B=2"),
        ("loss_weights", [0.5, 0.5], "B=2, T=2"),
        ("old_logprobs", [[-0.1], [-0.3]], "B=2, T=2"),
        ("lengths", [[2], [1]], "B=2"),
        ("token_weights", [1.0, 1.0], "B=2, T=2"),
        ("bands", [0], "B=2"),
        ("logprobs", [-0.1, -0.2], "B, T"),
    ],
)
def test_nothing_broadcasts_to_another_loss(name, value, wanted):
    shape = re.escape(str(np.shape(value)))
    with pytest.raises(ValueError, match=rf"{name} has shape {shape}; .* \[{wanted}\]"):
        _plain(**{name: value})


def test_lengths_are_whole_and_advantages_say_how_to_mend_them():
    with pytest.raises(ValueError, match="lengths holds float32; it must hold whole"):
        _plain(lengths=[2.0, 1.0])
    with pytest.raises(ValueError, match=r"advantages\.reshape\(-1\) makes it of"):
        _plain(advantages=[[1.0, -0.5]])
