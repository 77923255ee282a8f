"""Prompts -> Rollouts."""

from rlvr_jax.sampler.generate import Edited, generate, pad_prompts, sample

__all__ = ["Edited", "generate", "pad_prompts", "sample"]
