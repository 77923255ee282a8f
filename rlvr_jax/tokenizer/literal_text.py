"""Finds the data's own text in the string that a template writes around it.

If a problem, or a tool's answer, contains "<|im_end|>", this must not end a turn. The
template's own control tokens must. Both are in one string, so a template is filled in
twice: unchanged, and with marks around the data's text that show where it is.
"""

import re
from collections.abc import Callable, Sequence

from job_jax.schema import ConfigError
from rlvr_jax.tokenizer.base import Spans

# Characters of the private use area, which no text should contain.
_OPEN, _CLOSE = "\ue0f2", "\ue0f3"
_MARK = re.compile(f"[{_OPEN}{_CLOSE}]")
_MAY_SPELL_A_TOKEN = re.compile("[<\\[|\uff5c]")


class LiteralTextError(ConfigError):
    """A template changes text that may spell out a control token; it says which."""


def whole_text(text: str) -> Spans:
    """Returns the span of all of a text."""
    return ((0, len(text)),)


def write_literal(
    write: Callable[[Sequence[str]], str], texts: Sequence[str]
) -> tuple[str, Spans]:
    """Returns the string that `write` makes of the texts, and their spans in it.

    Texts without a character that begins a control token have no span; if none has one,
    `write` is called once. White space at a text's ends is in no span, since templates
    may strip it. Raises LiteralTextError if `write` changes a marked text.

    >>> write_literal(lambda texts: f"user: {texts[0]}!", ["a <b>"])
    ('user: a <b>!', ((6, 11),))
    """
    plain = write(texts)
    marked = [
        _mark(text) if _MAY_SPELL_A_TOKEN.search(text) else text for text in texts
    ]
    if marked == list(texts):
        return plain, ()
    written = write(marked)
    ends = [found.start() - n for n, found in enumerate(_MARK.finditer(written))]
    spans = tuple(zip(ends[::2], ends[1::2], strict=False))
    if not spans or _MARK.sub("", written) != plain or len(ends) % 2:
        text = next(t for t, m in zip(texts, marked, strict=True) if t != m)
        raise LiteralTextError(
            f"the template rewrites the text {text!r:.60}, which may spell out a "
            "control token, and the template's own tokens cannot be kept apart from "
            "it; give a template that keeps texts as they are"
        )
    return plain, spans


def _mark(text: str) -> str:
    """Returns the text with marks around it, white space at its ends outside."""
    core = text.strip()
    start = text.index(core)
    return f"{text[:start]}{_OPEN}{core}{_CLOSE}{text[start + len(core) :]}"
