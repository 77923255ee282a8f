"""Calls functions that a user supplies, with a time limit, and counts their failures.

A plain function is called for one item after the other. In the main thread a timer
interrupts a call that exceeds its limit, even inside a regular expression or a blocking
read. In any other thread each call gets its own thread, which is abandoned at the
limit.

A coroutine function runs for many items at a time, in an event loop with its own
thread; a call that exceeds its limit is canceled. No thread of this module keeps the
process from ending.
"""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import inspect
import math
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

Failure = Literal["time_limit", "error"]
ValueT = TypeVar("ValueT")

_REPEAT_S = 1.0  # until the next interruption, for a call that swallowed the first
_POLL_S = 0.5  # how often a caller checks that the event loop still turns
_LOOP_GRACE_S = 10.0  # beyond an item's time, before the loop counts as blocked
_MAX_REASON = 200  # characters


class CallError(RuntimeError):
    """A user's function failed, and the run must stop. The message is one line."""


class CallResult(NamedTuple):
    """The value of one call or the reason for its failure, and its seconds."""

    value: Any = None
    failure: Failure | None = None
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallLimits:
    """Limits on calls: seconds for each, and how many coroutines run at a time."""

    timeout_s: float
    concurrency: int = 1


class Settled(Protocol):
    """An object with `failure` and `reason`: a `CallResult`, or made from one."""

    @property
    def failure(self) -> Failure | None:
        """Returns how it failed, or None if it succeeded."""

    @property
    def reason(self) -> str:
        """Returns why it failed, for messages."""


class _Overrun(BaseException):
    """Raised inside a call at its time limit; `except Exception` does not catch it."""


def call_each(
    function: Callable[..., Any],
    arguments: Sequence[tuple[object, ...]],
    limits: CallLimits,
) -> list[CallResult]:
    """Returns the outcome of `function(*arguments[i])` for each i, in order.

    An exception becomes the call's outcome, except KeyboardInterrupt, which is raised.
    Raises CallError if a coroutine blocks the event loop, because no other call could
    continue.

    Example:
        >>> limits = CallLimits(timeout_s=5.0)
        >>> for outcome in call_each(lambda x: 1 / x, [(2,), (0,)], limits):
        ...     print(outcome.value, outcome.failure, outcome.reason)
        0.5 None
        None error ZeroDivisionError: division by zero
    """
    if is_coroutine_function(function):
        return _call_together(function, arguments, limits)
    if threading.current_thread() is not threading.main_thread():
        return [_call_aside(function, args, limits.timeout_s) for args in arguments]
    with _alarm() as alarm:
        return [_call(function, args, limits.timeout_s, alarm) for args in arguments]


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Returns whether a call must be awaited: `async def`, or an async `__call__`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )


def start_aside(function: Callable[[], ValueT]) -> Callable[[], ValueT]:
    """Starts a call in a new thread; returns a function that waits for its value.

    That function also raises the call's exception. The thread does not keep the process
    from ending.
    """
    return _DaemonThreads().submit(function).result


def check_any_succeeded(name: str, outcomes: Sequence[Settled]) -> None:
    """Raises CallError if all of several calls of `name` failed.

    One failure may be the item's fault; if all fail, it is the function's.
    """
    if len(outcomes) > 1 and all(outcome.failure for outcome in outcomes):
        raise CallError(
            f"{name} failed on all of {len(outcomes)} completions; the first: "
            f"{outcomes[0].reason}"
        )


def call_metrics(outcomes: Sequence[CallResult]) -> dict[str, float]:
    """Returns the fractions `time_limit` and `failed`, and seconds: mean, maximum."""
    count = max(len(outcomes), 1)
    seconds = [outcome.seconds for outcome in outcomes] or [math.nan]
    return {
        "time_limit": sum(o.failure == "time_limit" for o in outcomes) / count,
        "failed": sum(o.failure == "error" for o in outcomes) / count,
        "mean_s": sum(seconds) / count,
        "max_s": max(seconds),
    }


def run_on_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in the event loop of `call_each` and returns its value.

    Raises TimeoutError if it takes more than 10 seconds.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, _open_loop().loop)
    return future.result(_LOOP_GRACE_S)


# Plain functions.


class _Alarm:
    """Handles SIGALRM: interrupts while armed, and ignores a signal that comes late."""

    def __init__(self) -> None:
        self.is_armed = False

    def ring(self, *_: object) -> None:
        """Interrupts the call in the main thread."""
        if self.is_armed:
            raise _Overrun


