"""Completions as text, each with its verdict and what its text shows."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlvr_jax.rollouts import behavior
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import Band, Problem, Rollouts, Verdict, VerdictStatus

# A problem's verdicts, sample by sample, by its id.
Verdicts = Mapping[str, Sequence[VerdictStatus]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradedCompletion:
    """One completion as text, its verdict, and what its text shows."""

    problem: Problem
    completion: str
    verdict: Verdict
    length: int
    finished: bool
    strategy: str | None
    weight_version: int
    flags: tuple[str, ...] = ()  # of behavior.FLAGS
    format: str = "none"  # of behavior.FORMATS
    # The problem's before the step; None outside training and outside the pool.
    band: Band | None = None  # by which telemetry is cut: before RL
    posterior_band: Band | None = None

    def to_json(self, stage: str, step: int) -> dict[str, Any]:
        """Returns the completion as a line of rollouts/."""
        return {
            "stage": stage,
            "step": step,
            "id": self.problem.id,
            "level": self.problem.level,
            "type": self.problem.type,
            "prompt": self.problem.prompt,
            "completion": self.completion,
            "verdict": self.verdict.status,
            "reason": self.verdict.reason,
            "reward": float(self.verdict.status == "correct"),
            "length": self.length,
            "finished": self.finished,
            "weight_version": self.weight_version,
            **({"strategy": self.strategy} if self.strategy else {}),
            **({"band": self.band} if self.band else {}),
            **({"posterior_band": self.posterior_band} if self.posterior_band else {}),
            **({"flags": list(self.flags)} if self.flags else {}),
        }


def grade_completions(
    setup: RunSetup, problems: Sequence[Problem], rollouts: Rollouts
) -> list[GradedCompletion]:
    """Returns the graded completions of the first P problems, in group-major order.

    `rollouts` are in NumPy and may hold more prompts than there are problems: those
    that filled up a batch are left out.
    """
    G = len(rollouts.lengths) // len(rollouts.prompts.lengths)
    repeated = [problem for problem in problems for _ in range(G)]
    token_ids = [
        rollouts.tokens[b, : rollouts.lengths[b]].tolist() for b in range(len(repeated))
    ]
    texts = [setup.tokenizer.decode(ids) for ids in token_ids]
    verdicts = setup.verifier(repeated, texts)
    behaviors = [
        behavior.detect_behaviors(
            setup.config.task, problem, text, tokens=ids, verdict=verdict
        )
        for problem, text, ids, verdict in zip(
            repeated, texts, token_ids, verdicts, strict=True
        )
    ]
    return [
        GradedCompletion(
            problem=repeated[b],
            completion=texts[b],
            verdict=verdicts[b],
            length=int(rollouts.lengths[b]),
            finished=bool(rollouts.finished[b]),
            strategy=behaviors[b].strategy,
            weight_version=int(rollouts.weight_version),
            flags=behaviors[b].flags,
            format=behaviors[b].format,
        )
        for b in range(len(repeated))
    ]


def verdicts_by_problem(rows: Iterable[Mapping[str, Any]]) -> Verdicts:
    """Returns each problem's verdicts, from lines of rollouts/ in their order."""
    verdicts: dict[str, list[VerdictStatus]] = {}
    for row in rows:
        verdicts.setdefault(row["id"], []).append(row["verdict"])
    return verdicts
