"""Completions as text, each with its verdict and the behavior that its text shows."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from job_jax.working import working
from rlvr_jax.rollouts import behavior
from rlvr_jax.rollouts.judged import JudgedText, judge_texts, read_judged_text
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.types import (
    Band,
    Episode,
    Problem,
    Rollouts,
    Verdict,
    VerdictStatus,
)
from rlvr_jax.verifiers.base import VERIFIERS, get_verifier

# A problem's verdicts, sample by sample, by its id.
Verdicts = Mapping[str, Sequence[VerdictStatus]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradedCompletion:
    """One completion as text, its verdict, and the behavior that its text shows.

    In an episode, `completion` holds only the policy's text, but `length` counts all
    tokens. `judged` is the text that verifiers and rewards read, None if they read all
    of `completion`.
    """

    problem: Problem
    completion: str
    verdict: Verdict
    length: int
    finished: bool
    strategy: str | None
    weight_version: int
    flags: tuple[str, ...] = ()  # of behavior.FLAGS
    format: str = "none"  # of behavior.FORMATS
    episode: Episode | None = None  # None: a completion of one turn
    # The problem's bands before the step; None outside training and outside the pool.
    band: Band | None = None  # of telemetry: the band before RL
    posterior_band: Band | None = None
    judged: JudgedText | None = None

    @property
    def judged_text(self) -> JudgedText:
        """Returns the part of the completion that verifiers and rewards read."""
        return self.judged or JudgedText(text=self.completion)

    @property
    def answer_value(self) -> str | None:
        """Returns the answer as its verifier counts it: 1/2 and 0.5 are one answer.

        The plain text counts if no verifier judges the problem, only an environment.
        """
        name = self.problem.verifier
        if name not in VERIFIERS.names and ":" not in name:
            return self.verdict.answer
        return get_verifier(name).answer_value(self.problem, self.verdict)

    def to_json(self, stage: str, step: int) -> dict[str, Any]:
        """Returns the completion as a line of rollouts/.

        Its reward depends only on the verdict: 1 or 0.
        """
        return {
            "stage": stage,
            "step": step,
            "id": self.problem.id,
            "level": self.problem.level,
            "type": self.problem.type,
            "prompt": self.problem.prompt,
            "gold": self.problem.gold,
            **self._optional_facts(),
            "completion": self.completion,
            "answer": self.verdict.answer,
            **self._value(),
            "verdict": self.verdict.status,
            "reason": self.verdict.reason,
            "reward": float(self.verdict.status == "correct"),
            "length": self.length,
            "finished": self.finished,
            "weight_version": self.weight_version,
            **({"fields": dict(fields)} if (fields := self.problem.fields) else {}),
            **({"strategy": self.strategy} if self.strategy else {}),
            **({"band": self.band} if self.band else {}),
            **({"posterior_band": self.posterior_band} if self.posterior_band else {}),
            **({"flags": list(self.flags)} if self.flags else {}),
            **({"messages": self._messages()} if self.episode else {}),
            **self._token_counts(),
        }

    def _optional_facts(self) -> dict[str, Any]:
        """Returns what only some problems have: further golds, a name of the level."""
        golds, name = self.problem.other_golds, self.problem.level_name
        return ({"other_golds": list(golds)} if golds else {}) | (
            {"level_name": name} if name else {}
        )

    def _value(self) -> dict[str, str]:
        """Returns the answer's value, if it is written in another way."""
        value = self.answer_value
        is_other = value is not None and value != self.verdict.answer
        return {"answer_value": value} if is_other and value else {}

    def _token_counts(self) -> dict[str, int]:
        judged = self.judged_text
        if judged.thinking_tokens is None or judged.answer_tokens is None:
            return {}
        return {
            "thinking_tokens": judged.thinking_tokens,
            "answer_tokens": judged.answer_tokens,
        }

    def _messages(self) -> list[dict[str, str]]:
        messages = self.episode.messages if self.episode else ()
        return [vars(message) for message in messages]


def read_answer_value(row: Mapping[str, Any]) -> str | None:
    """Returns the answer of a line of rollouts/ as its verifier counts it."""
    return row.get("answer_value", row["answer"])


