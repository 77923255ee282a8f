"""Quickstart."""

from rlvr_jax.config import Config, ChainMix, FiniteFieldConfig, OptimizerConfig, WarmupConfig, TrainConfig, EvalConfig, SamplingConfig


def get_config() -> Config:
    return Config(name="quickstart")
