"""Whole runs of episodes: the input of an update, and a run that is cut."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest

from job_jax.config import CheckpointConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    DifficultyConfig,
    DynamicSamplingConfig,
    LossConfig,
    OptimizerConfig,
    ProbeConfig,
    RFGOConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.uniform import Uniform
from rlvr_jax.environments import Calculator
from rlvr_jax.main import main
from rlvr_jax.tasks import WordProblemsTask
from tests.integration.test_trace import CONFIG
from tests.support.command import completions, metrics, summary
from tests.support.tracing import traced

P, G, STEPS, T = 8, 2, 2, 24
TASK = WordProblemsTask(
    largest=20,
    sft_steps=(1,),
    train_steps=(1,),
    eval_steps=(1,),
    operations=("+",),
    tool_fraction=1.0,
)


def _config(**train):
    sampling = SamplingConfig(max_new_tokens=T)
    return dataclasses.replace(
        CONFIG,
        task=TASK,
        environment=Calculator(max_turns=3, largest_result=20),
        sft=SFTConfig(
            steps=60,
            batch_size=16,
            optimizer=OptimizerConfig(learning_rate=0.02, warmup_steps=0),
        ),
        difficulty=DifficultyConfig(),
        curriculum=Uniform(),
        dynamic_sampling=DynamicSamplingConfig(),
        probe=ProbeConfig(),
        train=TrainConfig(
            steps=STEPS,
            batch_size=P,
            group_size=G,
            num_epochs=2,
            old_logprobs="trainer",
            optimizer=OptimizerConfig(learning_rate=3e-3, warmup_steps=0),
            loss=LossConfig(kl_coef=0.1),
            rfgo=RFGOConfig(),
            sampling=sampling,
            **train,
        ),
        eval=dataclasses.replace(CONFIG.eval, every=0, sampling=sampling),
        checkpoint=CheckpointConfig(every=1, max_to_keep=5),
    )


def _run(folder, *args):
    record = folder / "config.json"
    record.write_text(json.dumps({"config": to_json(_config())}))
    with traced() as trace:
        args = [f"--config={record}", f"--workdir={folder / 'run'}", *args]
        assert main(args) == 0
    return trace


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Returns the workdir and the trace of a whole run."""
    folder = tmp_path_factory.mktemp("episodes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("signal.signal", lambda *args: None)
        trace = _run(folder)
    return folder / "run", trace


def test_the_warm_start_fits_the_policys_turns_in_worked_episodes(whole):
    _, trace = whole
    first = trace.of("step")[0]
    tokenizer = trace.setup.tokenizer
    (batch,) = first.batches
    for row in range(len(batch.lengths)):
        tokens = batch.tokens[row, : batch.lengths[row]].tolist()
        weighed = batch.loss_weights[row, : batch.lengths[row]] > 0
        text = [tokenizer.decode([token]) or "<eos>" for token in tokens]
        begin, end = text.index("<result>"), text.index("</result>")
        assert weighed.tolist() == [not begin <= at <= end for at in range(len(tokens))]
        assert text[begin - 1] == text[-1] == "<eos>"


def test_an_update_learns_only_from_the_policys_tokens(whole):
    _, trace = whole
    steps = [e for e in trace.of("step") if e.batches[0].policy_mask is not None]
    updates = [e for e in steps if e.batches[0].advantages.any()]
    assert updates
    outside = 0
    for event in updates:
        for batch in event.batches:
            inside = np.arange(batch.tokens.shape[1]) < batch.lengths[:, None]
            own = inside & batch.policy_mask
            np.testing.assert_array_equal(batch.loss_weights > 0, own)
            assert float(batch.loss_weights.sum()) <= 1 + 1e-5
            outside += int((inside & ~own).sum())
        assert float(event.losses.tokens) == sum(
            int(
                (
                    b.policy_mask & (np.arange(b.tokens.shape[1]) < b.lengths[:, None])
                ).sum()
            )
            for b in event.batches
        )
    assert outside > 0


def test_sampler_and_trainer_agree_on_episodes(whole):
    workdir, _ = whole
    rows = [row for row in metrics(workdir) if row["stage"] == "train"]
    assert len(rows) == STEPS
    for row in rows:
        assert row["logprob_mismatch/max"] < 1e-4
        assert row["environment/turns"] > 1
        assert row["environment/tool_calls"] > 0
        assert row["environment/tokens"] > 0
        assert row["environment/failures"] == 0


def test_every_stage_goes_by_episodes(whole):
    workdir, _ = whole
    for name in ("train_000000", "eval_before_000000", "eval_after_000000"):
        lines = completions(workdir, f"{name}.jsonl.gz")
        said = [message for line in lines for message in line["messages"]]
        results = [m["text"] for m in said if m["role"] == "environment"]
        assert results
        assert all(text.startswith("<result>") for text in results)
        assert not any("<result>" in line["completion"] for line in lines)


@pytest.mark.usefixtures("restored_signals")
def test_a_run_that_is_cut_goes_on_bit_for_bit(whole, tmp_path):
    workdir, trace = whole
    again = tmp_path / "run"
    shutil.copytree(workdir, again)
    shutil.rmtree(again / "checkpoints" / "train" / str(STEPS))
    told = summary(again)
    del told["eval"], told["stages"]["train"], told["stages"]["eval"]
    (again / "summary.json").write_text(json.dumps(told))
    resumed = _run(tmp_path)
    assert len(resumed.stage("train")) == 1
    assert metrics(again) == metrics(workdir)
    assert summary(again)["params_sha256"] == summary(workdir)["params_sha256"]
    name = f"train_{STEPS - 1:06}.jsonl.gz"
    assert completions(again, name) == completions(workdir, name)
    old = [event for event in trace.stage("train")[-1] if event.name == "step"]
    new = [event for event in resumed.stage("train")[-1] if event.name == "step"]
    assert len(old) == len(new) == 2
    for one, other in zip(old, new, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one.batches, other.batches)
