"""Every field of the config is read by the program: none does nothing.

Two whole runs in this process, one of generated problems and one of files, under
settings that make the optional paths live; a data set of the hub is opened alone. What
is read is recorded; a field that nothing reads is a knob that turns nothing.
"""

import dataclasses
import json
from pathlib import Path
from typing import get_args

import datasets
import pytest
from checkpoints import word_config, write_checkpoint
from recording import knobs, record_reads

from job_jax.config import CheckpointConfig, MeshConfig
from job_jax.config_io import to_json
from rlvr_jax.config import (
    AdvantageConfig,
    ChainMix,
    Config,
    CurriculumConfig,
    DictionaryConfig,
    DifficultyConfig,
    EvalConfig,
    FeatureSetConfig,
    FilesConfig,
    FiniteFieldConfig,
    HubConfig,
    LogConfig,
    LoRAConfig,
    LossConfig,
    ModelConfig,
    OptimizerConfig,
    ProbeConfig,
    RecordConfig,
    RFGOConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
    WarmupConfig,
)
from rlvr_jax.data import Pool
from rlvr_jax.given import check_asked
from rlvr_jax.main import main
from rlvr_jax.run import open_run
from rlvr_jax.tasks import problem_source
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig

SAMPLING = SamplingConfig(max_new_tokens=24)
OPTIMIZER = OptimizerConfig(schedule="cosine")
DIFFICULTY = DifficultyConfig(samples=2, pool=8)
PROBE = ProbeConfig(
    source="stage",
    problems=8,
    fixed=8,
    log_every=1,
    dictionary=DictionaryConfig(
        sae=SAEConfig(latents=32, k=4),
        optimizer=SAEOptimizerConfig(warmup_steps=1),
        train=SAETrainConfig(steps=4, seeds=2, threshold_start=1),
        batch_size=32,
    ),
    features=FeatureSetConfig(
        method="reason_score", words=("answer",), min_stability=0.0
    ),
)
RFGO = RFGOConfig(lambda_w=0.5, lambda_p=0.1, correlation_steps=1)


MODEL = ModelConfig(layers=1, width=16, mlp_width=16, heads=1, kv_heads=1, head_width=8)


def config(task, model=MODEL, lora=None, **sections):
    return Config(
        task=task,
        model=model,
        mesh=MeshConfig(cpu_devices=8),
        warmup=WarmupConfig(steps=1, batch_size=8, optimizer=OPTIMIZER),
        difficulty=DIFFICULTY,
        curriculum=CurriculumConfig(name="bucket", refill_rounds=1),
        train=TrainConfig(
            steps=1,
            prompts_per_step=8,
            samples_per_prompt=2,
            optimizer=OPTIMIZER,
            advantage=AdvantageConfig(guard="cap"),
            old_logprobs="scorer",
            loss=LossConfig(kl_coef=0.1, entropy_coef=0.01, entropy_top=0.5),
            lora=lora or LoRAConfig(),
            rfgo=RFGO,
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
        **{"probe": PROBE} | sections,
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
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "hub").mkdir()
    pack = tmp_path / "pack.json"
    pack.write_text('{"features": [{"feature_id": 1, "weight": -1}]}')
    mix = ChainMix(steps=(1, 2))
    configs = {
        "chains": config(
            FiniteFieldConfig(modulus=5, warmup=mix, train=mix, eval=mix),
        ),
        "words": config(
            FilesConfig(
                train_path=word_problems,
                eval_path=word_problems,
                record=RecordConfig(
                    chat_template="{% for m in messages %}{{ m.content }} {% endfor %}",
                    system_prompt="Add.",
                ),
            ),
            model=dataclasses.replace(
                MODEL,
                layer_kinds=("sliding",),
                window=8,
                rope_scaling="llama3",
                rope_factor=2.0,
            ),
            lora=LoRAConfig(rank=1, modules=("q_proj",)),
            tokenizer=TokenizerConfig(kind="sentencepiece", vocab_size=290),
            probe=dataclasses.replace(
                PROBE, features=FeatureSetConfig(method="pack", pack=str(pack))
            ),
        ),
    }
    silent = set()
    with record_reads() as reads:
        for name, each in configs.items():
            record = tmp_path / f"{name}.json"
            record.write_text(json.dumps({"config": to_json(each)}))
            code = main([f"--config={record}", f"--workdir={tmp_path / name}"])
            assert code == 0, capsys.readouterr().err
        hub = HubConfig(path=str(tmp_path / "hub"))
        for stage, split in (("train", "train"), ("eval", "test")):
            rows = datasets.Dataset.from_list([{"question": "1?", "answer": "#### 1"}])
            rows.to_parquet(tmp_path / "hub" / f"{split}.parquet")
            source = problem_source(hub, stage, seed=0)
        # An autoencoder that exists, and latents named by hand.
        named = FeatureSetConfig(method="list", latents=(1,))
        there = ProbeConfig(
            source="path", path=str(tmp_path / "chains" / "sae"), features=named
        )
        check_asked(
            dataclasses.replace(configs["chains"], probe=there), tokenize=str.split
        )
        # A checkpoint to start from, and the tokenizer in its directory.
        start = write_checkpoint(tmp_path / "hf")
        pretrained = word_config(start, Path(word_problems))
        with open_run(pretrained, tmp_path / "unused", stages=("train",)).judge:
            pass
        # A curriculum reads its own fields and refuses the others'.
        for name in get_args(CurriculumConfig.__annotations__["name"]):
            chosen = CurriculumConfig(name=name)
            pool = Pool(source, Config(difficulty=DIFFICULTY, curriculum=chosen))
            pool.serve(pool.fresh(), 0, 1)
    for each in (*configs.values(), hub):
        silent |= knobs(each) - reads
    assert silent == {
        # Their own sections hand these on.
        ("DictionaryConfig", "hold_out"),
        ("SAEConfig", "groups"),
    }
