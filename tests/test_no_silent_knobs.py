"""Every field of the config is read by the program: none does nothing.

Two whole runs in this process, one of generated problems and one of JSON lines, under
settings that make the optional paths live. What is read is recorded; a field that
neither run reads is a knob that turns nothing.
"""

import json

import pytest
from recording import knobs, record_reads

from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    ChainMix,
    Config,
    EvalConfig,
    FiniteFieldConfig,
    JsonLinesConfig,
    LogConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
    WarmupConfig,
)
from rlvr_jax.main import main

SAMPLING = SamplingConfig(max_new_tokens=24)
OPTIMIZER = OptimizerConfig(schedule="cosine")


def config(task, **sections):
    return Config(
        task=task,
        model=ModelConfig(
            layers=1, width=16, mlp_width=16, heads=1, kv_heads=1, head_width=8
        ),
        mesh=MeshConfig(cpu_devices=8),
        warmup=WarmupConfig(steps=1, batch_size=8, optimizer=OPTIMIZER),
        train=TrainConfig(
            steps=1,
            prompts_per_step=8,
            samples_per_prompt=2,
            optimizer=OPTIMIZER,
            loss=LossConfig(kl_coef=0.1, entropy_coef=0.01),
            sampling=SAMPLING,
        ),
        eval=EvalConfig(
            problems=8,
            samples_per_problem=2,
            k=(1, 2),
            batch_size=8,
            bootstrap=20,
            sampling=SAMPLING,
        ),
        checkpoint=CheckpointConfig(every=1),
        log=LogConfig(rollouts_every=1),
        prompt_bucket=32,
        completion_bucket=24,
        **sections,
    )


@pytest.fixture
def word_problems(tmp_path):
    path = tmp_path / "words.jsonl"
    questions = [(a, b) for a in range(4) for b in range(4)]
    records = [
        {"question": f"{a}+{b}?", "answer": f"{a}\n#### {a + b}"} for a, b in questions
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    return str(path)


@pytest.mark.usefixtures("restored_signals")
def test_every_field_of_the_config_is_read(
    tmp_path, monkeypatch, word_problems, capsys
):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    mix = ChainMix(steps=(1, 2))
    configs = {
        "chains": config(
            FiniteFieldConfig(modulus=5, warmup=mix, train=mix, eval=mix),
        ),
        "words": config(
            JsonLinesConfig(train_path=word_problems, eval_path=word_problems),
            tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=290),
        ),
    }
    silent = set()
    with record_reads() as reads:
        for name, each in configs.items():
            record = tmp_path / f"{name}.json"
            record.write_text(json.dumps({"config": to_json(each)}))
            code = main([f"--config={record}", f"--workdir={tmp_path / name}"])
            assert code == 0, capsys.readouterr().err
    for each in configs.values():
        silent |= knobs(each) - reads
    # The report's headline: the report reads config.json, not the config.
    assert silent == {("Config", "name")}
