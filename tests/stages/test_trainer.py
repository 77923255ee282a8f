"""What a training step hands to the update, by the config."""

import types

import numpy as np
import pytest

from rlvr_jax.config import Config, LossConfig, TrainConfig
from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.stages import trainer as stage
from rlvr_jax.types import Prompts, Rollouts


@pytest.mark.parametrize("masks", [False, True])
def test_truncated_completions_are_left_out_where_the_loss_says_so(monkeypatch, masks):
    finished = np.array([True, False, True, True])
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.ones((2, 1), np.int32),
            lengths=np.ones(2, np.int32),
            uid=np.arange(2, dtype=np.uint32),
        ),
        tokens=np.ones((4, 3), np.int32),
        lengths=np.full(4, 3, np.int32),
        logprobs=np.zeros((4, 3), np.float32),
        finished=finished,
        weight_version=np.int32(0),
    )
    sampled = types.SimpleNamespace(
        groups=types.SimpleNamespace(rollouts=rollouts),
        advantages=np.ones((2, 2), np.float32),
        bands=np.zeros(2, np.int32),
        external=None,
    )
    loss = LossConfig(mask_truncated=masks)
    setup = types.SimpleNamespace(
        config=Config(train=TrainConfig(loss=loss)), shard_batch=None
    )
    trainer = types.SimpleNamespace(
        setup=setup, probe=None, updater=None, reference=None, sampling=None
    )
    monkeypatch.setattr(stage, "run_updates", lambda *_, batch, **__: batch)
    state = types.SimpleNamespace(rfgo=None, device=None)
    batch, _ = stage.update_policy(trainer, state, 0, sampled, timer=StepTimer())
    if masks:
        assert batch.left_out.tolist() == (~finished).tolist()
    else:
        assert batch.left_out is None
