"""Runs with rollouts several steps old: weights, problems, cuts anywhere."""

import dataclasses
import functools
import json
import shutil

import jax
import numpy as np
import pytest

from job_jax.checkpoint import StageCheckpoints, params_sha256
from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    SamplerConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.target import TargetPassRate
from rlvr_jax.main import main
from rlvr_jax.tasks import ChainMix, FiniteFieldTask
from tests.support.command import completions, metrics, summary
from tests.support.tracing import traced

SFT, STEPS, P, G, POOL, T = 2, 5, 8, 4, 32, 16
MIX = ChainMix(chain_lengths=(1,))
SAMPLING = SamplingConfig(max_new_tokens=T)
CONFIG = Config(
    name="stale",
    task=FiniteFieldTask(modulus=5, sft=MIX, train=MIX, eval=MIX),
    model=ModelConfig(
        num_layers=1,
        hidden_size=16,
        intermediate_size=16,
        num_heads=1,
        num_kv_heads=1,
        head_dim=8,
    ),
    mesh=MeshConfig(cpu_devices=8),
    sft=SFTConfig(steps=SFT, batch_size=8),
    difficulty=DifficultyConfig(num_samples=2, pool_size=POOL),
    curriculum=TargetPassRate(uniform_fraction=0.0),
    train=TrainConfig(
        steps=STEPS,
        batch_size=P,
        group_size=G,
        overlong_buffer=T,
        optimizer=OptimizerConfig(learning_rate=1e-2, warmup_steps=0),
        loss=LossConfig(tis_cap=2.0),
        sampling=SAMPLING,
    ),
    eval=EvalConfig(
        num_problems=8,
        num_samples=2,
        k=(1, 2),
        batch_size=8,
        bootstrap_resamples=20,
        sampling=SAMPLING,
    ),
    checkpoint=CheckpointConfig(every=1, max_to_keep=10),
    log=LogConfig(rollouts_every=1),
    prompt_pad_multiple=32,
    completion_pad_multiple=T,
)


def _config(staleness, devices=0):
    sampler = SamplerConfig(devices=devices, tensor_parallel=1 if devices else 0)
    train = dataclasses.replace(CONFIG.train, staleness=staleness)
    return dataclasses.replace(CONFIG, train=train, sampler=sampler)


