"""Environments of the library `verifiers` (0.1), as our task and environment.

The library drives a model through its own client. Our client plays back the policy's
turns so far, and stops when the model must speak next. The messages that the
environment has added by then are its reply. So every reply reruns an episode's tools
from the beginning, and the tools must be repeatable.

Versions from 0.2 on have other environments, which call an endpoint; we refuse them.
"""

import dataclasses
import functools
import importlib
import json
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from job_jax.schema import ConfigError, check
from rlvr_jax.config.environment import Environment
from rlvr_jax.config.task import ChatTask, Stage
from rlvr_jax.tasks.records.prompts import fill_chat_template
from rlvr_jax.tokenizer import Spans, whole_text, write_literal
from rlvr_jax.types import Message, Problem, Reply, Verdict, VerdictStatus

_CALL_BEGIN, _CALL_END = "<tool_call>", "</tool_call>"
_TOOL_CALL = re.compile(rf"{_CALL_BEGIN}(.*?){_CALL_END}", re.DOTALL)


@functools.cache
def load_environment(env: str, args: str) -> Any:
    """Returns the library's environment with that id. Raises ConfigError.

    `args` are its arguments as a JSON object.
    """
    try:
        library = importlib.import_module("verifiers")
    except ImportError as error:
        raise ConfigError(
            "environments of the library verifiers need the extra verifiers: pip "
            f"install 'rlvr_jax[verifiers]' ({error})"
        ) from error
    try:
        _ = library.MultiTurnEnv  # loaded lazily, so it is not in the module's vars
    except AttributeError as error:
        version = vars(library).get("__version__", "unknown")
        raise ConfigError(
            f"verifiers {version} has no MultiTurnEnv; install a version below 0.2"
        ) from error
    try:
        given = json.loads(args)
        return library.load_environment(env, **given)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise ConfigError(
            f"task.env={env!r} with args={args}: {reason:.300}"
        ) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiersTask(ChatTask):
    """The data set of one of the library's environments (docs/use/environments.md)."""

    checks_golds: ClassVar[bool] = False

    env: str = ""  # its id
    args: str = "{}"  # arguments of its load_environment, as a JSON object

    def problems(self, stage: Stage, *, seed: int) -> list[Problem]:
        """Returns the rows of the environment's data set, or its evaluation set."""
        split = "eval" if stage == "eval" else "train"
        rows = _read_rows(self.env, self.args, split)
        return [
            Problem(
                id=f"{self.env}-{split}-{number}",
                prompt=prompt,
                literal=literal,
                gold=str(row.get("answer", "")),
                verifier="exact",  # never used: the environment judges
                source=f"{self.env} {self.args}",  # `respond` reads both back
            )
            for number, row in enumerate(rows)
            for prompt, literal in [self._format_prompt(row["prompt"])]
        ]

    def _format_prompt(self, messages: Any) -> tuple[str, Spans]:
        """Returns the prompt, and the ranges of the messages' own texts in it."""
        if isinstance(messages, str):
            return messages, whole_text(messages)

        def write(contents: Sequence[str]) -> str:
            if not self.applies_chat_template:
                return "\n".join(contents)
            told = [
                {**message, "content": content}
                for message, content in zip(messages, contents, strict=True)
            ]
            return fill_chat_template(
                self.chat_template, told, field=self.chat_template_field
            )

        return write_literal(write, [_content(message) for message in messages])


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiersEnvironment(Environment):
    """Replies like one of the library's environments, and judges by its rubric."""

    min_reward: float = 1.0  # the rubric's lowest reward of a correct episode

    @property
    def marks(self) -> tuple[str, ...]:
        """Returns the tags around a tool call."""
        return (_CALL_BEGIN, _CALL_END)

    def check_config(self, config: Any) -> None:
        """Raises ConfigError if the problems come from another task."""
        super().check_config(config)
        check(
            isinstance(config.task, VerifiersTask),
            f"environment.name={self.tags()[self.tag]} answers on its own problems; "
            "set task.source=verifiers and task.env",
        )

    async def respond(self, problem: Problem, messages: Sequence[Message]) -> Reply:
        """Returns the environment's messages; done with a verdict when it stops."""
        name, _, args = problem.source.partition(" ")
        *_, split, number = problem.id.split("-")
        env = load_environment(name, args)
        row = _read_rows(name, args, split)[int(number)]
        turns = [message.text for message in messages if message.role == "policy"]
        client = _make_client(turns)
        try:
            state = await env.rollout(dict(row), client, "policy", {})
        except _TurnNeededError as needed:
            return _make_reply(needed.prompt)
        if state.get("error") is not None:
            raise state["error"]
        await env.rubric.score_rollout(state)
        reward = float(state["reward"])
        status: VerdictStatus = "correct" if reward >= self.min_reward else "incorrect"
        return Reply(
            done=True, verdict=Verdict(status=status, reason=f"reward {reward:g}")
        )


