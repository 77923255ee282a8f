r"""Qwen2.5-Math-1.5B on MATH: the setting of arXiv 2605.28388, on a v5e-16 or 8 H100.

The policy's own pass@8 before RL puts problems into bands, and RL trains on the medium
band (1 to 7 of 8). A temporal autoencoder with 24,576 latents reads the stream after
layer 16 of 28 (counted from 0). The paper leaves GRPO's hyperparameters open. We take
them from One-Shot-RLVR on the same model: learning rate 1e-6, temperature 0.6, KL
0.001, prompts of 1,024 and completions of 3,072 tokens, 128 completions a minibatch,
8 minibatches a step. RFGO's equations are ours (docs/method/rfgo.md). For the paper's
plain GRPO, set --config.train.rfgo.lambda_w=0 --config.train.rfgo.lambda_p=0. For its
other buckets, set --config.curriculum.band=hard or easy.

Commands, with the checkpoint in models/Qwen2.5-Math-1.5B and MATH in the layout of
MATH-500 in data/math:
    python -m rlvr_jax.main --config=medium --workdir=runs/medium
    python -m rlvr_jax.main --config=medium --workdir=runs/medium \
        --config.mesh.fsdp=8                                        # 8 H100
    python -m rlvr_jax.main --config=medium --compile_only --topology=v5e:4x4

NOT RUN: we had no weights and no accelerator, so we measured no score, no time and no
peak memory. We only compiled it for a v5e-16 (docs/scale/compile_only.md): at most
13.3 of each chip's 16 GiB in stage `probe` (15.4 with libtpu 0.0.42.1), 11.4 in the
sampler, and 7.8 in the gradient. For eight H100, --dry_run --topology=h100:8
--config.mesh.fsdp=8 estimates 19.8 of the 59 GiB that JAX reserves, without the
reading of the stream in stage `probe`. The sampler decodes half of the 1,024 rows at a
time. All of them at once would take 14.6 GiB as libtpu 0.0.52 compiles them, and 20.1
with 0.0.42.1, which JAX 0.10.2 installs. For comparison, the paper reports for this
model a mean of five benchmarks of 37.63 -> 38.08 on the medium band and 31.88 on the
hard one.

The rest is ours. `stop_strings` ends a turn of the template, because the base model's
own end-of-sequence token does not. To fit in memory, logits are computed for 64
positions at a time and, where attention is plain, scores for 256 queries.
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
from rlvr_jax.data.curricula.mixture import Band
from rlvr_jax.models.families import SIZES
from rlvr_jax.probe import ProbeSAEConfig, SAEProbeConfig
from rlvr_jax.tasks import MATH_RECORD, FilesTask
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig


def get_config() -> Config:
    """Returns the recipe."""
    size = SIZES["Qwen2.5-Math-1.5B"]
    return Config(
        name="medium",
        task=FilesTask(
            train_path="data/math/train.jsonl",
            eval_path="data/math/test.jsonl",
            record=dataclasses.replace(
                MATH_RECORD,
                prompt_template="{prompt}",
                chat_template="tokenizer",
                system_prompt=(
                    "Please reason step by step, and put your final answer within "
                    "\\boxed{}."
                ),
            ),
        ),
        tokenizer=TokenizerConfig(kind="huggingface", stop_strings=("<|im_end|>",)),
        pretrained=PretrainedConfig(
            path="models/Qwen2.5-Math-1.5B", vocab_size=size.vocab_size
        ),
        model=dataclasses.replace(
            size.model,
            compute_dtype="bfloat16",
            scan_layers=True,
            remat="block",
            attention_chunk_size=256,
        ),
        mesh=MeshConfig(fsdp=16),
        sampler=SamplerConfig(tensor_parallel=1, slots=512),
        sft=SFTConfig(steps=0),
        difficulty=DifficultyConfig(num_samples=8),
        curriculum=Band(band="medium"),
        probe=_probe(),
        train=TrainConfig(
            steps=200,
            batch_size=128,
            group_size=8,
            num_minibatches=8,
            logits_chunk_size=64,
            optimizer=OptimizerConfig(learning_rate=1e-6, warmup_steps=10),
            loss=LossConfig(kl_coef=0.001),
            rfgo=RFGOConfig(lambda_w=0.5, lambda_p=0.1),
            sampling=SamplingConfig(max_new_tokens=3072, temperature=0.6),
        ),
        eval=EvalConfig(
            num_problems=500,
            num_gold_problems=256,
            num_samples=8,
            batch_size=128,
            sampling=SamplingConfig(max_new_tokens=3072, temperature=0.6),
        ),
        checkpoint=CheckpointConfig(every=20),
        prompt_pad_multiple=256,
        completion_pad_multiple=512,
    )


def _probe() -> SAEProbeConfig:
    return SAEProbeConfig(
        layer=16,
        num_problems=2048,
        num_reference_texts=128,
        sae=ProbeSAEConfig(
            architecture=SAEConfig(latents=24_576, k=64),
            optimizer=SAEOptimizerConfig(),
            train=SAETrainConfig(steps=20_000, num_seeds=2, no_contrast_baseline=False),
            batch_size=8192,
        ),
    )
