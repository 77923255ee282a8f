r"""Qwen3-1.7B-Base on MATH, guided by a published dictionary from the first step.

The dictionary is Qwen-Scope's TopK autoencoder of the stream after layer 14 of 28
(counted from 0): 32,768 latents, and a token keeps 50 of them. Nothing is trained
before RL. Stage `probe` reads the policy's completions with it and chooses 16 latents
that separate right from wrong. GRPO and RFGO are set as in configs/medium.py.

The model and the dictionary (537 MB a layer), from the hub:
    hf download Qwen/Qwen3-1.7B-Base --local-dir models/Qwen3-1.7B-Base
    hf download Qwen/SAE-Res-Qwen3-1.7B-Base-W32K-L0_50 layer14.sae.pt \
        --local-dir models/SAE-Res-Qwen3-1.7B-Base-W32K-L0_50
Keep the folder's name, because only it says that k is 50. MATH is in data/math, in the
layout of MATH-500. For another layer, download its file and set both probe.layer and
probe.sae_path.

    python -m rlvr_jax.main --config=qwen_scope --workdir=runs/qwen_scope
    python -m rlvr_jax.main --config=qwen_scope --compile_only \
        --topology=v5e:4x4

NOT RUN. We compiled only a part of a step for a v5e-16: reading the 16 latents of 128
completions of 3,072 tokens takes 0.13 GiB of each chip, plus 0.25 for the encoder, and
no collective. The sampler does not fit as XLA lays it out: it needs 257 GiB of
temporaries with all 1,024 rows at a time, and 172 with the 256 slots below. Try fewer
slots or shorter completions before you rent a slice. We did not compile the scorer and
the gradient. We did run the smoke recipe on two cores, guided by a random file of this
layout.

A token's 50 largest latents depend on all latents, so each update encodes every token
in full: 2 D Z = 134 MFLOP a token, 4 % of the forward pass, in float32. The dictionary
belongs to the base model: the further a run moves away from it, the worse it fits
(`sae/fve_*`, docs/method/features.md). No twin of another seed exists, so no latent is
dropped for being unstable.
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from rlvr_jax.config import Config, PretrainedConfig, SamplerConfig
from rlvr_jax.models.families import SIZES
from rlvr_jax.probe import SAEProbeConfig


def get_config() -> Config:
    """Returns medium's recipe with Qwen3-1.7B and its dictionary."""
    medium = load_config(Path(__file__).with_name("medium.py"), Config)
    size, replace = SIZES["Qwen3-1.7B"], dataclasses.replace
    return replace(
        medium,
        name="qwen_scope",
        pretrained=PretrainedConfig(
            path="models/Qwen3-1.7B-Base", vocab_size=size.vocab_size
        ),
        model=replace(
            size.model,
            compute_dtype="bfloat16",
            scan_layers=True,
            remat="block",
            attention_chunk_size=256,
        ),
        # 8 key heads, and medium's model has 2: so decode a quarter of the rows.
        sampler=SamplerConfig(tensor_parallel=1, slots=256),
        probe=SAEProbeConfig(
            layer=14,
            num_problems=medium.probe.num_problems,
            num_reference_texts=medium.probe.num_reference_texts,
            sae_path="models/SAE-Res-Qwen3-1.7B-Base-W32K-L0_50/layer14.sae.pt",
            sae_model_name="Qwen/Qwen3-1.7B-Base",
        ),
    )
