"""What completions do, beside being right: the strategy that a trace follows."""

from collections.abc import Sequence

from rlvr_jax.config import TaskConfig
from rlvr_jax.tasks.traces import read_trace
from rlvr_jax.types import Problem


def strategies(
    task: TaskConfig, problems: Sequence[Problem], completions: Sequence[str]
) -> list[str]:
    """Returns each completion's strategy, [] for tasks that know none.

    In the finite-field world: "forward", "backward", "mixed" or "none".
    """
    if task.kind != "finite_field":
        return []
    return [
        read_trace(problem.prompt, text, modulus=task.modulus).strategy
        for problem, text in zip(problems, completions, strict=True)
    ]