def _done(workdir, config):
    record = workdir.parent / "config.json"
    record.write_text(json.dumps({"config": to_json(config)}))
    with traced() as trace:
        assert main([f"--config={record}", f"--workdir={workdir}"]) == 0
    return workdir, trace


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Returns the workdir and the trace of an uncut run."""

    @functools.cache
    def run(staleness, devices=0):
        folder = tmp_path_factory.mktemp("stale")
        return _done(folder / "run", _config(staleness, devices))

    return run


def _params(workdir, trace, step):
    """Returns the parameters that a step of RL begins with."""
    stage, number = ("train", step) if step else ("sft", SFT)
    with (
        jax.set_mesh(trace.setup.mesh),
        StageCheckpoints(workdir / "checkpoints" / stage) as checkpoints,
    ):
        return checkpoints.restore_params(number, trace.setup.abstract_params())


def _by_step(trace, name):
    """Returns the training events with a name, by step."""
    first = {"ask": 0, "sample": POOL // 8, "judge": POOL // 8, "step": SFT}[name]
    return trace.of(name)[first : first + STEPS]


@pytest.mark.parametrize("staleness", [1, 2])
def test_a_step_learns_from_rollouts_of_the_weights_of_so_many_steps_before(
    done, staleness
):
    workdir, trace = done(staleness)
    digests = [params_sha256(_params(workdir, trace, n)) for n in range(STEPS + 1)]
    assert len(set(digests)) == STEPS + 1
    sampled, stepped = _by_step(trace, "sample"), _by_step(trace, "step")
    assert len({event.key for event in sampled}) == STEPS
    lines = [row for row in metrics(workdir) if row["stage"] == "train"]
    for step in range(STEPS):
        origin = max(0, step - staleness)
        assert (sampled[step].version, sampled[step].params) == (
            origin,
            digests[origin],
        )
        assert stepped[step].params == digests[step]
        (batch,), rollouts = stepped[step].batches, sampled[step].rollouts
        np.testing.assert_array_equal(batch.tokens, rollouts.tokens)
        np.testing.assert_array_equal(batch.old_logprobs, rollouts.logprobs)
        rows = completions(workdir, f"train_{step:06}.jsonl.gz")
        assert {row["weight_version"] for row in rows} == {origin}
        assert lines[step]["staleness/versions_behind"] == step - origin
        change = lines[step].get("staleness/logprob_change/mean", 0.0)
        assert (change > 1e-4) == (step > 0)
        assert ("logprob_mismatch/mean" in lines[step]) == (step == 0)
    assert summary(workdir)["logprob_mismatch"]["max"] < 1e-4


@pytest.mark.parametrize("staleness", [1, 2])
def test_problems_are_chosen_by_outcomes_so_old_and_not_asked_again_meanwhile(
    done, staleness
):
    _, trace = done(staleness)
    asked, judged = _by_step(trace, "ask"), _by_step(trace, "judge")
    before = 2 * POOL  # completions before RL; unverified ones do not count
    for event in trace.of("judge")[: POOL // 8]:
        before -= sum(v.status == "unverified" for v in event.verdicts)
    graded = [sum(v.status != "unverified" for v in e.verdicts) for e in judged]
    problems = [{p.id for p, _ in event.pairs} for event in judged]
    for step in range(STEPS):
        assert (asked[step].step, asked[step].round) == (step, step)
        known = asked[step].difficulty.attempts.sum()
        assert known == before + sum(graded[: max(0, step - staleness)])
        for other in range(max(0, step - staleness), step):
            assert not problems[step] & problems[other]


@pytest.mark.parametrize(("staleness", "cut"), [(1, 1), (1, 3), (2, 1), (2, 2), (2, 4)])
def test_a_run_that_is_cut_goes_on_bit_for_bit(done, tmp_path, staleness, cut):
    workdir, trace = done(staleness)
    again = tmp_path / "run"
    shutil.copytree(workdir, again)
    for step in range(cut + 1, STEPS + 1):
        shutil.rmtree(again / "checkpoints" / "train" / str(step))
    told = summary(again)
    del told["eval"], told["stages"]["train"], told["stages"]["eval"]
    (again / "summary.json").write_text(json.dumps(told))
    _, resumed = _done(again, _config(staleness))
    assert metrics(again) == metrics(workdir)
    assert summary(again)["params_sha256"] == summary(workdir)["params_sha256"]
    for step in range(cut, STEPS):
        name = f"train_{step:06}.jsonl.gz"
        assert completions(again, name) == completions(workdir, name)
    # Draws before the cut are not repeated.
    drawn = [e.version for e in resumed.of("sample") if e.group_size == G]
    assert drawn == [*range(cut, STEPS - staleness)]
    whole = _by_step(trace, "step")[cut:]
    for one, other in zip(whole, resumed.of("step"), strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.batches, other.batches)


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_sampler_with_devices_of_its_own_draws_and_teaches_the_same(done, staleness):
    """Four devices sample and four learn; the reference has eight that take turns."""
    shared, trace = done(staleness)
    split, split_trace = done(staleness, 4)
    setup = split_trace.setup
    devices = jax.devices()
    assert set(setup.mesh.devices.flat) == set(devices[:4])
    assert set(setup.sampler_layout.mesh.devices.flat) == set(devices[4:])
    for one, other in zip(
        _by_step(trace, "sample"), _by_step(split_trace, "sample"), strict=True
    ):
        assert one.version == other.version
        np.testing.assert_array_equal(one.rollouts.tokens, other.rollouts.tokens)
        np.testing.assert_allclose(
            one.rollouts.logprobs, other.rollouts.logprobs, atol=1e-4, rtol=0
        )
    ours, theirs = (
        jax.device_get(_params(workdir, each, STEPS))
        for workdir, each in ((split, split_trace), (shared, trace))
    )
    start = jax.device_get(_params(shared, trace, 0))
    for x, y, z in zip(*map(jax.tree.leaves, (ours, theirs, start)), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-4, rtol=0)
        assert np.abs(y - z).max() > 1e-2  # they have learned something
    lines = [row for row in metrics(split) if row["stage"] == "train"]
    assert all(row["reshard/bytes"] > 0 for row in lines)


def test_steps_in_order_learn_from_their_own_weights(done):
    """Staleness 0: the last step's rollouts come from its own weights, unlike above."""
    workdir, trace = done(0)
    assert [e.version for e in _by_step(trace, "sample")] == [*range(STEPS)]
    assert not any("staleness/versions_behind" in row for row in metrics(workdir))
