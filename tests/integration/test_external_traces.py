"""Runs with external traces: their effect, unchanged metrics, refusals.

The policy is untrained, so nearly all of its completions are wrong. It can learn only
from the traces.
"""

import dataclasses
import json

import numpy as np
import pytest

from job_jax.config import CheckpointConfig
from job_jax.config_io import to_json
from job_jax.schema import ConfigError
from rlvr_jax.config import (
    DifficultyConfig,
    DynamicSamplingConfig,
    LossConfig,
    OptimizerConfig,
    ProbeConfig,
    RewardConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.uniform import Uniform
from rlvr_jax.main import main
from rlvr_jax.rollouts.external import external_metrics, read_traces
from rlvr_jax.run.setup import open_setup
from rlvr_jax.tasks import FiniteFieldTask
from rlvr_jax.types import ExternalTraces, Verdict
from tests.integration.test_trace import CONFIG
from tests.support.command import completions, metrics
from tests.support.tracing import traced

P, G, STEPS = 8, 4, 5


def _config(external="rl_plus", max_new_tokens=24, **train):
    return dataclasses.replace(
        CONFIG,
        sft=SFTConfig(steps=0),
        difficulty=DifficultyConfig(),
        curriculum=Uniform(),
        dynamic_sampling=DynamicSamplingConfig(),
        probe=ProbeConfig(),
        train=TrainConfig(
            batch_size=P,
            group_size=G,
            optimizer=OptimizerConfig(learning_rate=0.03, warmup_steps=0),
            loss=LossConfig(external_traces=external),
            sampling=SamplingConfig(max_new_tokens=max_new_tokens),
            **{"steps": STEPS} | train,
        ),
        eval=dataclasses.replace(CONFIG.eval, every=0),
        checkpoint=CheckpointConfig(every=STEPS),
    )


def _train(folder, config, judge):
    record = folder / "config.json"
    record.write_text(json.dumps({"config": to_json(config)}))
    args = [f"--config={record}", f"--workdir={folder / 'run'}", "--stage=train"]
    with traced(judge):
        assert main(args) == 0
    return [row for row in metrics(folder / "run") if row["stage"] == "train"]


def _right_as_written(problem, text):
    """Accepts only the exact worked solution."""
    right = text == problem.solution
    return Verdict(status="correct" if right else "incorrect", answer=text)


@pytest.mark.usefixtures("restored_signals")
def test_the_policy_learns_to_write_what_it_never_wrote(tmp_path):
    """Two optimizer steps a batch; no completion is right, so only traces teach."""
    config = _config(num_epochs=2, old_logprobs="trainer")
    rows = _train(tmp_path, config, _right_as_written)
    assert all(row["verdict/correct"] == 0 for row in rows)
    assert all(row["external/rows"] == 1 for row in rows)
    assert all(row["external/advantage_mass"] == 1 for row in rows)
    found = [row["external/logprob"] for row in rows]
    # From chance to the words that all solutions share.
    assert -6.0 < found[0] < -4.0
    assert found[-1] - found[0] > 0.5
    # The sampler never saw the traces: only completions are compared with it.
    assert max(row["logprob_mismatch/mean"] for row in rows) < 1e-4
    lines = completions(tmp_path / "run", "train_000000.jsonl.gz")
    assert len(lines) == P * G


@pytest.mark.usefixtures("restored_signals")
def test_the_first_batch_is_rewarded_and_told_as_it_is_without_traces(tmp_path):
    """Half of all texts are right, so completions and traces have advantages."""

    def judge(problem, text):
        right = text == problem.solution or len(text) % 2 == 0
        return Verdict(status="correct" if right else "incorrect", answer=text)

    first = {}
    for external in ("off", "rl_plus"):
        folder = tmp_path / external
        folder.mkdir()
        (first[external],) = _train(folder, _config(external, steps=1), judge)
    told = first["rl_plus"]
    assert 0 < told.pop("external/advantage_mass") < 1
    assert told.pop("external/rows") == 1
    assert told.pop("external/logprob") < 0
    moved = {name for name in told if told[name] != first["off"][name]}
    assert moved <= {
        *("loss/total", "optimizer/grad_norm", "params_sha256"),
        "update/padding",  # a trace's row has some
    }
    assert "loss/total" in moved
    assert told.keys() == first["off"].keys()


@pytest.fixture
def setup(tmp_path):
    return open_setup(_config(), tmp_path / "tokenizer.model")


def test_traces_end_as_completions_do_and_only_right_ones_that_fit_are_kept(setup):
    known = setup.problems("train", 4)
    problems = [
        *known,
        dataclasses.replace(known[0], gold=known[0].gold + "1"),
        dataclasses.replace(known[0], solution=None),
        dataclasses.replace(known[0], solution=" ".join(["e0"] * 24)),
    ]
    traces = read_traces(setup, problems)
    assert traces.tokens.shape == (7, 24)
    assert traces.raw_scores == {}
    for row, length, problem in zip(traces.tokens, traces.lengths, known, strict=False):
        assert row[length - 1] == setup.tokenizer.eos_id
        assert setup.tokenizer.decode(row[: length - 1]) == problem.solution
        assert not row[length:].any()
    assert traces.lengths[4:].tolist() == [0, 0, 0]
    assert not traces.tokens[4:].any()


def test_a_trace_is_scored_by_every_part_of_the_reward(setup):
    train = dataclasses.replace(
        setup.config.train,
        reward=RewardConfig(names=("correctness", "wrong_label"), weights=(1.0, 1.0)),
    )
    config = dataclasses.replace(setup.config, train=train)
    problem = setup.problems("train", 1)[0]
    traces = read_traces(
        dataclasses.replace(setup, config=config),
        [dataclasses.replace(problem, solution=None), problem],
    )
    np.testing.assert_array_equal(traces.raw_scores["wrong_label"], [np.nan, 0.0])


def test_the_shares_of_traces_are_of_groups_and_of_the_advantage_mass():
    traces = ExternalTraces(
        tokens=np.zeros((4, 2), np.int32),
        lengths=np.array([2, 0, 1, 0], np.int32),
        advantages=np.array([1.0, 0.0, -0.5, 0.0], np.float32),
    )
    own = np.array([[1, -1], [0, 0], [0.5, -2], [0, 0]], np.float32)
    assert external_metrics(traces, own) == {
        "external/rows": 0.5,
        "external/advantage_mass": 0.25,
    }
    silent = dataclasses.replace(traces, advantages=0 * traces.advantages)
    assert external_metrics(silent, 0 * own)["external/advantage_mass"] == 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unsolved(FiniteFieldTask):
    """The finite-field world without its worked solutions."""

    def problems(self, stage, *, seed):
        source = super().problems(stage, seed=seed)
        return [dataclasses.replace(source[i], solution=None) for i in range(8)]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": Unsolved(modulus=5)}, "none of 8 train problems has one"),
        ({"max_new_tokens": 4}, "of at most train.sampling.max_new_tokens=4 tokens"),
    ],
)
def test_a_run_without_a_trace_to_learn_from_is_refused(tmp_path, changed, message):
    task = changed.pop("task", CONFIG.task)
    config = dataclasses.replace(_config(**changed), task=task)
    with pytest.raises(ConfigError, match=message):
        open_setup(config, tmp_path / "m.model")
