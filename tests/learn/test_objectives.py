"""Objectives: a user's next to ours, and diagnostics without a list of names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from job_jax.config_io import from_json, to_json
from rlvr_jax.algorithms.losses import policy_loss
from rlvr_jax.config import LossConfig, TrainConfig
from rlvr_jax.learn.batches import make_batch
from rlvr_jax.learn.logprobs import TokenScores
from rlvr_jax.learn.objectives import policy_objective, supervised_objective, zero_aux
from rlvr_jax.types import Prompts
from tests.support.user_extensions import Sigmoid

LENGTHS = jnp.array([2, 1])


def _loss(config, logprobs):
    return policy_loss(
        logprobs,
        jnp.zeros((2, 2)),
        jnp.array([1.0, -2.0]),
        jnp.full((2, 2), 0.5),
        lengths=LENGTHS,
        config=config,
    )


def test_a_users_objective_is_weighed_and_masked_as_ours_and_its_values_are_logged():
    """On-policy the gate is 1/2 and its gain 2 A; its slope in the ratio is A."""
    loss, aux = _loss(Sigmoid(), jnp.zeros((2, 2)).at[1, 1].set(jnp.nan))
    assert loss == pytest.approx(-0.5 * 2 * (1 + 1 - 2))
    assert aux.scalars["gate"] == pytest.approx(0.5 * 3)
    assert aux.scalars.keys() == {"gate", "kl", "entropy"}
    gradient = jax.grad(lambda x: _loss(Sigmoid(temperature=3.0), x)[0])(
        jnp.zeros((2, 2))
    )
    np.testing.assert_allclose(gradient, [[-0.5, -0.5], [1.0, 0.0]], rtol=1e-6)


def test_a_users_objective_is_chosen_by_its_place_and_comes_back_from_json():
    config = TrainConfig(loss=Sigmoid(temperature=2.0, kl_coef=0.1))
    record = to_json(config)
    assert record["loss"]["name"] == "tests.support.user_extensions:Sigmoid"
    assert from_json(TrainConfig, record) == config
    assert to_json(TrainConfig())["loss"]["name"] == "policy"


@pytest.mark.parametrize(
    "objective",
    [
        supervised_objective,
        policy_objective(LossConfig(kl_coef=0.1)),
        policy_objective(Sigmoid()),
    ],
)
def test_sums_begin_with_every_name_that_the_objective_reports(objective):
    zeros = zero_aux(objective)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(zeros))
    scores = TokenScores(logprobs=jnp.zeros((2, 3)), entropies=jnp.ones((2, 3)))
    prompts = Prompts(
        tokens=np.ones((1, 4), np.int32),
        lengths=np.array([4], np.int32),
        uid=np.zeros(1, np.uint32),
    )
    batch = make_batch(prompts, np.ones((2, 3), np.int32), np.array([3, 2], np.int32))
    _, aux = objective(scores, batch)
    assert jax.tree.map(jnp.shape, zeros + aux) == jax.tree.map(jnp.shape, aux)
