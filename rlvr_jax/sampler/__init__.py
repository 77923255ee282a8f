"""Prompts -> Rollouts."""

from rlvr_jax.sampler.generate import generate, pad_prompts, sample

__all__ = ["generate", "pad_prompts", "sample"]