class _TurnNeededError(Exception):
    """The policy's turns are used up; `prompt` is the one that it must answer."""

    def __init__(self, prompt: Sequence[Any]):
        super().__init__("the policy's turn")
        self.prompt = prompt


def _make_client(turns: Sequence[str]) -> Any:
    """Returns a client of the library that answers with these turns, one by one."""
    library = importlib.import_module("verifiers")
    types = importlib.import_module("verifiers.types")

    async def get_response(self: Any, prompt: Any, **_: Any) -> Any:
        text = next(self.turns, None)
        if text is None:
            raise _TurnNeededError(prompt)
        calls = [types.ToolCall(**call) for call in _read_tool_calls(text)]
        message = types.ResponseMessage(
            content=_TOOL_CALL.sub("", text).strip() if calls else text,
            tool_calls=calls or None,
            finish_reason="tool_calls" if calls else "stop",
            is_truncated=False,
        )
        return types.Response(
            id=uuid.uuid4().hex,
            created=int(time.time()),
            model="policy",
            message=message,
        )

    methods = dict.fromkeys(library.Client.__abstractmethods__)
    client_class = type(
        "PlayedBack",
        (library.Client,),
        {**methods, "__init__": lambda self: None, "get_response": get_response},
    )
    client = client_class()
    client.turns = iter(turns)
    return client


def _read_tool_calls(text: str) -> list[dict[str, str]]:
    """Returns the calls in a turn, as Hermes and Qwen write them; {} is left out.

    `<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>`
    """
    calls = []
    for number, written in enumerate(_TOOL_CALL.findall(text)):
        try:
            call = json.loads(written)
            name, arguments = str(call["name"]), json.dumps(call.get("arguments", {}))
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # not a call: the environment sees a text
        calls.append({"id": f"call-{number}", "name": name, "arguments": arguments})
    return calls


def _make_reply(prompt: Sequence[Any]) -> Reply:
    """Returns the messages after the policy's last turn."""
    roles = [_field(message, "role") for message in prompt]
    last = len(roles) - 1 - roles[::-1].index("assistant")
    new = prompt[last + 1 :]
    return Reply(
        text="\n".join(_content(message) for message in new),
        tool_calls=roles[last + 1 :].count("tool"),
    )


def _field(message: object, name: str) -> Any:
    return message[name] if isinstance(message, Mapping) else vars(message)[name]


def _content(message: object) -> str:
    """Returns a message's text; if it has several parts, the text parts."""
    content = _field(message, "content")
    if isinstance(content, str):
        return content
    parts = [
        part if isinstance(part, Mapping) else vars(part) for part in content or ()
    ]
    return "\n".join(str(part.get("text", "")) for part in parts)


@functools.cache
def _read_rows(env: str, args: str, split: str) -> list[dict[str, Any]]:
    """Returns the rows of a data set. Raises ConfigError if there is none."""
    environment = load_environment(env, args)
    read = environment.get_eval_dataset if split == "eval" else environment.get_dataset
    try:
        return [dict(row) for row in read()]
    except ValueError as error:
        raise ConfigError(
            f"task.env={env!r} has no {split} problems: {error}"
        ) from error
