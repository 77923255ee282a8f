"""Chat templates, rendered by a process with limits of time and memory.

A template is a program that came with a checkpoint. transformers' sandbox keeps it away
from Python's objects; endless loops and `"x" * 10**10` are stopped from outside.
"""

import atexit
import contextlib
import datetime
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from job_jax.closing import Closing

_WORKER_SCRIPT = Path(__file__).with_name("chat_worker.py")
# Importing transformers takes a second; more on a crowded machine.
_START_LIMIT_S = 120.0
_LIMIT_S = 20.0  # for one prompt, which takes a millisecond
# A fixed day for templates that use today's date: a run must give the same prompts
# whenever it is repeated.
_TODAY = datetime.datetime(2026, 1, 1)


class ChatTemplateError(ValueError):
    """A chat template that fails, or costs too much; the message says why."""


class ChatRenderer(Closing):
    """Renders chat templates in one process, which starts with the first template.

    Calls may come from any thread and take turns.
    """

    def __init__(self, *, limit_s: float = _LIMIT_S):
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def close(self) -> None:
        """Stops the process; a later call would start a new one."""
        with self._lock:
            if self._worker is not None:
                self._worker.stop()
            self._worker = None

    def render(self, template: str, messages: Sequence[dict[str, str]]) -> str:
        """Returns the messages as the template writes them. Raises ChatTemplateError.

        Raises RuntimeError if the process does not start.
        """
        with self._lock:
            worker = self._worker or _Worker(self._limit_s)
            self._worker = None  # after a timeout it may still send a late reply
            try:
                is_text, text = worker.ask([template, list(messages)])
                self._worker = worker
            except TimeoutError as error:
                raise ChatTemplateError(
                    f"it takes more than {self._limit_s:g} s for one prompt"
                ) from error
            except ConnectionError as error:
                raise ChatTemplateError("it ended the process that wrote it") from error
            finally:
                if self._worker is None:
                    worker.stop()
        if not is_text:
            raise ChatTemplateError(text)
        return text


class _Worker:
    """The process, and the socket to it. Each direction has a file of lines."""

    def __init__(self, limit_s: float):
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_WORKER_SCRIPT), str(limit_s)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the parent to handle
                env=os.environ | {"TRANSFORMERS_VERBOSITY": "error"},
            )
        self._requests = self._socket.makefile("w")
        self._replies = self._socket.makefile("r")
        self._socket.settimeout(_START_LIMIT_S)
        try:
            self._receive()
        except OSError as error:
            self.stop()
            raise RuntimeError(
                "the process that renders chat templates does not start; see what "
                f"`{sys.executable} -c 'import transformers'` says"
            ) from error
        self._socket.settimeout(limit_s)

    def ask(self, request: list[object]) -> tuple[bool, str]:
        """Returns the reply. Raises TimeoutError, or ConnectionError if it died."""
        self._requests.write(json.dumps(request) + "\n")
        self._requests.flush()
        is_text, text = json.loads(self._receive())
        return is_text, text

    def stop(self) -> None:
        """Ends the process in any state."""
        self._process.kill()
        with contextlib.suppress(OSError):  # a request that it has not read
            self._requests.close()
        self._replies.close()
        self._socket.close()
        self._process.wait()

    def _receive(self) -> str:
        if not (line := self._replies.readline()):
            raise ConnectionResetError("the other end is closed")
        return line


_RENDERER = ChatRenderer()
atexit.register(_RENDERER.close)


def render_chat(template: str, messages: Sequence[dict[str, str]]) -> str:
    """Returns the messages as a chat template writes them, ready for an answer.

    transformers renders it, in its sandbox and in a separate process, with limits of
    time and memory. `bos_token` and `eos_token` are empty unless the template sets
    them, and `strftime_now` uses a fixed day. Raises ChatTemplateError.

    Example:
        >>> render_chat(
        ...     "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}",
        ...     [{"role": "user", "content": "1+1?"}],
        ... )
        '<user>1+1?'
    """
    return _RENDERER.render(_strftime_macro() + template, messages)


def _strftime_macro() -> str:
    """Returns a Jinja macro `strftime_now` that uses `_TODAY`, not today's date."""
    replacements = "".join(
        f" | replace({'%' + code!r}, {_TODAY.strftime('%' + code)!r})"
        for code in "aAbBdHIjmMpSwyY"
    )
    return (
        "{%- macro strftime_now(format) -%}{{ format"
        + replacements
        + " }}{%- endmacro -%}"
    )
