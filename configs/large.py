r"""Qwen2.5-Math-7B on MATH: the 7B row of arXiv 2605.28388, on a v5e-256 or a v5p-64.

Like configs/medium.py: bands from the policy's own pass@8, RL on the medium band, GRPO
with groups of 8, learning rate 1e-6, temperature 0.6, KL 0.001, 1,024 + 3,072 tokens.
The T-SAE reads the stream after layer 16 of 28 (counted from 0). Its size for the 7B
model is not published. We use 57,344 latents, 16 D like the 1.5B model's. A minibatch
has 512 completions: each four of the 256 chips hold one prompt with its group.

Commands, with the checkpoint in models/Qwen2.5-Math-7B and MATH in data/math:
    python -m rlvr_jax.main --config=large --workdir=runs/large
    python -m rlvr_jax.main --config=large --workdir=runs/large \
        --config.mesh.fsdp=32 --config.mesh.tensor=1 \
        --config.sampler.tensor_parallel=1 \
        --config.train.grad_accum_steps=2                           # v5p-64: 32 chips
    python -m rlvr_jax.main --config=large --compile_only \
        --topology=v5e:16x16

NOT RUN: we had no weights and no accelerator, so we measured no score, no time and no
peak memory. We only compiled it (docs/scale/compile_only.md). On a v5e-256 chip with 16
GiB, handing the weights to the sampler takes 7.2, the sampler 6.1, and the gradient 8.6
(by an older compilation). On a v5p-64, also older, it takes 28.3 of 95. For comparison,
the paper reports for this model a mean of five benchmarks of 46.68 -> 47.64 on the
medium band and 35.44 on the hard one.
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from job_jax.config import MeshConfig
from rlvr_jax.config import Config, PretrainedConfig, SamplerConfig
from rlvr_jax.models.families import SIZES
from sae_jax.config import SAEConfig


def get_config() -> Config:
    """Returns medium's recipe with the settings for the 7B model."""
    medium = load_config(Path(__file__).with_name("medium.py"), Config)
    size, replace = SIZES["Qwen2.5-Math-7B"], dataclasses.replace
    dictionary = replace(
        medium.probe.sae,
        architecture=SAEConfig(latents=16 * size.model.hidden_size, k=64),
    )
    return replace(
        medium,
        name="large",
        pretrained=PretrainedConfig(
            path="models/Qwen2.5-Math-7B", vocab_size=size.vocab_size
        ),
        model=replace(
            size.model,
            compute_dtype="bfloat16",
            scan_layers=True,
            remat="block",
            attention_chunk_size=256,
        ),
        mesh=MeshConfig(fsdp=64, tensor=4),
        sampler=SamplerConfig(tensor_parallel=4),
        probe=replace(medium.probe, sae=dictionary),
        train=replace(medium.train, num_minibatches=2),
        eval=replace(medium.eval, batch_size=64),
    )
