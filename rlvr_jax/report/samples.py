"""Completions for the report: what a policy writes, and why it is wrong."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr_jax.report.run_files import RunArtifacts
from rlvr_jax.rollouts.show import (
    count_verdicts,
    describe_answer,
    describe_length,
    describe_origin,
    describe_reason,
    describe_reward,
    read_rows,
    spoken_parts,
)
from rlvr_jax.run.workdir import rollouts_file
from rlvr_jax.types import BANDS

# Per saved step: completions per verdict, wrong ones per band, characters of each.
_SAMPLES_PER_VERDICT = 2
_WRONG_PER_BAND = 3
_MAX_CHARACTERS = 2000
_NO_BAND = "none"  # problems outside the pool

_Row = Mapping[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    """One completion as the page shows it; `facts` are (name, value)."""

    verdict: str
    reason: str
    facts: Sequence[tuple[str, str]]
    prompt: str
    completion: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleGroup:
    """Samples under a title."""

    title: str
    samples: Sequence[Sample]


def samples_by_step(run: RunArtifacts) -> list[SampleGroup]:
    """Returns completions of the first and the last saved training step, by verdict."""
    steps = run.rollout_steps("train")
    groups = []
    for step in dict.fromkeys(steps[:1] + steps[-1:]):
        rows = _rows(run, step)
        picked = [
            row
            for verdict in ("correct", "incorrect", "unverified")
            for row in [r for r in rows if r["verdict"] == verdict][
                :_SAMPLES_PER_VERDICT
            ]
        ]
        groups.append(
            SampleGroup(title=f"Step {step}", samples=[*map(_sample, picked)])
        )
    return groups


def wrong_samples(run: RunArtifacts) -> list[SampleGroup]:
    """Returns a few wrong completions per band, from the last saved training step.

    Completions with different reasons come first, then other problems.
    """
    steps = run.rollout_steps("train")
    if not steps:
        return []
    rows = [row for row in _rows(run, steps[-1]) if row["verdict"] != "correct"]
    groups = []
    for band in (*BANDS, _NO_BAND):
        of_band = [row for row in rows if row.get("band", _NO_BAND) == band]
        if of_band:
            few = _vary(of_band)[:_WRONG_PER_BAND]
            name = "Without a band" if band == _NO_BAND else f"Band {band}"
            title = f"{name}: {count_verdicts(of_band)}"
            groups.append(SampleGroup(title=title, samples=[*map(_sample, few)]))
    return groups


def _rows(run: RunArtifacts, step: int) -> list[dict[str, Any]]:
    return read_rows(rollouts_file(run.path, "train", step))


def _vary(rows: Sequence[_Row]) -> list[_Row]:
    """Returns the rows in an order that begins with one row for each reason.

    Further rows for a reason follow, other problems first.
    """
    seen: collections.Counter[tuple[str, ...]] = collections.Counter()
    ranked = []
    for row in rows:
        reason = describe_reason(row)
        repeats = seen[reason, row["id"]]
        ranked.append(((repeats, seen[reason,] if not repeats else 0), row))
        seen[reason, row["id"]] += 1
        seen[reason,] += not repeats
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def _sample(row: _Row) -> Sample:
    facts = [
        ("gold", row["gold"]),
        ("read", describe_answer(row)),
        ("earned", describe_reward(row)),
        ("problem", f"{row['id']}, {describe_origin(row)}"),
        ("length", describe_length(row)),
    ]
    if "strategy" in row:
        facts.append(("strategy", row["strategy"]))
    return Sample(
        verdict=row["verdict"],
        reason=describe_reason(row),
        facts=[(name, _truncate(value)) for name, value in facts],
        prompt=_truncate(row["prompt"]),
        completion=_truncate(_conversation(row)),
    )


def _conversation(row: _Row) -> str:
    """Returns a completion, or an episode's turns with their speakers."""
    (first, *others) = spoken_parts(row)
    if not others:
        return first[1]
    return "\n".join(f"[{speaker}] {text}" for speaker, text in (first, *others))


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + " …"
