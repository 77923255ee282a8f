"""What a run's seed decides: each part changes with the seed, independently."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest

from rlvr_jax.data import Loader
from rlvr_jax.learn.batches import batch_from_solutions
from rlvr_jax.learn.run_updates import _cut_minibatches
from rlvr_jax.metrics.bootstrap import mean_interval
from rlvr_jax.run.setup import PROBLEM_STAGES, open_setup
from rlvr_jax.tasks import ArithmeticTask, ChainMix, FiniteFieldTask, WordProblemsTask
from rlvr_jax.types import Prompts
from rlvr_jax.verifiers.controls import coin_flip
from tests.support.policies import TINY_RUN

STREAMS = ("train", "eval", "difficulty", "probe", "arm", "lora", "noise", "prefixes")
MIX = ChainMix(chain_lengths=(2, 3))
TASKS = (
    FiniteFieldTask(modulus=7, sft=MIX, train=MIX, eval=MIX),
    ArithmeticTask(),
    WordProblemsTask(),
)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return open_setup(TINY_RUN, folder / "none", stages=("train",))


def _with_seed(setup, seed):
    return dataclasses.replace(
        setup, config=dataclasses.replace(setup.config, seed=seed)
    )


def _key(setup, stream):
    return tuple(jax.random.key_data(setup.stream_key(stream)).tolist())


def _weights(setup):
    with jax.set_mesh(setup.mesh):
        return np.concatenate(
            [np.ravel(x) for x in jax.tree.leaves(setup.initial_params())]
        ).tolist()


def _sft_order(setup):
    loader = Loader(setup.sources["train"], batch_size=8, seed=setup.config.seed)
    return [problem.id for problem in loader.next_batch(0)]


def _coins(setup):
    return [coin_flip(setup.config.seed, str(n), n % 4) for n in range(64)]


def _minibatches(setup, version=0, epoch=0):
    """Returns the order in which eight groups come in four minibatches."""
    prompts = Prompts(
        tokens=np.arange(8, dtype=np.int32)[:, None],
        lengths=np.ones(8, np.int32),
        uid=np.arange(8, dtype=np.uint32),
    )
    batch = batch_from_solutions(
        prompts, np.ones((8, 2), np.int32), np.ones(8, np.int32)
    )
    parts = _cut_minibatches(batch, 4, seed=(setup.config.seed, version, epoch))
    return [n for part in parts for n in part.prompt_tokens[:, 0].tolist()]


def _resamples(setup):
    values = np.random.default_rng(0).random(40)
    return mean_interval(
        values, bounds=(0.0, 1.0), resamples=50, seed=setup.config.seed
    )


DECIDED = {
    "initial weights": _weights,
    "order of SFT": _sft_order,
    "coins": _coins,
    "order of minibatches": _minibatches,
    "resamples": _resamples,
    **{
        f"key of {name}": lambda setup, name=name: _key(setup, name) for name in STREAMS
    },
}


@pytest.mark.parametrize("name", DECIDED)
def test_one_seed_decides_it_and_another_decides_otherwise(opened, name):
    first, again, other = (
        DECIDED[name](_with_seed(opened, seed)) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_no_two_purposes_share_a_key_at_any_seed(opened):
    keys = [
        _key(_with_seed(opened, seed), stream)
        for seed in range(8)
        for stream in STREAMS
    ]
    assert len(set(keys)) == len(keys)


def test_epochs_and_versions_shuffle_differently(opened):
    orders = {
        tuple(_minibatches(opened, version, epoch))
        for version in range(3)
        for epoch in range(2)
    }
    assert len(orders) == 6
    assert all(sorted(order) == list(range(8)) for order in orders)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_seeds_change_train_problems_but_not_eval_problems(task):
    def first(stage, seed):
        source = task.problems(stage, seed=seed)
        return [source[i].prompt for i in range(32)]

    for stage in PROBLEM_STAGES:
        assert first(stage, 3) == first(stage, 3)
        assert (first(stage, 3) == first(stage, 4)) == (stage == "eval")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_held_out_problems_are_in_no_seeds_training(task):
    """Compares sets of question texts, over several seeds and both stages."""

    def prompts(stage, seed, count=400):
        source = task.problems(stage, seed=seed)
        return {source[i].prompt for i in range(min(count, len(source)))}

    held_out = prompts("eval", 3)
    assert len(held_out) > 20
    for stage, seed in itertools.product(("sft", "train"), (0, 3, 4)):
        assert not held_out & prompts(stage, seed)
