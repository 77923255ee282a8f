"""What completions do, beside being right: strategies, and ways to go wrong.

A flag is a sign, not a verdict; what it means is the share of completions that carry
it, by band, over the steps. From the completion alone:

    repetition      half or more of its 4-grams of tokens are repeats
    repeated_answer it states an answer more than twice
    bare_answer     an answer and no working
    skipped_steps   right, without the steps that lead there
    no_aggregation  the working is there, the answer is not drawn from it

From what was known of the problem before:

    lucky_guess     right, on a problem whose band was hard
    forgotten       wrong, on a problem solved at its last visit and not at this one

The names are those of https://arxiv.org/abs/2605.28388, the detectors ours. In the
finite-field world steps are read and checked one by one; in free text a step is
anything with an equals sign.
"""

import dataclasses
import re
from collections.abc import Sequence

from rlvr_jax.config import TaskConfig
from rlvr_jax.tasks.traces import TraceReport, read_trace
from rlvr_jax.types import Problem, Verdict

FLAGS = (
    "repetition",
    "repeated_answer",
    "bare_answer",
    "skipped_steps",
    "no_aggregation",
    "lucky_guess",
    "forgotten",
)

_NGRAM = 4
_FEWEST_NGRAMS = 16  # a shorter text repeats itself by accident
_REPEATED_SHARE = 0.5
_MOST_ANSWERS = 2  # an answer and its restatement
_BARE_WORDS = 8  # "The answer is" and the like
_STATED = re.compile(
    r"\\boxed\s*\{|<answer>|####|\banswer\b(?:\s+is\b|\s*[:=])", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observed:
    """What one completion did. `strategy` is None for tasks that know none."""

    strategy: str | None
    flags: tuple[str, ...]


def observe(
    task: TaskConfig,
    problem: Problem,
    completion: str,
    *,
    tokens: Sequence[int],
    verdict: Verdict,
) -> Observed:
    """Returns the strategy and the flags that a completion shows by itself.

    In the finite-field world the strategy is "forward", "backward", "mixed" or "none".
    """
    is_right = verdict.status == "right"
    if task.kind == "finite_field":
        report = read_trace(problem.prompt, completion, modulus=task.modulus)
        found = _of_trace(report, is_right)
        found["repeated_answer"] = completion.split().count("answer") > _MOST_ANSWERS
        strategy: str | None = report.strategy
    else:
        found, strategy = _of_text(completion, is_right), None
    found["repetition"] = repeated_share(tokens) >= _REPEATED_SHARE
    return Observed(
        strategy=strategy, flags=tuple(flag for flag in FLAGS if found.get(flag))
    )


def repeated_share(tokens: Sequence[int]) -> float:
    """Returns the share of 4-grams that stood before; 0 for a text of few."""
    count = len(tokens) - _NGRAM + 1
    if count < _FEWEST_NGRAMS:
        return 0.0
    grams = {tuple(tokens[at : at + _NGRAM]) for at in range(count)}
    return 1.0 - len(grams) / count


def _of_trace(report: TraceReport, is_right: bool) -> dict[str, bool]:
    sound = report.complete and report.first_error is None
    bare = not report.steps and report.answer is not None
    return {
        "bare_answer": bare,
        "skipped_steps": is_right and not sound and not bare,
        # The steps arrive at the right answer, and it is not what is stated.
        "no_aggregation": sound and report.consistent_start and not is_right,
    }


def _of_text(completion: str, is_right: bool) -> dict[str, bool]:
    stated = [match.start() for match in _STATED.finditer(completion)]
    working = completion[: stated[0]] if stated else completion
    has_steps = "=" in working
    bare = not has_steps and len(working.split()) <= _BARE_WORDS
    return {
        "repeated_answer": len(stated) > _MOST_ANSWERS,
        "bare_answer": bare,
        "skipped_steps": is_right and not has_steps and not bare,
        "no_aggregation": has_steps and not stated and not is_right,
    }
