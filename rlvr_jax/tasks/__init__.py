"""Where problems come from."""

from typing import Literal

from rlvr_jax.config import TaskConfig
from rlvr_jax.tasks.files import file_source
from rlvr_jax.tasks.finite_field import ChainSource
from rlvr_jax.tasks.hub import hub_source
from rlvr_jax.tasks.records import RecordSource

Stage = Literal["warmup", "train", "eval"]

# One fixed held-out set, whatever the run's seed: runs are compared on equal questions.
_EVAL_SEED = 0


def problem_source(
    task: TaskConfig, stage: Stage, *, seed: int
) -> ChainSource | RecordSource:
    """Returns the problems that a stage sees. Raises ConfigError on unusable data."""
    if task.kind == "files":
        path = task.eval_path if stage == "eval" else task.train_path
        return file_source(task.record, path)
    if task.kind == "hub":
        split = task.eval_split if stage == "eval" else task.train_split
        return hub_source(task, split)
    if stage == "eval":
        return ChainSource(task, task.eval, split="heldout", seed=_EVAL_SEED)
    mix = task.warmup if stage == "warmup" else task.train
    return ChainSource(task, mix, split="train", seed=seed)
