"""The part of a completion that is judged: with thinking on, the text after it."""

import dataclasses
from collections.abc import Sequence

from rlvr_jax.config import EnvironmentConfig
from rlvr_jax.run.setup import RunSetup
from rlvr_jax.tokenizer import Tokenizer
from rlvr_jax.types import Episode, Problem, Verdict
from rlvr_jax.verifiers.thinking import (
    NOT_FINISHED,
    THINK_CLOSE,
    is_thinking,
    opens_thinking,
    strip_thinking,
)
from rlvr_jax.verifiers.truncation import reject_cut_answers


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgedText:
    """The text of a completion that verifiers and rewards read.

    If `is_thinking`, the thinking has not ended and `text` is empty. If `was_cut`, the
    length limit ended the text. Token counts are None if thinking is off.
    """

    text: str
    is_thinking: bool = False
    was_cut: bool = False
    thinking_tokens: int | None = None
    answer_tokens: int | None = None


def read_judged_text(
    setup: RunSetup,
    problem: Problem,
    completion: str,
    *,
    was_cut: bool = False,
    tokens: Sequence[int] = (),
    episode: Episode | None = None,
) -> JudgedText:
    """Returns the part of a completion that is judged, by `tokenizer.thinking`.

    `tokens` are the policy's own tokens, which are counted. In an episode, the last
    turn decides whether the thinking has ended.
    """
    if not setup.config.tokenizer.thinks:
        return JudgedText(text=completion, was_cut=was_cut)
    last, opened = completion, opens_thinking(problem.prompt)
    if episode is not None and (turns := episode.policy_turns):
        last = turns[-1]
        if len(turns) > 1:
            opened = _reply_opens_thinking(setup.config.environment)
    is_open = is_thinking(last, opened=opened)
    length = len(tokens) if is_open else thinking_length(tokens, setup.tokenizer)
    return JudgedText(
        text="" if is_open else strip_thinking(completion),
        is_thinking=is_open,
        was_cut=was_cut,
        thinking_tokens=length,
        answer_tokens=len(tokens) - length,
    )


def _reply_opens_thinking(environment: EnvironmentConfig) -> bool:
    return opens_thinking(environment.format_reply("."))


def thinking_length(ids: Sequence[int], tokenizer: Tokenizer) -> int:
    """Returns the number of tokens up to and including the end of the last </think>.

    It is 0 without a </think>. Bisection works because the number of marks never falls
    as ids are added.
    """

    def count(length: int) -> int:
        return tokenizer.decode(ids[:length]).count(THINK_CLOSE)

    total = count(len(ids))
    low, high = 0, len(ids) if total else 0
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if count(middle) == total else (middle + 1, high)
    return high


def judge_texts(
    setup: RunSetup, problems: Sequence[Problem], texts: Sequence[JudgedText]
) -> list[Verdict]:
    """Returns the verdicts of the problems' verifiers on these texts.

    Unfinished thinking is incorrect and never reaches the verifier. An answer that the
    length limit cut is incorrect too.
    """
    asked = [b for b, text in enumerate(texts) if not text.is_thinking]
    own_problems = [problems[b] for b in asked]
    own_texts = [texts[b].text for b in asked]
    verdicts = reject_cut_answers(
        own_problems,
        own_texts,
        setup.verifier(own_problems, own_texts),
        was_cut=[texts[b].was_cut for b in asked],
    )
    by_row = dict(zip(asked, verdicts, strict=True))
    unfinished = Verdict(status="incorrect", reason=NOT_FINISHED)
    return [by_row.get(b, unfinished) for b in range(len(texts))]
