"""The stage `eval`, and held-out problems in the midst of training."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from job_jax.checkpoint import digest
from job_jax.metrics import Progress
from job_jax.processes import from_primary
from rlvr_jax.evaluate import (
    Judged,
    Verdicts,
    bands,
    evaluate_policy,
    initial_verdicts,
    score,
)
from rlvr_jax.stage import Loop, check_ended, policy_after
from rlvr_jax.throughput import Clock


def evaluation(loop: Loop) -> None:
    """Evaluates the policy before and after RL on the same problems and draws.

    Both are cut by what the first made of the problems, as its file tells.
    """
    train = loop.run.config.train
    check_ended(loop, "warmup", "train")
    summary = from_primary(loop.workdir.read_summary)
    done, seconds = summary.get("eval", {}), summary.get("stages", {}).get("eval", 0.0)
    for name, stage in (("before", "warmup"), ("after", "train")):
        if name in done:
            continue
        loop.stop.check()
        params = policy_after(loop, stage)
        clock = Clock()
        judged = evaluated(
            loop,
            params,
            f"eval {name}",
            weight_version=train.optimizer_steps if stage == "train" else 0,
            between=loop.stop.check,
        )
        clock.lap("eval")
        seconds += clock.seconds["eval_s"]
        initial = _saved(loop, name, judged)
        loop.summarise(
            {
                "eval": {name: score(loop.run.config, judged, initial)},
                "stages": {"eval": seconds},
                "params": sum(leaf.size for leaf in jax.tree.leaves(params)),
                "params_sha256": digest(params),
            }
        )


def evaluated(
    loop: Loop,
    params: Any,
    name: str,
    *,
    weight_version: int,
    between: Callable[[], None],
) -> list[Judged]:
    """Returns the completions of the held-out problems, judged.

    `name` is shown with the progress; `between` is called between batches.
    """
    problems = loop.run.problems("eval", loop.run.config.eval.problems)
    progress = Progress(name, len(problems), every=1)

    def on_batch(done: int, tokens: int) -> None:
        progress.update(done, {}, tokens=tokens)
        between()

    found = evaluate_policy(
        loop.run, params, problems, weight_version=weight_version, on_batch=on_batch
    )
    progress.close()
    return found


def _saved(loop: Loop, when: str, judged: Sequence[Judged]) -> Verdicts:
    """Saves the completions with their bands; returns what the bands were made of."""
    stage = f"eval_{when}"
    rows = [one.row(stage, 0) for one in judged]
    initial: Verdicts = initial_verdicts(rows)
    if when != "before":
        read = functools.partial(loop.workdir.read_rollouts, "eval_before", 0)
        initial = from_primary(lambda: initial_verdicts(read()))
    cut = bands(initial, loop.run.config.difficulty)
    loop.workdir.write_rollouts(
        stage, 0, ({**row, "band": cut.get(row["id"], "unknown")} for row in rows)
    )
    return initial