def grade_completions(
    setup: RunSetup, problems: Sequence[Problem], rollouts: Rollouts
) -> list[GradedCompletion]:
    """Returns the graded completions of the first P problems, in group-major order.

    `rollouts` are in NumPy and may have more prompts than there are problems; prompts
    that only filled up a batch are left out. The verifier does not judge an episode if
    the environment gave its own verdict or failed to answer.
    """
    G = len(rollouts.lengths) // len(rollouts.prompts.lengths)
    repeated = [problem for problem in problems for _ in range(G)]
    mask_BT = np.asarray(rollouts.mask)
    token_ids = [rollouts.tokens[b, mask_BT[b]].tolist() for b in range(len(repeated))]
    episodes = rollouts.episodes or (None,) * len(repeated)
    texts = [
        setup.tokenizer.decode(ids) if episode is None else episode.completion
        for ids, episode in zip(token_ids, episodes, strict=False)
    ]
    judged = [
        read_judged_text(
            setup,
            repeated[b],
            texts[b],
            was_cut=_was_cut(setup, rollouts, b, token_ids[b]),
            tokens=token_ids[b],
            episode=episodes[b],
        )
        for b in range(len(repeated))
    ]
    with working(f"grading {len(repeated)} completions"):
        verdicts = _verdicts(setup, repeated, judged, episodes)
    behaviors = [
        behavior.detect_behaviors(
            setup.config.task,
            repeated[b],
            texts[b],
            judged_text=judged[b].text,
            tokens=token_ids[b],
            verdict=verdicts[b],
        )
        for b in range(len(repeated))
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
            episode=episodes[b],
            judged=judged[b],
        )
        for b in range(len(repeated))
    ]


def _was_cut(
    setup: RunSetup, rollouts: Rollouts, row: int, tokens: Sequence[int]
) -> bool:
    """Returns whether the length limit ended what the policy wrote.

    An episode that ended after a finished turn does not count as cut.
    """
    if rollouts.finished[row] or rollouts.episodes is None:
        return not rollouts.finished[row]
    return not tokens or tokens[-1] not in setup.tokenizer.eos_ids


def _verdicts(
    setup: RunSetup,
    problems: Sequence[Problem],
    judged: Sequence[JudgedText],
    episodes: Sequence[Episode | None],
) -> list[Verdict]:
    """Returns the environment's verdicts where it gave any, else the verifier's.

    Unfinished thinking is incorrect regardless of the environment's verdict, unless the
    environment failed.
    """
    verdicts = [
        episode.verdict
        if episode and (episode.failed or not text.is_thinking)
        else None
        for episode, text in zip(episodes, judged, strict=False)
    ]
    open_rows = [b for b, verdict in enumerate(verdicts) if verdict is None]
    verified = iter(
        judge_texts(
            setup, [problems[b] for b in open_rows], [judged[b] for b in open_rows]
        )
    )
    return [next(verified) if verdict is None else verdict for verdict in verdicts]


def training_rows(
    graded: Sequence[GradedCompletion],
    step: int,
    *,
    rewards_PG: Float[np.ndarray, " P G"],
    advantages_PG: Float[np.ndarray, " P G"],
    reward_parts: Mapping[str, Float[np.ndarray, " P G"]],
) -> Iterator[dict[str, Any]]:
    """Yields a training step's completions as lines of rollouts/, with their rewards.

    `reward_parts` are unweighted, and written only if there are several.
    """
    for b, completion in enumerate(graded):
        row = completion.to_json("train", step)
        row["reward"] = float(rewards_PG.flat[b])
        row["advantage"] = float(advantages_PG.flat[b])
        if len(reward_parts) > 1:
            row["reward_parts"] = {
                name: float(part_PG.flat[b]) for name, part_PG in reward_parts.items()
            }
        yield row


def verdicts_by_problem(rows: Iterable[Mapping[str, Any]]) -> Verdicts:
    """Returns each problem's verdicts, in the order of these lines of rollouts/."""
    verdicts: dict[str, list[VerdictStatus]] = {}
    for row in rows:
        verdicts.setdefault(row["id"], []).append(row["verdict"])
    return verdicts
