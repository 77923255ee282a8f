"""The first batches that RL would train on, and their policy gradients."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from job_jax.checkpoint import StageCheckpoints
from job_jax.files import latest_step
from rlvr_jax.data import Pool
from rlvr_jax.data.difficulty import Difficulty, from_json
from rlvr_jax.learn.batches import batch_from_rollouts, with_loss_weights
from rlvr_jax.learn.micro_batches import MicroBatchCut, split_micro_batches
from rlvr_jax.learn.objectives import policy_objective
from rlvr_jax.learn.update import TrainState, Updater
from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.rollouts.collect import RolloutBatch, collect_rollouts
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.run.workdir import START
from rlvr_jax.tokenizer.classes import token_classes
from rlvr_jax.types import Batch


def read_difficulty(workdir: Path, pool: Pool) -> Difficulty:
    """Returns RL's initial difficulty estimates, from stage `difficulty` if it ran."""
    known, folders = pool.initial(), workdir / "checkpoints"
    if (step := latest_step(folders / "difficulty")) is not None:
        with StageCheckpoints(folders / "difficulty") as checkpoints:
            saved = checkpoints.restore_host_state(step)
        known = from_json(saved["host"]["difficulty"])
    if (step := latest_step(folders / START)) is not None:
        with StageCheckpoints(folders / START) as checkpoints:
            asked = checkpoints.restore_host_state(step)["num_batches"]
        known = dataclasses.replace(known, num_batches=asked)
    return known


def sample_batches(
    policy: LoadedPolicy, workdir: Path, count: int
) -> Iterator[RolloutBatch]:
    """Yields batches of the policy's completions, chosen and rewarded as in training.

    The policy and the difficulty estimates do not change.
    """
    setup = policy.setup
    pool = Pool(setup.sources["train"], setup.config)
    known = read_difficulty(workdir, pool)
    zero = jnp.int32(0)
    state = TrainState(
        params=policy.params, opt_state=None, step=zero, consecutive_nonfinite=zero
    )
    key = functools.partial(jax.random.fold_in, setup.stream_key("train"))
    for step in range(count):
        sampled = collect_rollouts(
            setup, state, pool, known, step=step, batch_key=key, timer=StepTimer()
        )
        served = known.num_batches + sampled.num_batches
        known = dataclasses.replace(known, num_batches=served)
        yield sampled


class PolicyGradients:
    """Gradients of a policy on its own samples, by the program that RL uses.

    They are for the rewards only: the objective's KL and entropy terms are left out.
    """

    def __init__(self, policy: LoadedPolicy):
        setup, train = policy.setup, policy.setup.config.train
        self._policy, self._train = policy, train
        loss = dataclasses.replace(train.loss, kl_coef=0.0, entropy_coef=0.0)
        self._updater = Updater(
            setup.graphdef,
            policy_objective(loss, token_classes(setup.tokenizer)),
            optimizer=train.optimizer,
            total_steps=1,
            logits_chunk_size=train.logits_chunk_size,
        )
        self._sampling = setup.replicate(SamplingParams.from_config(train.sampling))
        self._cut = MicroBatchCut.from_config(setup.config)

    def make_batch(self, sampled: RolloutBatch) -> Batch:
        """Returns the data of an optimizer step, as one minibatch."""
        batch = batch_from_rollouts(
            sampled.groups.rollouts,
            sampled.advantages,
            mask_truncated=self._train.loss.mask_truncated,
        )
        whole = with_loss_weights(
            batch,
            aggregation=self._train.loss.aggregation,
            max_length=self._train.sampling.max_new_tokens,
            exclude_zero_variance=self._train.loss.exclude_zero_variance,
        )
        own = np.ones(len(whole.lengths), np.bool_)
        return dataclasses.replace(whole, on_policy=own)

    def gradient(self, batch: Batch, weights_BT: np.ndarray) -> nnx.State:
        """Returns the parameters' gradient in float32, with these token weights."""
        weighed = dataclasses.replace(
            batch, token_weights=weights_BT.astype(np.float32)
        )
        parts = (
            self._updater.gradient(
                self._policy.params,
                self._policy.setup.shard_batch(part),
                self._sampling,
                None,
            )[0]
            for part in split_micro_batches(weighed, self._cut)
        )
        return functools.reduce(add, parts)


@jax.jit
def add(gradient: nnx.State, other: nnx.State) -> nnx.State:
    """Returns the sum of two gradients."""
    return jax.tree.map(jnp.add, gradient, other)


def is_nonzero(gradient: nnx.State) -> bool:
    """Returns whether any parameter has a gradient."""
    return any(bool(leaf.any()) for leaf in jax.tree.leaves(gradient))
