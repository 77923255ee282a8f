r"""Qwen2.5-Math-1.5B on MATH: the setting of arXiv 2605.28388, on a v5e-16 or 8 H100.

Problems are banded by the policy's own pass@8 before RL, and RL runs on the medium band
(1 to 7 of 8). A temporal autoencoder of 24,576 latents reads the stream after layer 16
of 28 (counted from 0). The paper leaves GRPO's hyperparameters open; these are those of
One-Shot-RLVR on the same model: learning rate 1e-6, temperature 0.6, KL 0.001, prompts
of 1,024 and completions of 3,072 tokens, 128 completions a minibatch, 8 of them a step.
RFGO's equations are ours (docs/rfgo.md); the paper's plain GRPO is
--config.train.rfgo.lambda_w=0 --config.train.rfgo.lambda_p=0, its other buckets
--config.curriculum.bucket=hard and easy.

Commands, with the checkpoint in models/Qwen2.5-Math-1.5B and MATH in the layout of
MATH-500 in data/math:
    python -m rlvr_jax.main --config=configs/medium.py --workdir=runs/medium
    python -m rlvr_jax.main --config=configs/medium.py --workdir=runs/medium \
        --config.mesh.fsdp=8                                        # 8 H100
    python -m rlvr_jax.main --config=configs/medium.py --compile_only --topology=v5e:4x4

NOT RUN: no weights and no accelerator were at hand, so there is no score, no time and
no peak memory measured, and on GPUs not even a compilation. Only compiled, for a v5e-16
(docs/compile_only.md): 11.0 of each chip's 16 GiB at the most, in the sampler,
10.0 in the gradient. What the paper reports of this model, to be compared with: the
mean of five benchmarks 37.63 -> 38.08 on the medium band, 31.88 on the hard one.

The rest is ours: `stop` ends a turn of the template, which the base model's own
end-of-sequence token does not; logits exist for 64 positions at a time and, where
attention is plain, scores for 256 queries, or neither would fit.
"""

import dataclasses

from job_jax.config import CheckpointConfig, MeshConfig
from rlvr_jax.config import (
    MATH_RECORD,
    Config,
    CurriculumConfig,
    DictionaryConfig,
    DifficultyConfig,
    EvalConfig,
    FilesConfig,
    LossConfig,
    OptimizerConfig,
    PretrainedConfig,
    ProbeConfig,
    RFGOConfig,
    SamplerConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainConfig,
    WarmupConfig,
)
from rlvr_jax.models.sizes import SIZES
from sae_jax.config import OptimizerConfig as SAEOptimizerConfig
from sae_jax.config import SAEConfig
from sae_jax.config import TrainConfig as SAETrainConfig


def get_config() -> Config:
    """Returns the recipe."""
    size = SIZES["Qwen2.5-Math-1.5B"]
    return Config(
        name="medium",
        task=FilesConfig(
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
        tokenizer=TokenizerConfig(kind="huggingface", stop=("<|im_end|>",)),
        pretrained=PretrainedConfig(
            path="models/Qwen2.5-Math-1.5B", vocab_size=size.vocab_size
        ),
        model=dataclasses.replace(
            size.model,
            compute_dtype="bfloat16",
            layer_loop="scan",
            remat="block",
            attention_chunk=256,
        ),
        mesh=MeshConfig(fsdp=16),
        sampler=SamplerConfig(tensor=1),
        warmup=WarmupConfig(steps=0),
        difficulty=DifficultyConfig(samples=8),
        curriculum=CurriculumConfig(name="bucket", bucket="medium"),
        probe=_probe(),
        train=TrainConfig(
            steps=200,
            prompts_per_step=128,
            samples_per_prompt=8,
            minibatches=8,
            logit_chunk=64,
            optimizer=OptimizerConfig(learning_rate=1e-6, warmup_steps=10),
            loss=LossConfig(kl_coef=0.001),
            rfgo=RFGOConfig(lambda_w=0.5, lambda_p=0.1),
            sampling=SamplingConfig(max_new_tokens=3072, temperature=0.6),
        ),
        eval=EvalConfig(
            problems=500,
            samples_per_problem=8,
            batch_size=128,
            sampling=SamplingConfig(max_new_tokens=3072, temperature=0.6),
        ),
        checkpoint=CheckpointConfig(every=20),
        prompt_bucket=256,
        completion_bucket=512,
    )


def _probe() -> ProbeConfig:
    return ProbeConfig(
        source="stage",
        layer=16,
        problems=2048,
        fixed=128,
        dictionary=DictionaryConfig(
            sae=SAEConfig(latents=24_576, k=64),
            optimizer=SAEOptimizerConfig(),
            train=SAETrainConfig(steps=20_000, seeds=2, twin=False),
            batch_size=8192,
        ),
    )
