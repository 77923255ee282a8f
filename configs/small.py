r"""Qwen2.5-0.5B on GSM8K: from a Hugging Face checkpoint, on one GPU or a v5e-4.

GRPO in groups of 8 with a light KL. A temporal autoencoder of the policy before RL (16
D latents after layer 13 of 0..23, about as deep as in configs/medium.py) weighs tokens
and replaces the reward in all-wrong groups. No SFT: RL starts from the checkpoint.
(--config.sft.steps=200 would first fit it to worked solutions.)

Commands, with the checkpoint in models/Qwen2.5-0.5B and GSM8K's lines in data/gsm8k:
    python -m rlvr_jax.main --config=small --workdir=runs/small
    python -m rlvr_jax.main --config=small --workdir=runs/small \
        --config.mesh.fsdp=1                                        # one GPU of 80 GB
    python -m rlvr_jax.main --config=small --compile_only --topology=v5e:2x2

NOT RUN: we had no weights and no accelerator, so we measured no score, no time and no
peak memory. We compiled it for a v5e-4 and a v6e-4 (docs/scale/compile_only.md): at
most 6.1 of each v5e chip's 16 GiB, in the gradient of a logged step. For one H100,
--dry_run --topology=h100:1 estimates 21.5 of the 59 GiB that JAX reserves. Learning
rate, KL and T-SAE settings come from configs/medium.py and are not tuned. We ran the
path from a checkpoint through training to an export on a tiny random checkpoint
(tests/integration/test_pretrained.py). For orientation, verl reports 49.6 -> 54.3 %
with LoRA and 56.7 % with PPO from Qwen2.5-0.5B-Instruct.
"""

import dataclasses

from job_jax.config import CheckpointConfig, MeshConfig
from rlvr_jax.config import (
    Config,
    DifficultyConfig,
    EvalConfig,
    LossConfig,
    OptimizerConfig,
    PretrainedConfig,
    RFGOConfig,
    SamplerConfig,
    SamplingConfig,
    SFTConfig,
    TokenizerConfig,
    TrainConfig,
)
from rlvr_jax.models.families import SIZES
from rlvr_jax.probe import ProbeSAEConfig, SAEProbeConfig
from rlvr_jax.tasks import FilesTask, RecordConfig
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig


def get_config() -> Config:
    """Returns the recipe."""
    size = SIZES["Qwen2.5-0.5B"]
    return Config(
        name="small",
        task=FilesTask(
            train_path="data/gsm8k/train.jsonl",
            eval_path="data/gsm8k/test.jsonl",
            record=RecordConfig(
                prompt_template="{prompt}",
                chat_template="tokenizer",
                system_prompt="Reason step by step and end with #### and the number.",
            ),
        ),
        tokenizer=TokenizerConfig(kind="huggingface", stop_strings=("<|im_end|>",)),
        pretrained=PretrainedConfig(
            path="models/Qwen2.5-0.5B", vocab_size=size.vocab_size
        ),
        model=dataclasses.replace(
            size.model,
            compute_dtype="bfloat16",
            scan_layers=True,
            remat="block",
            attention_chunk_size=256,
            max_seq_len=512 + 1024,
        ),
        mesh=MeshConfig(fsdp=4),
        sampler=SamplerConfig(tensor_parallel=1),
        sft=SFTConfig(steps=0),
        difficulty=DifficultyConfig(num_samples=8, pool_size=2048),
        probe=_probe(size.model.hidden_size),
        train=TrainConfig(
            steps=200,
            batch_size=32,
            group_size=8,
            grad_accum_steps=8,
            logits_chunk_size=64,
            optimizer=OptimizerConfig(learning_rate=1e-6, warmup_steps=10),
            loss=LossConfig(kl_coef=0.001),
            rfgo=RFGOConfig(lambda_w=0.5, lambda_p=0.1),
            sampling=SamplingConfig(max_new_tokens=1024),
        ),
        eval=EvalConfig(
            num_problems=1319,
            num_gold_problems=256,
            num_samples=8,
            batch_size=32,
            sampling=SamplingConfig(max_new_tokens=1024, temperature=0.6),
        ),
        checkpoint=CheckpointConfig(every=20),
        prompt_pad_multiple=128,
        completion_pad_multiple=256,
    )


def _probe(width: int) -> SAEProbeConfig:
    return SAEProbeConfig(
        layer=13,
        num_problems=2048,
        num_reference_texts=128,
        sae=ProbeSAEConfig(
            architecture=SAEConfig(latents=16 * width, k=64),
            optimizer=SAEOptimizerConfig(),
            train=SAETrainConfig(steps=10_000, num_seeds=2, no_contrast_baseline=False),
            batch_size=4096,
        ),
    )
