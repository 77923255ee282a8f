"""What completions did, counted by problem: the figures that an edit may move.

pass@k             for each k, and pass@1 by type of problem
length             tokens
truncated          share that ran into the limit
flags              share that shows each degenerate behaviour
strategies         P(strategy | type), where the task knows strategies
steps right        in the finite-field world, the share of written steps that are
                   right, by the operation due and by the value it starts from
"""

import collections
import functools
from collections.abc import Callable, Sequence

import numpy as np

from rlvr_jax.behaviour import FLAGS
from rlvr_jax.config import TaskConfig
from rlvr_jax.evaluate import Judged
from rlvr_jax.paired import Ratio
from rlvr_jax.statistics import pass_at_k
from rlvr_jax.tasks.chains import UNDO, parse_prompt
from rlvr_jax.tasks.traces import read_trace

_STRATEGIES = ("forward", "backward", "mixed", "none")

# Words of a written step, from its header on: `k e3 + e2 = e5`.
_HEADER, _STEP, _BEFORE = 2, 6, 1


def outcomes(
    task: TaskConfig, judged: Sequence[Judged], *, samples: int, k: Sequence[int]
) -> dict[str, Ratio]:
    """Returns every figure of N problems, each answered `samples` times in a row."""
    N = len(judged) // samples
    rights_N = right(judged, samples).sum(axis=1)
    found = {
        f"pass@{i}": Ratio(value=pass_at_k(samples, rights_N, i), per=np.ones(N))
        for i in sorted({1, *k})
        if i <= samples
    }

    def share(of: Callable[[Judged], float], type_: str | None = None) -> Ratio:
        counts = [
            (of(one), 1.0) if type_ in (None, one.problem.type) else (0.0, 0.0)
            for one in judged
        ]
        value_N, per_N = np.reshape(counts, (N, samples, 2)).sum(axis=1).T
        return Ratio(value=value_N, per=per_N)

    found["length"] = share(lambda one: one.length)
    found["truncated"] = share(lambda one: not one.finished)
    for flag in FLAGS:
        found[flag] = share(functools.partial(_shows, flag))
    for type_ in sorted({one.problem.type for one in judged}):
        found[f"pass@1, {type_}"] = share(
            lambda one: one.verdict.status == "right", type_
        )
        for name in _STRATEGIES if task.kind == "finite_field" else ():
            found[f"{name}, {type_}"] = share(functools.partial(_uses, name), type_)
    return found | _steps_right(task, judged, samples)


def _shows(flag: str, one: Judged) -> bool:
    return flag in one.flags


def _uses(strategy: str, one: Judged) -> bool:
    return one.strategy == strategy


def right(judged: Sequence[Judged], samples: int) -> np.ndarray:
    """Returns whether each completion was judged right, [N, G]."""
    return np.reshape([one.verdict.status == "right" for one in judged], (-1, samples))


def _steps_right(
    task: TaskConfig, judged: Sequence[Judged], samples: int
) -> dict[str, Ratio]:
    """Returns the share of right steps, {} outside the finite-field world.

    The operation is the one that is due, whatever was written. Left out: completions in
    several parts, and steps that are too many.
    """
    if task.kind != "finite_field":
        return {}
    counts: dict[str, np.ndarray] = collections.defaultdict(
        lambda: np.zeros((len(judged) // samples, 2))
    )
    for index, one in enumerate(judged):
        words = one.completion.split()
        chain, *more = parse_prompt(one.problem.prompt, modulus=task.modulus).chains
        if more or "then" in words:
            continue
        due = [step.op for step in chain.steps]
        if one.strategy == "backward":
            due = [UNDO[op] for op in reversed(due)]
        report = read_trace(one.problem.prompt, one.completion, modulus=task.modulus)
        for step, (is_right, op) in enumerate(zip(report.steps, due, strict=False)):
            before = words[_HEADER + step * _STEP + _BEFORE]
            for name in (f"due {op}", f"from {before}"):
                counts[f"steps right, {name}"][index // samples] += is_right, 1
    return {
        name: Ratio(value=value_per[:, 0], per=value_per[:, 1])
        for name, value_per in sorted(counts.items())
    }
