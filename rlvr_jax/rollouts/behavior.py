"""What completions do besides being right: strategies, and ways to go wrong.

A flag on a single completion is only a hint. What counts is the share of completions
that carry it, by band, over the steps. From the completion alone:

    repetition      at least half of its token 4-grams are repeats
    repeated_answer it states an answer more than twice
    bare_answer     an answer without working
    skipped_steps   right, but without the steps that lead there
    guessed_start   right, and the steps are right, but they begin by guessing the
                    answer
    no_aggregation  it has working, but does not draw the answer from it

From the problem's history before the step:

    lucky_guess     right, on a problem that was hard before RL and whose posterior has
                    not settled on another band
    first_success   right, on a problem that was hard before RL and never solved since;
                    this may be luck, even if later samples succeed
    forgotten       wrong, on a problem solved at its previous visit but not at this one

The names come from https://arxiv.org/abs/2605.28388; the detectors are ours. In the
finite-field world, steps are read and checked one by one. In free text, a step is
anything with an equals sign.

The format is how a completion gives its answer: by a mark (tagged, boxed, hashes,
statement), "unmarked" if the verifier found an answer without a mark, else "none".
"""

import dataclasses
import re
import typing
from collections.abc import Sequence

from rlvr_jax.config.task import Task
from rlvr_jax.types import Problem, Verdict
from rlvr_jax.verifiers.answers.statements import Mark
from rlvr_jax.verifiers.base import get_verifier
from rlvr_jax.verifiers.confidence import strip_confidence

FLAGS = (
    "repetition",
    "repeated_answer",
    "bare_answer",
    "skipped_steps",
    "guessed_start",
    "no_aggregation",
    "lucky_guess",
    "first_success",
    "forgotten",
)
# Flags of right answers that count as luck, if the task reads the steps.
UNEARNED_FLAGS = {
    "wrong_steps": {"bare_answer", "skipped_steps"},
    "guessed_start": {"guessed_start"},
}
FORMATS = (*typing.get_args(Mark), "unmarked", "none")

_NGRAM = 4
_MIN_NGRAMS = 16  # a shorter text repeats itself by accident
_MIN_REPEATED_FRACTION = 0.5
_MAX_ANSWERS = 2  # an answer and its restatement
_MAX_BARE_WORDS = 8  # "The answer is" and the like
_ANSWER_PATTERN = re.compile(
    r"\\boxed\s*\{|<answer>|####|\banswer\b(?:\s+is\b|\s*[:=])", re.IGNORECASE
)
# A few words between marks of one answer; longer texts are not even tried.
_MAX_WITHIN = 40
_WITHIN_A_STATEMENT = re.compile(r"(?:[^\w.!?\n]*[^\W\d_]+){0,3}[^\w.!?\n]*")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompletionBehavior:
    """What one completion did. `strategy` is None for tasks without strategies."""

    strategy: str | None
    flags: tuple[str, ...]
    format: str  # of FORMATS


def detect_behaviors(
    task: Task,
    problem: Problem,
    completion: str,
    *,
    tokens: Sequence[int],
    verdict: Verdict,
    judged_text: str | None = None,
) -> CompletionBehavior:
    """Returns the strategy, flags and format that show in the completion alone.

    The task analyzes the completions that it can read. Others are read as free text,
    which shows no strategy. The format is read from `judged_text`, by default the
    completion.
    """
    is_correct = verdict.status == "correct"
    behavior = task.behavior(problem, completion, is_correct=is_correct)
    strategy = behavior.strategy if behavior else None
    found = dict(behavior.flags) if behavior else _text_flags(completion, verdict)
    found["repetition"] = repeated_ngram_fraction(tokens) >= _MIN_REPEATED_FRACTION
    return CompletionBehavior(
        strategy=strategy,
        flags=tuple(flag for flag in FLAGS if found.get(flag)),
        format=_answer_format(
            problem, completion if judged_text is None else judged_text, verdict
        ),
    )


def repeated_ngram_fraction(tokens: Sequence[int]) -> float:
    """Returns the share of 4-grams that are repeats; 0 for a short text."""
    count = len(tokens) - _NGRAM + 1
    if count < _MIN_NGRAMS:
        return 0.0
    grams = {tuple(tokens[at : at + _NGRAM]) for at in range(count)}
    return 1.0 - len(grams) / count


def _find_statements(completion: str) -> list[int]:
    r"""Returns where each statement of an answer begins.

    Marks of one answer are one statement: `the answer is \boxed{12}`.
    """
    starts, end = list[int](), 0
    for mark in _ANSWER_PATTERN.finditer(completion):
        start = mark.start()
        is_near = bool(starts) and start - end <= _MAX_WITHIN
        if not (is_near and _WITHIN_A_STATEMENT.fullmatch(completion, end, start)):
            starts.append(start)
        end = mark.end()
    return starts


def _answer_format(problem: Problem, completion: str, verdict: Verdict) -> str:
    """Returns how the answer is given, from marks in the text and from the verdict."""
    text = strip_confidence(completion)
    mark = get_verifier(problem.verifier).find_mark(problem, text)
    has_answer = bool(verdict.answer) or verdict.status == "correct"
    return mark or ("unmarked" if has_answer else "none")


def _text_flags(completion: str, verdict: Verdict) -> dict[str, bool]:
    is_correct = verdict.status == "correct"
    stated = _find_statements(completion)
    working = completion[: stated[0]] if stated else completion
    has_steps = "=" in working
    has_answer = bool(stated or verdict.answer or is_correct)
    is_short = not has_steps and len(working.split()) <= _MAX_BARE_WORDS
    bare = has_answer and is_short
    return {
        "repeated_answer": len(stated) > _MAX_ANSWERS,
        "bare_answer": bare,
        "skipped_steps": is_correct and not has_steps and not bare,
        "no_aggregation": has_steps and not stated and not is_correct,
    }
