"""Drawing a batch ahead: its inputs, and how a checkpoint keeps it."""

import dataclasses
import json
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlvr_jax.models.distribution import SamplingParams
from rlvr_jax.rollouts import draw
from rlvr_jax.rollouts.request import SampleRequest, draw_rollouts
from rlvr_jax.types import Prompts, Rollouts


@dataclasses.dataclass(frozen=True)
class Known:
    num_batches: int


class PoolStandIn:
    """Stands in for a pool: returns its arguments, or the indices to read."""

    def next_batch(self, known, step, batch_size, *, asked):
        asked_for = (known.num_batches, step, batch_size, asked)
        return types.SimpleNamespace(problems=asked_for)

    def read(self, indices):
        return indices


@pytest.fixture
def request_of(monkeypatch):
    """Returns a function from pending batches to the request that the sampler gets."""
    monkeypatch.setattr(draw, "start_sampling", lambda setup, request: request)
    monkeypatch.setattr(draw, "await_on_cpu", lambda rollouts: rollouts)
    monkeypatch.setattr(draw, "InFlight", lambda rollouts: None)
    train = types.SimpleNamespace(sampling="sampling", group_size=4, batch_size=2)
    setup = types.SimpleNamespace(config=types.SimpleNamespace(train=train))

    def ask(*pending):
        return draw.draw_batch(
            setup,
            "weights",
            PoolStandIn(),
            Known(num_batches=7),
            step=9,
            pending=[
                types.SimpleNamespace(problems=types.SimpleNamespace(problem_index=p))
                for p in pending
            ],
            weight_version=30,
            batch_key=lambda number: ("key of", int(number)),
        ).rollouts

    return ask


def test_a_batch_comes_after_those_that_are_pending(request_of):
    """Its number and key count pending batches, and it avoids their problems."""
    assert request_of().problems == (7, 9, 2, [])
    assert request_of().key == ("key of", 7)
    ahead = request_of([3, 5], [1, 6])
    assert ahead.problems == (9, 9, 2, [3, 5, 1, 6])
    assert ahead.key == ("key of", 9)


def test_a_batch_is_drawn_with_the_weights_that_it_names(request_of):
    request = request_of([3, 5])
    assert (request.weights, int(request.weight_version)) == ("weights", 30)
    assert (request.sampling, request.num_samples) == ("sampling", 4)


@pytest.mark.parametrize("version", [np.int32(3), jnp.int32(3)])
def test_versions_of_any_kind_reach_the_sampler_in_one_layout(monkeypatch, version):
    """Another layout of this one number would compile the sampler once more."""
    monkeypatch.setattr(SamplingParams, "from_config", lambda config: config)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    setup = types.SimpleNamespace(
        shard_batch=lambda prompts: prompts,
        replicate=lambda x: jax.device_put(x, everywhere),
        sample=lambda *args, weight_version, **others: weight_version,
    )
    request = SampleRequest(
        problems=[],
        weights=None,
        sampling=1.0,
        num_samples=1,
        key=None,
        weight_version=version,
    )
    given = draw_rollouts(setup, request, None, num_samples=1, max_new_tokens=1)
    assert (int(given), getattr(given, "sharding", None)) == (3, everywhere)


def test_a_batch_comes_back_from_a_checkpoint_as_it_was():
    rollouts = Rollouts(
        prompts=Prompts(
            tokens=np.array([[5, 6, 0]], np.int32),
            lengths=np.array([2], np.int32),
            uid=np.array([11], np.uint32),
        ),
        tokens=np.array([[1, 2], [3, 0]], np.int32),
        lengths=np.array([2, 1], np.int32),
        logprobs=np.array([[-0.1, -0.2], [-0.3, 0.0]], np.float32),
        finished=np.array([False, True]),
        weight_version=np.int32(30),
    )
    problems = types.SimpleNamespace(source_index=np.array([4]), num_fallback=1)
    saved = draw.DrawnBatch(problems=problems, rollouts=rollouts).to_json()
    back = draw.DrawnBatch.from_json(PoolStandIn(), json.loads(json.dumps(saved)))
    assert back.problems.problems.tolist() == [4]
    assert back.problems.num_fallback == 1
    for whole, part in [
        (rollouts, back.rollouts),
        (rollouts.prompts, back.rollouts.prompts),
    ]:
        assert vars(part).keys() == vars(whole).keys()
        for name, value in vars(whole).items():
            if isinstance(value, np.ndarray | np.generic):
                np.testing.assert_array_equal(getattr(part, name), value)
            elif name != "prompts":
                assert getattr(part, name) is value is None
