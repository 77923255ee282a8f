r"""Qwen3-1.7B-Base on MATH, guided by a published dictionary from the first step.

Qwen-Scope's TopK autoencoder of the stream after layer 14 of 28 (counted from 0):
32,768 latents, of which a token keeps 50. Nothing is trained before RL: stage `probe`
reads the policy's completions by it and chooses 16 latents that set right from wrong.
GRPO and RFGO are those of configs/medium.py.

The model and the dictionary (537 MB a layer), from the hub:
    hf download Qwen/Qwen3-1.7B-Base --local-dir models/Qwen3-1.7B-Base
    hf download Qwen/SAE-Res-Qwen3-1.7B-Base-W32K-L0_50 layer14.sae.pt \
        --local-dir models/SAE-Res-Qwen3-1.7B-Base-W32K-L0_50
Keep the last name: it alone says that k is 50. MATH lies in data/math, in the layout of
MATH-500. Another layer is another file: set probe.layer beside probe.sae_path.

    python -m rlvr_jax.main --config=configs/qwen_scope.py --workdir=runs/qwen_scope
    python -m rlvr_jax.main --config=configs/qwen_scope.py --compile_only \
        --topology=v5e:4x4

NOT RUN, and of a step for a v5e-16 only a part compiled: what reads the 16 latents, of
128 completions of 3,072 tokens, takes 0.13 GiB of each chip beside the encoder's 0.25
and no collective. The sampler does not fit as XLA lays it out: 257 GiB of temporaries
with all 1,024 rows at a time, 172 with the 256 slots below; find fewer slots or shorter
completions before renting a slice. Scorer and gradient were not compiled. Tried was a
run of the smoke recipe on two cores, guided by a random file of this layout.

Which of a token's latents are the 50 largest hangs on all of them, so each update
encodes every token whole: 2 D Z = 134 MFLOP a token, 4 % of the forward pass, in
float32. The dictionary is of the base model: the further a run departs from it, the
less it fits (`sae/fve_*`, docs/features.md). It has no twin of another seed, so no
latent is left out for being unstable.
"""

import dataclasses
from pathlib import Path

from job_jax.command import load_config
from rlvr_jax.config import Config, PretrainedConfig, SamplerConfig
from rlvr_jax.models.families import SIZES
from rlvr_jax.probe import SAEProbeConfig


def get_config() -> Config:
    """Returns the recipe: what sets it apart from medium's."""
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
        # 8 heads of keys where medium's model has 2: a quarter of the rows at a time.
        sampler=SamplerConfig(tensor_parallel=1, slots=256),
        probe=SAEProbeConfig(
            layer=14,
            num_problems=medium.probe.num_problems,
            num_reference_texts=medium.probe.num_reference_texts,
            sae_path="models/SAE-Res-Qwen3-1.7B-Base-W32K-L0_50/layer14.sae.pt",
            sae_model_name="Qwen/Qwen3-1.7B-Base",
        ),
    )
