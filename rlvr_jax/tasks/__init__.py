"""The tasks, which supply the problems, and their options."""

from rlvr_jax.config.task import Behavior, Stage, Task
from rlvr_jax.tasks.arithmetic.task import ArithmeticTask
from rlvr_jax.tasks.code.programs import ProgramsTask
from rlvr_jax.tasks.code.task import CodeTask
from rlvr_jax.tasks.finite_field.mix import ChainMix
from rlvr_jax.tasks.finite_field.task import FiniteFieldTask
from rlvr_jax.tasks.reasoning_gym.task import ReasoningGymTask
from rlvr_jax.tasks.records.layout import MATH_RECORD, PREPARED_RECORD, RecordConfig
from rlvr_jax.tasks.records.task import FilesTask, HubTask
from rlvr_jax.tasks.word_problems.task import WordProblemsTask

__all__ = [
    "MATH_RECORD",
    "PREPARED_RECORD",
    "ArithmeticTask",
    "Behavior",
    "ChainMix",
    "CodeTask",
    "FilesTask",
    "FiniteFieldTask",
    "HubTask",
    "ProgramsTask",
    "ReasoningGymTask",
    "RecordConfig",
    "Stage",
    "Task",
    "WordProblemsTask",
]
