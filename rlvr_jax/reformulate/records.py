"""Records asked backward: which rewrites are kept, and what is written of them."""

import collections
import random
from collections.abc import Sequence
from typing import Any

from rlvr_jax.reformulate.backward import (
    DroppedRewrite,
    RewrittenProblem,
    find_quantities,
)
from rlvr_jax.tasks import RecordConfig
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

    At most `fraction` of the lines, parents included, are rewrites; which ones is drawn
    with `seed`.
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


def to_record(rewrite: RewrittenProblem, config: RecordConfig) -> dict[str, Any]:
    """Returns the record of a rewrite, in the layout of the file that it came from."""
    suffix = f"{rewrite.quantity.start}-{rewrite.template}"
    record: dict[str, Any] = {
        config.prompt_field: rewrite.question,
        config.answer_field: f"{config.answer_prefix} {rewrite.gold}".strip(),
    }
    if config.level_field:
        record[config.level_field] = rewrite.parent.level
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
    """Returns lines on what was written, what was dropped and why, what is verified."""
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
    """Returns a line a reason, the most frequent first."""
    counts = collections.Counter(reasons)
    return [f"  {count:>6}  {reason}" for reason, count in counts.most_common()]


def _drop(rewrite: RewrittenProblem, reason: str) -> DroppedRewrite:
    return DroppedRewrite(
        parent=rewrite.parent, token=rewrite.quantity.text, reason=reason
    )
