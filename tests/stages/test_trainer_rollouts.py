"""The weights and the problems with which a step's rollouts are drawn.

Steps are walked through by hand with a sampler that only records its calls.
"""

import dataclasses
import types

import numpy as np
import pytest

from rlvr_jax.run.throughput import StepTimer
from rlvr_jax.stages import trainer_rollouts as stage

STEPS = 5


@dataclasses.dataclass(frozen=True)
class State:
    device: object
    difficulty: object
    pending: tuple = ()


class Ahead:
    """A batch that was drawn: for which step, with which weights."""

    def __init__(self, step, version, difficulty, behind):
        self.step, self.version, self.behind = step, version, behind
        self.difficulty, self.waited = difficulty, False
        self.problems, self.rollouts = f"problems of {step}", f"rollouts of {step}"

    def wait(self):
        self.waited = True


@pytest.fixture
def walk(monkeypatch):
    """Returns a function from staleness to the batches that each step trained on."""

    def run(staleness, *, own_devices=False):
        train = types.SimpleNamespace(staleness=staleness, steps=STEPS)
        layout = types.SimpleNamespace(
            place_params=lambda params: f"placed {params}",
            reshard=None,
            has_own_devices=own_devices,
        )
        setup = types.SimpleNamespace(
            config=types.SimpleNamespace(train=train), sampler_layout=layout
        )
        trainable = types.SimpleNamespace(
            merge_frozen=lambda params: f"whole {params}",
            policy_state=lambda device: ("policy", device.params),
        )
        trainer = types.SimpleNamespace(
            setup=setup, trainable=trainable, pool="pool", batch_key="key"
        )

        def draw(setup, weights, pool, difficulty, **settings):
            assert weights == f"placed whole weights {settings['weight_version']}"
            assert (pool, settings["batch_key"]) == ("pool", "key")
            behind = [one.step for one in settings["pending"]]
            return Ahead(
                settings["step"], settings["weight_version"], difficulty, behind
            )

        def collect(setup, problems, rollouts, difficulty, *, timer):
            return problems, rollouts, difficulty

        monkeypatch.setattr(stage, "draw_batch", draw)
        monkeypatch.setattr(stage, "fetch_rollouts", lambda setup, rollouts: rollouts)
        monkeypatch.setattr(stage, "collect_drawn", collect)
        monkeypatch.setattr(
            stage, "collect_rollouts", lambda *args, **settings: (args, settings)
        )
        found, state = [], State(None, None)
        for step in range(STEPS):
            device = types.SimpleNamespace(
                step=np.int32(10 * step), params=f"weights {10 * step}"
            )
            state = dataclasses.replace(
                state, device=device, difficulty=f"known at {step}"
            )
            before = state.pending
            collected, state = stage.collect_step(
                trainer, state, step, timer=StepTimer()
            )
            found.append((before, collected, state.pending))
        return found

    return run


def test_without_staleness_a_step_learns_from_its_own_weights(walk):
    for step, (before, (args, settings), after) in enumerate(walk(0)):
        assert before == after == ()
        _, policy, pool, difficulty = args
        assert policy == ("policy", f"weights {10 * step}")
        assert (pool, difficulty) == ("pool", f"known at {step}")
        assert (settings["step"], settings["batch_key"]) == (step, "key")


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_step_learns_from_the_batch_drawn_staleness_steps_before(walk, staleness):
    drawn_at = {}
    for step, (_, collected, after) in enumerate(walk(staleness)):
        problems, rollouts, difficulty = collected
        assert problems == f"problems of {step}"
        assert rollouts == f"rollouts of {step}"
        assert difficulty == f"known at {step}"  # when it is trained on
        for one in after:
            drawn_at.setdefault(one.step, one)
        last = min(step + staleness, STEPS - 1)
        assert [one.step for one in after] == list(range(step + 1, last + 1))
    for step, one in drawn_at.items():
        made = max(0, step - staleness)
        assert one.version == 10 * made
        assert one.difficulty == f"known at {made}"
        # Earlier batches whose outcomes are not known yet.
        assert one.behind == list(range(made, step))


@pytest.mark.parametrize("own_devices", [False, True])
def test_only_a_sampler_on_separate_devices_is_not_waited_for(walk, own_devices):
    ahead = [one for _, _, after in walk(2, own_devices=own_devices) for one in after]
    assert ahead
    assert {one.waited for one in ahead} == {not own_devices}
