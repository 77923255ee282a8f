"""Control tokens: which tokens carry no text, and how text may spell one out.

A control token frames a conversation or ends it: <|im_start|>, <|im_end|>, <s>, <pad>.
A mark such as <think> or </answer> is part of the policy's text, even if it is a
special token of the vocabulary: verifiers, rewards and environments must see it.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from rlvr_jax.tokenizer.base import Spans
from rlvr_jax.tokenizer.chat import ChatTemplateError, render_chat

_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)>")
# Model makers' spelling of role tokens; some vocabularies do not flag them as special.
_FRAMED = re.compile(r"<([|\uff5c]).+\1>", re.DOTALL)
_TURNS = (
    {"role": "user", "content": "1"},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "3"},
)
_SYSTEM = {"role": "system", "content": "0"}
# Characters of the private use area, which no text contains.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"


def find_role_tokens(tokens: Collection[str], template: str) -> set[str]:
    """Returns which of the tokens a chat template writes around messages.

    The template is rendered, with a system message and without one. If it refuses both,
    its source text is searched.
    """
    if not template:
        return set()
    renderings = []
    for messages in ([_SYSTEM, *_TURNS], [*_TURNS]):
        try:
            renderings.append(render_chat(template, messages))
        except ChatTemplateError:
            continue
    text = "".join(renderings) or template
    return {token for token in tokens if token in text}


def is_tag(token: str, added: Collection[str], template: str) -> bool:
    """Returns whether a token is one of a pair: <name> if </name> is known as well.

    The other one is an added token, or appears in the template's text. Such tags are
    marks and not roles, even if the template writes them.
    """
    found = _TAG.fullmatch(token)
    if found is None:
        return False
    slash, name = found.groups()
    other = f"<{name}>" if slash else f"</{name}>"
    return other in added or other in template


def is_framed(token: str) -> bool:
    """Returns whether a token is spelled like <|name|>."""
    return _FRAMED.fullmatch(token) is not None


class TextEncoder:
    """Encodes text in which some control tokens are spelled out and stay text.

    It is the tokenizer with its control tokens renamed to strings that no text
    contains. Real control tokens are written by their new name; the old name is
    ordinary text everywhere else. All other steps are the tokenizer's own.
    """

    def __init__(self, backend: Any, control: Mapping[str, int]):
        self._pattern = re.compile(
            "|".join(map(re.escape, sorted(control, key=len, reverse=True)))
        )
        self._renamed = {
            token: f"{_OPEN}{number}{_CLOSE}" for token, number in control.items()
        }
        settings = json.loads(backend.to_str())
        ids = {}
        for token in settings["added_tokens"]:
            token["content"] = self._renamed.get(token["content"], token["content"])
            ids[token["content"]] = token["id"]
        self._backend = type(backend).from_str(json.dumps(settings))
        # A renamed token that was also in the model's vocabulary now has another id.
        self._ids = {self._backend.token_to_id(name): ids[name] for name in ids}

    def spelled_out(self, text: str, literal: Spans) -> bool:
        """Returns whether a control token is spelled out in one of the spans."""
        return any(
            start <= found.start() and found.end() <= end
            for found in self._pattern.finditer(text)
            for start, end in literal
        )

    def encode(self, text: str, literal: Spans) -> list[int]:
        """Returns the ids of `text`; in the spans control tokens are not recognized."""
        parts = []
        at = 0
        for start, end in [*literal, (len(text), len(text))]:
            frame = text[at:start]
            parts += [self._pattern.sub(lambda m: self._renamed[m[0]], frame)]
            parts += [text[start:end]]
            at = end
        encoded = self._backend.encode("".join(parts), add_special_tokens=False)
        return [self._ids.get(number, number) for number in encoded.ids]
