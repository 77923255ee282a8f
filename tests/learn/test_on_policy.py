"""The first optimizer step of a batch is on-policy: ratio 1 for any old scores.

Old log-probabilities are rounded to bfloat16: two bfloat16 programs differ by about as
much.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rlvr_jax.config import Config, LossConfig, SamplingConfig, TrainConfig
from rlvr_jax.learn.batches import batch_from_rollouts
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.presets import gspo
from rlvr_jax.learn.run_updates import run_updates
from rlvr_jax.learn.update import Updater
from rlvr_jax.metrics.doctor import DoctorState, check_step
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.sampler import sample
from rlvr_jax.types import Prompts, Rollouts
from tests.support.policies import random_tokens, tiny_policy

P, G, S, T = 8, 4, 6, 24
ADVANTAGES = np.where(np.arange(P * G).reshape(P, G) % 2, np.float32(1), np.float32(-1))
SAMPLING = SamplingParams.unmodified()
# Bounds that rounding to bfloat16 exceeds, at every level.
LOSSES = {
    "gspo": gspo()["loss"],
    "token": LossConfig(clip_low=1e-4, clip_high=1e-4),
    "cispo": LossConfig(surrogate="cispo", clip_low=1e-4, clip_high=1e-4),
    "trajectory": LossConfig(
        importance_sampling_level="trajectory", clip_low=1e-4, clip_high=1e-4
    ),
}


@pytest.fixture(scope="module")
def policy():
    return tiny_policy(num_layers=1)


@pytest.fixture(scope="module")
def rollouts(policy) -> Rollouts:
    graphdef, params = nnx.split(policy)
    prompts = Prompts(
        tokens=random_tokens(P, S, seed=1),
        lengths=np.full(P, S, np.int32),
        uid=np.arange(P, dtype=np.uint32),
    )
    drawn = sample(
        graphdef,
        params,
        prompts,
        SAMPLING,
        key=jax.random.key(0),
        weight_version=jnp.int32(0),
        num_samples=G,
        max_new_tokens=T,
    )
    return jax.device_get(dataclasses.replace(drawn, logprobs=_round(drawn.logprobs)))


def _round(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16).astype(jnp.float32))


class Watched(Updater):
    """An updater that scores coarsely and keeps each step's diagnostics."""

    def score(self, *args, **settings):
        """Returns the scores of the updater's pass, rounded."""
        return jax.tree.map(_round, super().score(*args, **settings))

    def step(self, *args, **settings):
        """Returns the result of the updater's step."""
        state, losses, report = super().step(*args, **settings)
        self.seen.append(jax.device_get(losses))
        self.num_programs.append(self._accumulate._cache_size())
        return state, losses, report


@functools.cache
def _updater(graphdef, loss):
    return Watched(
        graphdef,
        policy_objective(loss),
        optimizer=TrainConfig().optimizer,
        total_steps=4,
        logits_chunk_size=0,
    )


def _run(policy, rollouts, loss, *, num_minibatches=2, **train):
    """Returns updater and result; micro-batches have two prompts in every run."""
    settings = TrainConfig(
        batch_size=P,
        group_size=G,
        loss=loss,
        sampling=SamplingConfig(max_new_tokens=T),
        num_minibatches=num_minibatches,
        grad_accum_steps=P // num_minibatches // 2,
        **train,
    )
    graphdef, params = nnx.split(policy)
    updater = _updater(graphdef, loss)
    updater.seen, updater.num_programs = [], []
    result = run_updates(
        Config(train=settings, completion_pad_multiple=T),
        updater,
        updater.init(jax.tree.map(jnp.copy, params)),
        batch=batch_from_rollouts(rollouts, ADVANTAGES),
        weight_version=np.int32(0),
        ref_params=None,
        sampling=SAMPLING,
        to_device=lambda batch: batch,
    )
    return updater, result


@pytest.mark.parametrize("old_logprobs", ["sampler", "trainer"])
@pytest.mark.parametrize("name", LOSSES)
def test_nothing_is_clipped_before_the_policy_has_moved(
    policy, rollouts, name, old_logprobs
):
    """Both micro-batches of the first minibatch; the second minibatch is off-policy."""
    updater, result = _run(
        policy,
        rollouts,
        LOSSES[name],
        old_logprobs=old_logprobs,
    )
    first, second = updater.seen
    assert first.scalars["ratio"] == first.tokens  # each of them exactly 1
    assert first.scalars["clip_low"] == first.scalars["clip_high"] == 0
    assert second.scalars["clip_low"] + second.scalars["clip_high"] > 0
    assert result.metrics["logprob_mismatch/mean"] > 1e-4


def test_one_program_serves_the_first_step_and_the_others(policy, rollouts):
    updater, _ = _run(policy, rollouts, LOSSES["gspo"], num_epochs=2)
    assert len(updater.num_programs) == 4
    assert len(set(updater.num_programs)) == 1


def test_the_doctor_warns_where_later_steps_clip_by_rounding(policy, rollouts):
    def codes(loss, **train):
        metrics = _run(policy, rollouts, loss, **train)[1].metrics
        _, alarms = check_step(
            DoctorState(),
            0,
            metrics,
            total_steps=100,
            window=20,
            max_logprob_mismatch=0.5,
            max_unexplained_growth=0.1,
            max_splice_cost=0.1,
        )
        return [alarm.code for alarm in alarms]

    assert codes(LOSSES["gspo"]) == ["mismatch_clips"]
    assert codes(LOSSES["gspo"], num_minibatches=1) == []
    assert codes(LossConfig()) == []
