"""The held-out problems, answered by a policy, with progress."""

from collections.abc import Callable

from flax import nnx

from job_jax.metrics import Progress
from rlvr_jax.metrics.scores import evaluate_policy
from rlvr_jax.rollouts.graded import GradedCompletion
from rlvr_jax.stages.context import RunContext


def evaluate_held_out(
    ctx: RunContext,
    params: nnx.State,
    name: str,
    *,
    weight_version: int,
    after_batch: Callable[[], None],
) -> list[GradedCompletion]:
    """Returns the graded completions of the held-out problems.

    `name` is shown with the progress; `after_batch` is called after each batch.
    """
    problems = ctx.setup.problems("eval", ctx.setup.config.eval.num_problems)
    progress = Progress(name, len(problems), every=1)

    def on_batch(done: int, tokens: int) -> None:
        progress.update(done, {}, tokens=tokens)
        after_batch()

    found = evaluate_policy(
        ctx.setup, params, problems, weight_version=weight_version, on_batch=on_batch
    )
    progress.close()
    return found
