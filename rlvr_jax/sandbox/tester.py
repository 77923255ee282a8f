"""The process that runs the tests; functions they call run in the program's process.

Tests see proxy functions, which send their arguments there and return the result as
plain data. So a result with an overwritten `__eq__` arrives as its plain contents. An
object of another class stays there, and tests can read, set and call it from here.
"""

import builtins
import random
import traceback
from collections.abc import Callable
from typing import Any

from rlvr_jax.sandbox.messages import MessageError, decode, encode, receive, send

_MAX_SHOWN = 120  # characters of a line or a result in a reason


class _ProgramEnded(BaseException):
    """No answer, or an unreadable one. Tests cannot catch it by accident."""


class _Program:
    """The program's process; remembers its last result, and whether it has ended."""

    def __init__(self, channel: int):
        self._channel = channel
        self.fault = ""
        self.last_call = ""

    def ask(self, request: object) -> Any:
        """Returns the answer to a request, or raises the exception in it."""
        try:
            if self.fault:
                raise _ProgramEnded
            send(self._channel, request)
            answer = receive(self._channel)
            if "error" not in answer:
                return decode(answer["value"], lambda number: _Object(self, number))
            kind, message = answer["error"]
            error = _make_error(kind, message)
        except (EOFError, OSError):
            self.fault = "the program ended"
            raise _ProgramEnded from None
        except (MessageError, RecursionError, KeyError, TypeError, ValueError) as fault:
            self.fault = f"an output that cannot be read ({fault})"
            raise _ProgramEnded from None
        raise error

    def call(self, target: str | int, args: object, kwargs: object) -> Any:
        """Calls a function by name or an object by number, and returns the result."""
        self.last_call = ""
        sent = (encode(args, _number_of), encode(kwargs, _number_of))
        value = self.ask(["call", target, *sent])
        name = target if isinstance(target, str) else "it"
        self.last_call = f"; {name} returned {repr(value)[:_MAX_SHOWN]}"
        return value

    def function(self, name: str) -> Callable[..., Any]:
        """Returns a function that calls the program's function with this name."""
        return lambda *args, **kwargs: self.call(name, args, kwargs)


class _Object:
    """An object in the program's process. It equals no value: `__eq__` cannot lie."""

    __slots__ = ("_place",)

    def __init__(self, program: _Program, number: int):
        object.__setattr__(self, "_place", (program, number))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        program, number = self._place
        return program.ask(["get", number, name])

    def __setattr__(self, name: str, value: object) -> None:
        program, number = self._place
        program.ask(["set", number, name, encode(value, _number_of)])

    def __call__(self, *args: object, **kwargs: object) -> Any:
        program, number = self._place
        return program.call(number, args, kwargs)

    def __repr__(self) -> str:
        return "<an object of the program>"


def _number_of(value: object) -> int:
    """Returns the number of an object in the program's process. Raises MessageError."""
    if isinstance(value, _Object):
        return value._place[1]
    raise MessageError(f"{type(value).__name__} is not plain data")


def serve(channel: int, program_channel: int) -> None:
    """Reads a request, runs its tests, and sends whether they passed, with a reason."""
    random.seed(0)  # so that tests draw the same numbers in every run
    request = receive(channel)
    program = _Program(program_channel)
    reason = _run(program, request)
    passed = not reason and not program.fault
    send(channel, {"passed": passed, "reason": reason or program.fault})


def _run(program: _Program, request: dict[str, Any]) -> str:
    """Returns why the tests fail, "" if they pass."""
    tests = request["tests"]
    functions = {name: program.function(name) for name in request["functions"]}
    try:
        program.ask(request["program"])
        program.last_call = ""
        code = compile(tests, "<tests>", "exec", dont_inherit=True)
        exec(code, {"__name__": "tests", **functions})
    except _ProgramEnded:
        return program.fault
    except BaseException as error:
        name = type(error).__name__
        text = str(error)
        said = text if text.startswith(name) else f"{name}: {text}".rstrip(": ")
        return f"{said[:300]}{_line_of(error, tests)}{program.last_call}"
    return ""


def _line_of(error: BaseException, tests: str) -> str:
    """Returns the line of the tests that the error came from."""
    lines = tests.splitlines()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == "<tests>" and frame.lineno and frame.lineno <= len(lines):
            return f" at {lines[frame.lineno - 1].strip()[:_MAX_SHOWN]!r}"
    return ""


def _make_error(kind: str, message: str) -> Exception:
    """Returns a built-in exception, or a RuntimeError if that is not possible.

    A StopIteration also becomes one, because it would silently end a `map` of the
    tests.
    """
    found = vars(builtins).get(kind)
    if not (isinstance(found, type) and issubclass(found, Exception)):
        return RuntimeError(message)
    if issubclass(found, StopIteration | StopAsyncIteration):
        return RuntimeError(message)
    try:
        return found(message)
    except TypeError:  # for example UnicodeDecodeError, which needs more arguments
        return RuntimeError(message)
