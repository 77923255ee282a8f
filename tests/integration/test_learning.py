"""RL moves the policy towards the texts that are called correct."""

import dataclasses
import json
import zlib

import pytest

from job_jax.config_io import to_json
from rlvr_jax.config import (
    DifficultyConfig,
    DynamicSamplingConfig,
    OptimizerConfig,
    ProbeConfig,
    SamplingConfig,
    SFTConfig,
    TrainConfig,
)
from rlvr_jax.data.curricula.uniform import Uniform
from rlvr_jax.main import main
from rlvr_jax.types import Verdict
from tests.integration.test_trace import CONFIG
from tests.support.command import metrics
from tests.support.tracing import traced

STEPS = 8


def _even(text):
    """Returns whether the first word is in one half of the vocabulary."""
    return zlib.crc32((text.split() or [""])[0].encode()) % 2 == 0


def _shares(folder, *, inverted, **train):
    """Returns the share of completions with an even first word, step by step."""
    config = dataclasses.replace(
        CONFIG,
        sft=SFTConfig(steps=0),
        difficulty=DifficultyConfig(),
        curriculum=Uniform(),
        dynamic_sampling=DynamicSamplingConfig(),
        probe=ProbeConfig(),
        train=TrainConfig(
            steps=STEPS,
            batch_size=8,
            group_size=8,
            optimizer=OptimizerConfig(learning_rate=0.03, warmup_steps=0),
            sampling=SamplingConfig(max_new_tokens=4),
            **train,
        ),
        eval=dataclasses.replace(CONFIG.eval, every=0),
    )
    record = folder / "config.json"
    record.write_text(json.dumps({"config": to_json(config)}))

    def judge(problem, text):
        right = _even(text) != inverted
        return Verdict(status="correct" if right else "incorrect", answer=text)

    args = [f"--config={record}", f"--workdir={folder / 'run'}", "--stage=train"]
    with traced(judge):
        assert main(args) == 0
    rows = [row for row in metrics(folder / "run") if row["stage"] == "train"]
    name = "verdict/incorrect" if inverted else "verdict/correct"
    return [row[name] for row in rows]


@pytest.mark.usefixtures("restored_signals")
@pytest.mark.parametrize("inverted", [False, True])
def test_the_policy_does_more_of_what_is_called_correct(tmp_path, inverted):
    first, *_, last = _shares(tmp_path, inverted=inverted)
    assert 0.2 < first < 0.8
    assert (first - last if inverted else last - first) > 0.2
