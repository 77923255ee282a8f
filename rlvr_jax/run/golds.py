"""Finds golds that nothing can be graded by, and leaves them out before a run."""

from collections.abc import Mapping

from job_jax.schema import ConfigError
from rlvr_jax.config.task import Stage
from rlvr_jax.data.loader import FilteredSource, is_generated, num_checked
from rlvr_jax.types import ProblemSource
from rlvr_jax.verifiers.grader import Grader

_MAX_LISTED = 20  # golds of a stage, one line each


def filter_by_gold(
    sources: Mapping[Stage, ProblemSource], verifier: Grader
) -> tuple[dict[Stage, ProblemSource], dict[Stage, dict[str, str]]]:
    """Returns the sources without problems of invalid gold, and why each is invalid.

    The reasons are by stage and problem id. Stage sft reads no golds. Raises
    ConfigError if a stage keeps no problem, or if one of the first golds of a generated
    source is invalid, because no problem of it can be left out.
    """
    valid = dict(sources)
    invalid_golds: dict[Stage, dict[str, str]] = {}
    for stage, source in sources.items():
        if stage == "sft":
            continue
        problems = [source[i] for i in range(num_checked(source))]
        invalid = verifier.invalid_golds(problems)
        if is_generated(source):
            for name, reason in invalid.items():
                raise ConfigError(
                    f"{stage} problems: the gold of {name!r} cannot be read "
                    f"({reason}); generated problems are not left out, so make other "
                    "golds, or set checks_golds = False in your task"
                )
            continue
        invalid_golds[stage] = invalid
        indices = [
            i for i, p in enumerate(problems) if p.id not in invalid_golds[stage]
        ]
        if not indices:
            first = problems[0]
            raise ConfigError(
                f"{stage} problems: the verifier can read none of the {len(problems)} "
                f"golds, such as {first.gold!r:.60} "
                f"({invalid_golds[stage][first.id]}); see task.record"
            )
        valid[stage] = FilteredSource(source, indices)
    return valid, invalid_golds


def describe_invalid_golds(
    stage: Stage, golds: Mapping[str, str], *, total: int
) -> list[str]:
    """Returns lines about a stage's invalid golds, among `total` problems."""
    if not golds:
        return []
    listed = list(golds.items())[:_MAX_LISTED]
    lines = [
        f"{stage}: {len(golds)} of {total} problems left out: golds that the verifier "
        "cannot read",
        *(f"  {name}: {reason}" for name, reason in listed),
    ]
    if more := len(golds) - len(listed):
        lines.append(f"  and {more} more; summary.json lists all of them")
    return lines
