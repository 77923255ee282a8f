"""Cheap estimates of a problem's influence, from gradients and from its pass rate.

With g_p the gradient of problem p's part of the policy loss, and g the gradient of
minus the mean log-probability of held-out worked solutions, both at one checkpoint:

    dot product   <g_p, g>: positive if a step along -g_p raises the log-probability
    TracIn        sum over checkpoints of learning rate * <g_p, g>
    p (1 - p)     the variance of the problem's verdicts

TracIn is the form for plain gradient descent (https://arxiv.org/abs/2002.08484, TracIn
CP): it does not know Adam's moments, its scaling or the clipping of the norm. At
every checkpoint the completions and advantages are those of the replayed step, and the
policy loss is on-policy, without KL and entropy terms.
"""

import dataclasses

import numpy as np

from rlvr_jax.analysis.influence.held_out import HeldOut, dot
from rlvr_jax.analysis.influence.replay import Replay
from rlvr_jax.learn.batches import batch_from_rollouts, with_loss_weights
from rlvr_jax.learn.micro_batches import MicroBatchCut, take_micro_batch
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.optimizer import make_schedule
from rlvr_jax.learn.update import Updater
from rlvr_jax.rollouts.collect import RolloutBatch
from rlvr_jax.tokenizer.classes import token_classes
from rlvr_jax.types import Batch


class DotProducts:
    """Dot products of problems' gradients with the gradient of the held-out outcome."""

    def __init__(self, replay: Replay, held_out: HeldOut):
        trainer, train = replay.trainer, replay.trainer.setup.config.train
        loss = dataclasses.replace(train.loss, kl_coef=0.0, entropy_coef=0.0)
        self._replay, self._held_out = replay, held_out
        self._updater = Updater(
            trainer.setup.graphdef,
            policy_objective(loss, token_classes(trainer.setup.tokenizer)),
            optimizer=train.optimizer,
            total_steps=1,
            logits_chunk_size=train.logits_chunk_size,
            frozen=trainer.trainable.frozen,
        )
        self._cut = MicroBatchCut.from_config(trainer.setup.config)
        self._batch = make_step_batch(replay)

    def measure(self, step: int, problems: list[int]) -> np.ndarray:
        """Returns <g_p, g> of these problems at the checkpoint of a step."""
        replay = self._replay
        params = replay.load_params(step)
        held_out = self._held_out.gradient(params)
        filler = [-1] * (self._cut.group_multiple - 1)  # a group on each device
        found = []
        for p in problems:
            alone = take_micro_batch(self._batch, np.array([p, *filler]), self._cut)
            gradient, _ = self._updater.gradient(
                params,
                replay.trainer.setup.shard_batch(alone),
                replay.trainer.sampling,
                None,
            )
            found.append(float(dot(gradient, held_out)))
        return np.array(found)


def make_step_batch(replay: Replay) -> Batch:
    """Returns the step's data as one minibatch, as stage `train` weighs it."""
    rollouts, train = replay.rollouts, replay.trainer.setup.config.train
    whole = with_loss_weights(
        batch_from_rollouts(
            rollouts.groups.rollouts,
            rollouts.advantages,
            external=rollouts.external,
            mask_truncated=train.loss.mask_truncated,
        ),
        aggregation=train.loss.aggregation,
        max_length=train.sampling.max_new_tokens,
        exclude_zero_variance=train.loss.exclude_zero_variance,
    )
    return dataclasses.replace(whole, on_policy=np.ones(len(whole.lengths), np.bool_))


def learning_rate(replay: Replay, step: int) -> float:
    """Returns the learning rate of the optimizer step after `step` steps of RL."""
    train = replay.trainer.setup.config.train
    schedule = make_schedule(train.optimizer, train.optimizer_steps)
    return float(schedule(step * train.optimizer_steps_per_batch))


def pass_rates(rollouts: RolloutBatch) -> np.ndarray:
    """Returns each problem's share of correct completions among the verified ones.

    NaN if none is verified.
    """
    rates = []
    for p in range(len(rollouts.groups)):
        statuses = [one.verdict.status for one in rollouts.groups.completions_of(p)]
        num_verified = len(statuses) - statuses.count("unverified")
        correct = statuses.count("correct")
        rates.append(correct / num_verified if num_verified else np.nan)
    return np.array(rates)


def verdict_variance(pass_rate: float) -> float:
    """Returns p (1 - p), rounded so that p and 1 - p give the same number."""
    return round(pass_rate * (1 - pass_rate), 12)
