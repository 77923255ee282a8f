"""The door for rewards that need more than a function: one class for each part."""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from rlvr_jax.algorithms.rewards import fill_with_mean
from rlvr_jax.types import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletionTexts:
    """B completions to score, group-major. Written by `rollouts.scores`.

    `was_cut` marks texts that the length limit ended. `grader` grades them by any
    problem (`verifiers.grader.Grader`), and has the judge. `limits` bound a call of a
    custom function (`job_jax.calls.CallLimits`).
    """

    problems: Sequence[Problem]
    texts: Sequence[str]
    was_cut: Sequence[bool]
    group_size: int
    seed: int
    grader: Any
    limits: Any


class Scores(NamedTuple):
    """A score for each text, None or NaN for no opinion; and the calls behind them."""

    values: Sequence[float | None]
    calls: Sequence[Any] | None = None  # job_jax.calls.CallResult, to be reported


class Reward:
    """A part of the reward: it scores texts, and turns scores into rewards.

    Every method has a default: no score, and a reward that is the score, or its group's
    mean where a score is missing. `train.reward.names` takes one of ours or yours, as
    "package.module:Class".

    Example (`mine.py` next to the recipe, `--config.train.reward.names=mine:Votes`):

        class Votes(Reward):
            def score(self, completions):
                texts = completions.texts
                return Scores([float(texts.count(text)) for text in texts])
    """

    # Verifiers that `score` opens; a run tests them before it reads any data
    verifiers: ClassVar[tuple[str, ...]] = ()
    # Whether it is a verdict: where it is not judged, no other part counts either
    is_verdict: ClassVar[bool] = False
    # Whether unfinished thinking keeps a score above 0
    pays_unfinished_thinking: ClassVar[bool] = False

    def check_ready(self, config: Any) -> None:
        """Raises CallError if a service besides its verifiers does not answer.

        Called once before a run reads any data; `config` is the whole run's.
        """

    def score(self, completions: CompletionTexts) -> Scores | None:
        """Returns the texts' scores, None if the part reads only verdicts."""
        return None

    def to_rewards(
        self,
        scores: Float[Array, " P G"],
        correct: Bool[Array, " P G"],
        verified: Bool[Array, " P G"],
    ) -> Float[Array, " P G"]:
        """Returns the rewards of all completions. Called inside jit.

        `scores` are NaN where the part has no opinion, and everywhere if `score`
        returns None.
        """
        return fill_with_mean(scores, self.judges(scores, verified))

    def judges(
        self, scores: Float[Array, " P G"], verified: Bool[Array, " P G"]
    ) -> Bool[Array, " P G"]:
        """Returns which completions it judges itself. Called inside jit."""
        return ~jnp.isnan(scores)
