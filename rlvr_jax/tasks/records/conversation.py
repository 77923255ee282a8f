"""Reads a record's question, which may be a text or a conversation of messages."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal

from job_jax.schema import ConfigError
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.values import get_value, read_text, to_text

Role = Literal["system", "user", "assistant"]
Turn = tuple[Role, str]

# As chats spell them, and as ShareGPT's `from` does
_ROLES: Mapping[str, Role] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "human": "user",
    "gpt": "assistant",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """The last question of a user, the turns before it, and the reply after it.

    `reply` is "" unless the conversation ends in a turn of the assistant.
    """

    text: str
    earlier: tuple[Turn, ...] = ()
    reply: str = ""


def read_question(record: Mapping[str, object], config: RecordConfig) -> Question:
    """Returns the question in `prompt_field`: a text, or a list of messages.

    A message is {"role": ..., "content": ...} or {"from": ..., "value": ...}. Its
    content may be a list of texts, but not an image. Raises ConfigError.
    """
    field = config.prompt_field
    value = get_value(record, field)
    if not isinstance(value, list):
        return Question(text=read_text(record, field, "prompt_field"))
    turns = [
        turn
        for number, message in enumerate(value)
        if (turn := _read_turn(message, f"{field}.{number}"))[1].strip()
    ]
    reply = turns.pop()[1] if turns and turns[-1][0] == "assistant" else ""
    if not turns or turns[-1][0] != "user":
        raise ConfigError(
            f"{field!r} has no question: a conversation needs a message of the user "
            "at its end, or before the assistant's last one"
        )
    earlier = tuple(turns[:-1])
    if config.chat_template == "" and any(role != "system" for role, _ in earlier):
        raise ConfigError(
            f"{field!r} has {len(turns)} turns, which only a chat template can put "
            "into one prompt; set task.record.chat_template, or name the last question "
            f"alone (task.record.prompt_field={field}.-1.content)"
        )
    return Question(text=turns[-1][1], earlier=earlier, reply=reply)


def write_question(text: str, earlier: Sequence[Turn]) -> str | list[dict[str, str]]:
    """Returns what `read_question` reads as this text after these turns."""
    if not earlier:
        return text
    turns: list[Turn] = [*earlier, ("user", text)]
    return [{"role": role, "content": content} for role, content in turns]


def _read_turn(message: object, place: str) -> Turn:
    names = ("role", "content")
    if isinstance(message, Mapping) and "from" in message:
        names = ("from", "value")
    if not isinstance(message, Mapping) or not set(names) <= set(message):
        raise ConfigError(
            f'{place!r} is {message!r:.40}, not a message {{"role": ..., "content": '
            "...}; write the question as a text or as such messages"
        )
    role, content = (message[name] for name in names)
    if not isinstance(role, str) or role not in _ROLES:
        raise ConfigError(
            f"{place!r} has the role {role!r:.40}; use one of system, user, assistant"
        )
    return _ROLES[role], _read_content(content, f"{place}.{names[1]}")


def _read_content(content: object, place: str) -> str:
    """Returns the text of a message, which may be in several parts."""
    if content in (None, ""):
        return ""
    if not isinstance(content, list):
        return to_text(content, place)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(part, Mapping) or kind != "text":
            raise ConfigError(
                f"{place!r} has a part of type {kind!r:.40}; only texts can be read"
            )
        texts.append(to_text(part.get("text"), place))
    return "\n".join(texts)
