"""Backward records: chooses the rewrites to keep, and writes them."""

import collections
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.reformulate.backward import (
    DroppedRewrite,
    RewrittenProblem,
    find_quantities,
)
from rlvr_jax.tasks import RecordConfig
from rlvr_jax.tasks.records.conversation import write_question
from rlvr_jax.tasks.records.records import RecordFields


def select_rewrites(
    results: Sequence[RewrittenProblem | DroppedRewrite],
    *,
    num_parents: int,
    fraction: float,
    verified_only: bool,
    seed: int,
) -> tuple[list[RewrittenProblem], list[DroppedRewrite]]:
    """Returns the rewrites to write, in order, and everything that was dropped.

    At most `fraction` of the lines, parents included, are rewrites; `seed` draws which.
    """
    drops = [result for result in results if isinstance(result, DroppedRewrite)]
    rewrites = [result for result in results if isinstance(result, RewrittenProblem)]
    if verified_only:
        unverified = [r for r in rewrites if r.check.outcome != "verified"]
        drops += [_drop(r, f"not verified: {r.check.reason}") for r in unverified]
        rewrites = [r for r in rewrites if r.check.outcome == "verified"]
    if fraction < 1:
        room = int(fraction / (1 - fraction) * num_parents)
        order = random.Random(seed).sample(range(len(rewrites)), len(rewrites))
        chosen = set(order[:room])
        drops += [
            _drop(rewrite, "over the fraction")
            for i, rewrite in enumerate(rewrites)
            if i not in chosen
        ]
        rewrites = [rewrite for i, rewrite in enumerate(rewrites) if i in chosen]
    return rewrites, drops


def read_band(workdir: Path, band: str) -> dict[str, bool]:
    """Returns each problem that a run has sampled, and whether it began in the band.

    Raises ConfigError if the workdir has no difficulty.jsonl.
    """
    path = workdir / "difficulty.jsonl"
    if not path.is_file():
        raise ConfigError(
            f"no {path}; give the workdir of a run with difficulty.num_samples > 0"
        )
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {row["id"]: row["initial"]["band"] == band for row in rows}


def select_parents(
    parents: Sequence[RecordFields], in_band: Mapping[str, bool], workdir: str
) -> list[RecordFields]:
    """Returns the problems in the band. ConfigError if the run knows none of them.

    Problems that the run has not sampled are in no band.
    """
    if not any(parent.id in in_band for parent in parents):
        raise ConfigError(
            f"the run in {workdir} has sampled none of these problems: it knows "
            f"{next(iter(in_band), None)!r}, but the file has {parents[0].id!r}; give "
            "its training file under the same name, with the same --id_field"
        )
    return [parent for parent in parents if in_band.get(parent.id, False)]


def to_record(rewrite: RewrittenProblem, config: RecordConfig) -> dict[str, Any]:
    """Returns the record of a rewrite, in the layout of the file that it came from."""
    suffix = f"{rewrite.quantity.start}-{rewrite.template}"
    record: dict[str, Any] = {
        config.prompt_field: write_question(rewrite.question, rewrite.parent.earlier),
        config.answer_field: f"{config.answer_prefix} {rewrite.gold}".strip(),
    }
    if config.level_field:
        record[config.level_field] = rewrite.parent.level_name or rewrite.parent.level
    if config.type_field:
        record[config.type_field] = rewrite.parent.type
    return record | {
        "id": f"{rewrite.parent.id}-{suffix}",
        "parent": rewrite.parent.id,
        "parent_gold": rewrite.parent.gold,
        "template": rewrite.template,
        "check": rewrite.check.reason or rewrite.check.outcome,
    }


def report_lines(
    parents: Sequence[RecordFields],
    rewrites: Sequence[RewrittenProblem],
    drops: Sequence[DroppedRewrite],
    *,
    num_attempted: int,
    num_originals: int,
) -> list[str]:
    """Returns lines with the counts of written, dropped and verified rewrites."""
    tokens = sum(len(list(find_quantities(parent.question))) for parent in parents)
    reasons = [r.check.reason for r in rewrites if r.check.outcome != "verified"]
    verified = len(rewrites) - len(reasons)
    fraction = len(rewrites) / max(1, len(rewrites) + num_originals)
    verified_fraction = verified / max(1, len(rewrites))
    return [
        f"problems            {len(parents)}",
        f"number tokens       {tokens}, two templates each: {num_attempted} rewrites",
        f"dropped             {len(drops)}",
        *_count_lines([drop.reason for drop in drops]),
        f"written             {num_originals} problems, {len(rewrites)} rewrites "
        f"({fraction:.1%})",
        f"verified            {verified} of {len(rewrites)} ({verified_fraction:.1%})",
        *_count_lines(reasons),
    ]


def _count_lines(reasons: Sequence[str]) -> list[str]:
    """Returns one line per reason, the most frequent first."""
    counts = collections.Counter(reasons)
    return [f"  {count:>6}  {reason}" for reason, count in counts.most_common()]


def _drop(rewrite: RewrittenProblem, reason: str) -> DroppedRewrite:
    return DroppedRewrite(
        parent=rewrite.parent, token=rewrite.quantity.text, reason=reason
    )
