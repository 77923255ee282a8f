"""Where problems come from."""

from typing import Literal

from rlvr_jax.config import TaskConfig
from rlvr_jax.tasks.finite_field import ChainSource
from rlvr_jax.tasks.jsonl import JsonLinesSource

Stage = Literal["warmup", "train", "eval"]

# One fixed held-out set, whatever the run's seed: runs are compared on equal questions.
_EVAL_SEED = 0


def problem_source(
    task: TaskConfig, stage: Stage, *, seed: int
) -> ChainSource | JsonLinesSource:
    """Returns the problems that a stage sees. Raises ConfigError on unusable data."""
    if task.kind == "jsonl":
        path = task.eval_path if stage == "eval" else task.train_path
        return JsonLinesSource(task, path)
    if stage == "eval":
        return ChainSource(task, task.eval, split="heldout", seed=_EVAL_SEED)
    mix = task.warmup if stage == "warmup" else task.train
    return ChainSource(task, mix, split="train", seed=seed)
