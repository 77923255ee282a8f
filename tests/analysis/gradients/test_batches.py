"""Batches as in training, and the gradient that training would take."""

import dataclasses

import jax
import numpy as np
import optax
import pytest

from job_jax.checkpoint import StageCheckpoints
from job_jax.config import CheckpointConfig
from rlvr_jax.analysis.gradients.batches import (
    PolicyGradients,
    is_nonzero,
    read_difficulty,
    sample_batches,
)
from rlvr_jax.config import RewardConfig
from rlvr_jax.data import Pool
from rlvr_jax.learn.update import Updater
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.setup import open_setup
from tests.support.policies import TINY_EVAL


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy rewarded by a coin, with every other term in its objective."""
    train = dataclasses.replace(
        TINY_EVAL.train,
        batch_size=8,
        group_size=4,
        reward=RewardConfig(names=("random",)),
        loss=dataclasses.replace(TINY_EVAL.train.loss, kl_coef=0.5, entropy_coef=0.5),
    )
    config = dataclasses.replace(TINY_EVAL, train=train)
    run = open_setup(config, tmp_path_factory.mktemp("run") / "none", stages=("train",))
    with jax.set_mesh(run.mesh), run.verifier:
        yield LoadedPolicy(run, run.initial_params(), 0)


@pytest.fixture(scope="module")
def batches(policy, tmp_path_factory):
    return list(sample_batches(policy, tmp_path_factory.mktemp("run"), 3))


def test_every_batch_asks_the_problems_that_a_run_would_ask_next(policy, batches):
    config = policy.setup.config
    pool = Pool(policy.setup.sources["train"], config)
    for number, batch in enumerate(batches):
        known = dataclasses.replace(pool.initial(), num_batches=number)
        asked = pool.next_batch(known, number, config.train.batch_size)
        graded = batch.groups.graded
        assert [each.problem for each in graded[::4]] == asked.problems
    texts = {each.completion for batch in batches for each in batch.groups.graded}
    assert len(texts) > 48  # of 96


def test_the_start_of_a_run_is_known(policy, tmp_path):
    """Estimates of stage `difficulty`, and the batches of an earlier run."""
    pool = Pool(policy.setup.sources["train"], policy.setup.config)
    assert read_difficulty(tmp_path, pool).num_batches == 0
    correct = np.arange(pool.size)
    estimates = dataclasses.replace(
        pool.initial(), correct=correct, num_visits=np.ones(pool.size, int)
    )
    nothing = policy.setup.replicate({"nothing": np.int32(0)})
    for stage, host in (
        ("difficulty", {"seconds": 1.0, "host": {"difficulty": estimates.to_json()}}),
        ("start", {"num_batches": 7}),
    ):
        with StageCheckpoints(
            tmp_path / "checkpoints" / stage, CheckpointConfig()
        ) as checkpoints:
            checkpoints.save(1, nothing, host)
    found = read_difficulty(tmp_path, pool)
    assert found.num_batches == 7
    np.testing.assert_array_equal(found.correct, correct)


def test_a_zero_gradient_is_reported():
    assert not is_nonzero({"a": np.zeros(3), "b": np.zeros(2)})
    assert is_nonzero({"a": np.zeros(3), "b": np.array([0.0, -1e-9])})


def test_the_gradient_is_that_of_the_weighed_tokens_rewards_alone(policy, batches):
    """Against a difference quotient of sum(w c A log pi), in a random direction."""
    gradients = PolicyGradients(policy)
    batch = gradients.make_batch(batches[0])
    weights = np.random.default_rng(0).random(batch.tokens.shape)
    gradient = gradients.gradient(batch, weights)
    leaves, form = jax.tree.flatten(policy.params)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    direction = jax.tree.unflatten(
        form,
        [
            jax.random.normal(key, leaf.shape)
            for key, leaf in zip(keys, leaves, strict=True)
        ],
    )
    size = 1e-3 / float(optax.tree.norm(direction))

    def objective(sign):
        params = jax.tree.map(
            lambda p, d: p + sign * size * d, policy.params, direction
        )
        updater: Updater = gradients._updater
        logprobs, _ = updater.score(
            params, policy.setup.shard_batch(batch), gradients._sampling
        )
        per_token = batch.loss_weights * weights * batch.advantages[:, None]
        return float((per_token * np.asarray(logprobs, np.float64)).sum())

    slope = (objective(1) - objective(-1)) / (2 * size)
    assert abs(slope) > 0.01
    assert float(optax.tree.vdot(gradient, direction)) == pytest.approx(
        -slope, rel=0.02
    )
