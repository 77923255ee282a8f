r"""Qwen2.5-Math-7B on MATH: the 7B row of arXiv 2605.28388, on a v5e-256 or a v5p-64.

As configs/medium.py: bands by the policy's own pass@8, RL on the medium one, GRPO in
groups of 8 with learning rate 1e-6, temperature 0.6 and KL 0.001, 1,024 + 3,072 tokens.
The T-SAE reads the stream after layer 16 of 28 (counted from 0). Its size for the 7B is
not published; 57,344 latents are 16 D, as the 1.5B's are. A minibatch is 512
completions: one prompt with its group on each four of the 256 chips.

Commands, with the checkpoint in models/Qwen2.5-Math-7B and MATH in data/math:
    python -m rlvr_jax.main --config=configs/large.py --workdir=runs/large
    python -m rlvr_jax.main --config=configs/large.py --workdir=runs/large \
        --config.mesh.fsdp=8 --config.train.micro_batches=8    # v5p-64: 32 chips
    python -m rlvr_jax.main --config=configs/large.py --compile_only \
        --topology=v5e:16x16

NOT RUN: no weights and no accelerator were at hand, so there is no score, no time and
no peak memory measured. Only compiled, for a v5e-256 (docs/compile_only.md): 8.6 of
each chip's 16 GiB at the most, in the gradient; not for a v5p-64. What the paper
reports of this model, to be compared with: the mean of five benchmarks 46.68 -> 47.64
on the medium band, 35.44 on the hard one.
"""

import dataclasses

from job_jax.config import CheckpointConfig, MeshConfig
from rlvr_jax.config import (
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
    RecordConfig,
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
    size = SIZES["Qwen2.5-Math-7B"]
    return Config(
        name="large",
        task=FilesConfig(
            train_path="data/math/train.jsonl",
            eval_path="data/math/test.jsonl",
            record=RecordConfig(
                prompt_field="problem",
                answer_marker="",
                solution_field="solution",
                level_field="level",
                type_field="subject",
                id_field="unique_id",
                prompt_template="{prompt}",
                chat_template="tokenizer",
                system_prompt=(
                    "Please reason step by step, and put your final answer within "
                    "\\boxed{}."
                ),
                answer_form="boxed",
            ),
        ),
        tokenizer=TokenizerConfig(kind="huggingface", stop=("<|im_end|>",)),
        pretrained=PretrainedConfig(
            path="models/Qwen2.5-Math-7B", vocab_size=size.vocab_size
        ),
        model=dataclasses.replace(
            size.model,
            compute_dtype="bfloat16",
            layer_loop="scan",
            remat="block",
            attention_chunk=256,
        ),
        mesh=MeshConfig(fsdp=64, tensor=4),
        sampler=SamplerConfig(tensor=4),
        warmup=WarmupConfig(steps=0),
        difficulty=DifficultyConfig(samples=8),
        curriculum=CurriculumConfig(name="bucket", bucket="medium"),
        probe=ProbeConfig(
            source="stage",
            layer=16,
            problems=2048,
            fixed=128,
            dictionary=DictionaryConfig(
                sae=SAEConfig(latents=16 * size.model.width, k=64),
                optimizer=SAEOptimizerConfig(),
                train=SAETrainConfig(steps=20_000, seeds=2, twin=False),
                batch_size=8192,
            ),
        ),
        train=TrainConfig(
            steps=200,
            prompts_per_step=128,
            samples_per_prompt=8,
            minibatches=2,
            logit_chunk=64,
            optimizer=OptimizerConfig(learning_rate=1e-6, warmup_steps=10),
            loss=LossConfig(kl_coef=0.001),
            rfgo=RFGOConfig(lambda_w=0.5, lambda_p=0.1),
            sampling=SamplingConfig(max_new_tokens=3072, temperature=0.6),
        ),
        eval=EvalConfig(
            problems=500,
            samples_per_problem=8,
            batch_size=64,
            sampling=SamplingConfig(max_new_tokens=3072, temperature=0.6),
        ),
        checkpoint=CheckpointConfig(every=20),
        prompt_bucket=256,
        completion_bucket=512,
    )
