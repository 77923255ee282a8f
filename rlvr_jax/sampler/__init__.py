"""Prompts -> Rollouts."""

from rlvr_jax.sampler.generate import Edited, generate, pad_prompts, sample
from rlvr_jax.sampler.stops import stopped

__all__ = ["Edited", "generate", "pad_prompts", "sample", "stopped"]