@contextlib.contextmanager
def _alarm() -> Iterator[_Alarm]:
    alarm = _Alarm()
    previous = signal.signal(signal.SIGALRM, alarm.ring)
    try:
        yield alarm
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    timeout_s: float,
    alarm: _Alarm,
) -> CallResult:
    start = time.monotonic()
    try:
        try:
            alarm.is_armed = True
            signal.setitimer(signal.ITIMER_REAL, timeout_s, _REPEAT_S)
            outcome = CallResult(function(*args))
        finally:
            alarm.is_armed = False
    except _Overrun:
        outcome = _overrun(timeout_s)
    except (Exception, SystemExit) as error:
        outcome = _raised(error)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return outcome._replace(seconds=time.monotonic() - start)


def _call_aside(
    function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float
) -> CallResult:
    start = time.monotonic()
    future = _DaemonThreads().submit(function, *args)
    done, _ = concurrent.futures.wait([future], timeout_s)
    if not done:
        outcome = _overrun(timeout_s)
    elif isinstance(error := future.exception(), Exception | SystemExit):
        outcome = _raised(error)
    else:
        outcome = CallResult(future.result())
    return outcome._replace(seconds=time.monotonic() - start)


def _overrun(timeout_s: float) -> CallResult:
    return CallResult(failure="time_limit", reason=f"time limit {timeout_s:g} s")


def _raised(error: BaseException) -> CallResult:
    said = str(error).strip().splitlines()[:1]
    reason = ": ".join([type(error).__name__, *said])
    return CallResult(failure="error", reason=reason[:_MAX_REASON])


class _DaemonThreads(concurrent.futures.ThreadPoolExecutor):
    """Runs each call in a new thread that the process does not wait for at exit."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Returns the future of the call."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        future.set_running_or_notify_cancel()
        threading.Thread(target=run, daemon=True).start()
        return future


# Coroutine functions.


class _Loop:
    """An event loop in a daemon thread. The threads it starts are daemons too."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_DaemonThreads())
        self.turned = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def turn(self) -> None:
        """Asks the loop to record that it still turns."""
        self.loop.call_soon_threadsafe(self._note_turn)

    def _note_turn(self) -> None:
        self.turned = time.monotonic()


_open_loops: list[_Loop] = []  # at most one; connections live on it from call to call
_opening = threading.Lock()


def _open_loop() -> _Loop:
    with _opening:
        if not _open_loops:
            _open_loops.append(_Loop())
        return _open_loops[0]


def _call_together(
    function: Callable[..., Any],
    arguments: Sequence[tuple[object, ...]],
    limits: CallLimits,
) -> list[CallResult]:
    loop = _open_loop()
    loop.turned = time.monotonic()
    gathered = asyncio.run_coroutine_threadsafe(
        _gather(function, arguments, limits), loop.loop
    )
    while not concurrent.futures.wait([gathered], _POLL_S).done:
        loop.turn()
        if time.monotonic() - loop.turned > limits.timeout_s + _LOOP_GRACE_S:
            with _opening:
                _open_loops.remove(loop)  # later calls get a new loop
            loop.loop.call_soon_threadsafe(loop.loop.stop)
            name = function.__qualname__ if inspect.isroutine(function) else function
            raise CallError(
                f"{name} is an async def that blocks: it neither returns nor awaits; "
                "await its slow parts (a plain call through asyncio.to_thread), or "
                "make it a plain def"
            )
    return gathered.result()


async def _gather(
    function: Callable[..., Any],
    arguments: Sequence[tuple[object, ...]],
    limits: CallLimits,
) -> list[CallResult]:
    slots = asyncio.Semaphore(limits.concurrency)

    async def run(args: tuple[Any, ...]) -> CallResult:
        async with slots:
            start = time.monotonic()
            outcome = await _await_call(function, args, limits.timeout_s)
            return outcome._replace(seconds=time.monotonic() - start)

    return await asyncio.gather(*map(run, arguments))


async def _await_call(
    function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float
) -> CallResult:
    """Returns the outcome in time, even if a coroutine refuses to be canceled."""

    async def run() -> CallResult:
        try:
            return CallResult(await function(*args))
        except (Exception, SystemExit) as error:
            return _raised(error)

    task = asyncio.ensure_future(run())
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    if not done:
        task.cancel()
        return _overrun(timeout_s)
    return _raised(asyncio.CancelledError()) if task.cancelled() else task.result()
