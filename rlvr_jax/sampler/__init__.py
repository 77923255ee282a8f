"""Prompts -> Rollouts."""

from rlvr_jax.sampler.generate import ScopedIntervention, generate, pad_prompts, sample
from rlvr_jax.sampler.layout import SamplerLayout, sampler_mesh, update_mesh

__all__ = [
    "SamplerLayout",
    "ScopedIntervention",
    "generate",
    "pad_prompts",
    "sample",
    "sampler_mesh",
    "update_mesh",
]
