"""What commands that edit latents share: their checks, and running every arm."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from job_jax.flags import UsageError
from job_jax.metrics import Progress
from rlvr_jax.config import Config
from rlvr_jax.probe.intervene import ArmResult, EditArm, check_null_edit, run_arm
from rlvr_jax.probe.steering import Scope
from rlvr_jax.run.load import LoadedPolicy
from rlvr_jax.types import Problem


def check_before_edits(config: Config, out: Path) -> None:
    """Raises UsageError if completions cannot be edited, or `out` exists."""
    if config.environment.enabled:
        raise UsageError(
            "interventions work only on completions of one turn, but environment.name="
            f"{config.environment.tags()['name']} makes episodes; add "
            "--config.environment.name=none"
        )
    if out.exists():
        raise UsageError(f"--out={out} exists; remove it or name another")


def run_arms(
    runs: Sequence[tuple[LoadedPolicy, EditArm]],
    problems: Sequence[Problem],
    *,
    scope: Scope,
    name: str,
    keep: Callable[[int, ArmResult], ArmResult],
) -> list[ArmResult]:
    """Returns each policy's answers under its arm, without texts.

    The first run is the clean one, which a null edit must repeat, else NullEditError is
    raised. `keep` gets the number and the result with its texts as soon as an arm ends,
    and returns the result. `name` is shown with the progress.
    """
    progress = Progress(name, len(runs), every=1)
    results: list[ArmResult] = []
    for number, (policy, arm) in enumerate(runs):
        result = keep(number, run_arm(policy, problems, arm, scope=scope))
        results.append(dataclasses.replace(result, graded=()))
        if arm.kind == "null":
            check_null_edit(result, results[0])
        progress.update(number + 1, {}, tokens=int((result.tokens > 0).sum()))
    progress.close()
    return results
