"""A tiny Qwen2 checkpoint with a fast tokenizer, and word problems for it."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from rlvr_jax.config import (
    Config,
    EvalConfig,
    LogConfig,
    MeshConfig,
    ModelConfig,
    PretrainedConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.models import save_hf
from rlvr_jax.tasks import FilesTask, RecordConfig
from tests.support.policies import tiny_policy

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ROWS = 288  # of the embedding: more than the tokenizer has tokens
EOS = 269  # the first of SPECIAL
CHATML = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
MODEL = ModelConfig(
    family="qwen2",
    num_layers=1,
    hidden_size=16,
    intermediate_size=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    qkv_bias=True,
    max_seq_len=128,
)
RECORDS = [
    {"question": f"What is {a} plus {b}?", "answer": f"{a}+{b}={a + b}\n#### {a + b}"}
    for a in range(4)
    for b in range(4)
]


def write_tokenizer(directory: Path, **settings: object) -> Path:
    """Returns the directory after writing byte-level pieces like Qwen's to it.

    Three special tokens follow 256 bytes and a few pieces. A setting of None is left
    out.
    """
    directory.mkdir(parents=True, exist_ok=True)
    found = tokenizers.Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=270,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    found.train_from_iterator([r["question"] for r in RECORDS], trainer)
    found.add_special_tokens(list(SPECIAL))
    found.save(str(directory / "tokenizer.json"))
    told = {"eos_token": SPECIAL[0], "bos_token": None, "chat_template": CHATML}
    told = {name: v for name, v in (told | settings).items() if v is not None}
    (directory / "tokenizer_config.json").write_text(json.dumps(told))
    return directory


def write_checkpoint(directory: Path, **changes: object) -> Path:
    """Returns the directory after writing weights, config.json and a tokenizer."""
    policy = tiny_policy(
        vocab_size=ROWS, eos_ids=(EOS,), **vars(MODEL) | {"max_seq_len": 512} | changes
    )
    save_hf(policy, directory)
    return write_tokenizer(directory)


def write_problems(path: Path) -> Path:
    """Returns a file of sixteen problems in GSM8K's layout."""
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


def word_config(start: Path, problems: Path, **sections: object) -> Config:
    """Returns the config of a run: two steps from the checkpoint on the problems."""
    sampling = SamplingConfig(max_new_tokens=16)
    told: dict[str, Any] = {
        "task": FilesTask(
            train_path=str(problems),
            eval_path=str(problems),
            record=RecordConfig(
                prompt_template="{prompt}",
                chat_template="tokenizer",
                system_prompt="Add.",
            ),
        ),
        "tokenizer": TokenizerConfig(
            kind="huggingface", stop_strings=("<|im_end|>", "!")
        ),
        "pretrained": PretrainedConfig(path=str(start)),
        "model": MODEL,
        "mesh": MeshConfig(cpu_devices=8),
        "sft": SFTConfig(steps=0),
        "train": TrainConfig(
            steps=2,
            batch_size=8,
            group_size=2,
            overlong_buffer=15,
            sampling=sampling,
        ),
        "eval": EvalConfig(
            num_problems=8,
            num_samples=2,
            k=(1, 2),
            batch_size=8,
            bootstrap_resamples=20,
            sampling=sampling,
        ),
        "log": LogConfig(rollouts_every=1),
        "prompt_pad_multiple": 64,
        "completion_pad_multiple": 16,
    }
    return Config(**told | sections)
