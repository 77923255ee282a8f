"""Every section of a run's configuration: what a recipe imports."""

from job_jax.config import CheckpointConfig, MeshConfig
from rlvr_jax.algorithms.advantages.rule import AdvantageRule

# The section's default class; recipes name the section like all others.
from rlvr_jax.algorithms.advantages.rules.group_relative import (
    GroupRelative as AdvantageConfig,
)
from rlvr_jax.algorithms.objective import PolicyObjective
from rlvr_jax.algorithms.published import LossConfig
from rlvr_jax.config.difficulty import (
    CurriculumConfig,
    DifficultyConfig,
    DynamicSamplingConfig,
)
from rlvr_jax.config.environment import EnvironmentConfig
from rlvr_jax.config.experiment import Arm, Experiment, Overrides, Slope
from rlvr_jax.config.judge import JudgeConfig
from rlvr_jax.config.learn import LoRAConfig, OptimizerConfig, RewardConfig
from rlvr_jax.config.model import (
    ModelConfig,
    PretrainedConfig,
)
from rlvr_jax.config.probe import (
    FeatureSelectionConfig,
    ProbeConfig,
    ProbeSAEConfig,
    RFGOConfig,
)
from rlvr_jax.config.run import (
    Config,
    EvalConfig,
    LogConfig,
    VerifierConfig,
)
from rlvr_jax.config.sampling import SamplerConfig, SamplingConfig
from rlvr_jax.config.task import (
    Task,
    TokenizerConfig,
)
from rlvr_jax.config.tracking import TrackingConfig
from rlvr_jax.config.train import SFTConfig, TrainConfig

__all__ = [
    "AdvantageConfig",
    "AdvantageRule",
    "Arm",
    "CheckpointConfig",
    "Config",
    "CurriculumConfig",
    "DifficultyConfig",
    "DynamicSamplingConfig",
    "EnvironmentConfig",
    "EvalConfig",
    "Experiment",
    "FeatureSelectionConfig",
    "JudgeConfig",
    "LoRAConfig",
    "LogConfig",
    "LossConfig",
    "MeshConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Overrides",
    "PolicyObjective",
    "PretrainedConfig",
    "ProbeConfig",
    "ProbeSAEConfig",
    "RFGOConfig",
    "RewardConfig",
    "SFTConfig",
    "SamplerConfig",
    "SamplingConfig",
    "Slope",
    "Task",
    "TokenizerConfig",
    "TrackingConfig",
    "TrainConfig",
    "VerifierConfig",
]
