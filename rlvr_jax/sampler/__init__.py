"""Prompts -> Rollouts."""

from rlvr_jax.sampler.generate import Edited, generate, pad_prompts, sample
from rlvr_jax.sampler.layout import SamplerLayout, sampler_mesh
from rlvr_jax.sampler.stops import stopped

__all__ = [
    "Edited",
    "SamplerLayout",
    "generate",
    "pad_prompts",
    "sample",
    "sampler_mesh",
    "stopped",
]
