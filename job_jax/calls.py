"""Calls of functions that a user brings: bounded in time, each failure counted.

A plain function is called for one item after the other. In the main thread a timer
interrupts what runs over its time, within a regular expression or a blocking read, too;
in any other thread the call gets a thread of its own, which is left behind. A coroutine
function runs for many items at a time, in one event loop that lives in a thread of its
own; what an item waits for is canceled when its time is over. No thread of this module
keeps the process from ending.
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

_REPEAT_S = 1.0  # seconds after which who has swallowed an interruption gets another
_POLL_S = 0.5  # how often a caller looks whether the event loop still turns
_LOOP_GRACE_S = 10.0  # beyond an item's time, before the loop counts as blocked
_MAX_REASON = 200  # characters


class CallError(RuntimeError):
    """A function of a user's that cannot be gone on with, in one line."""


class Outcome(NamedTuple):
    """What one call returned, or why it did not, and the seconds that it took."""

    value: Any = None
    failure: Failure | None = None
    reason: str = ""
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallLimits:
    """Bounds of a function's calls: seconds each, and coroutines at a time."""

    timeout_s: float
    concurrency: int = 1


class Settled(Protocol):
    """What has failed, and why, or has not: an `Outcome`, or what was made of one."""

    @property
    def failure(self) -> Failure | None:
        """Returns how it failed, None where it did not."""

    @property
    def reason(self) -> str:
        """Returns what is to be said of it."""


class _Overrun(BaseException):
    """Raised within a call whose time is over; `except Exception` lets it pass."""


def call_each(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    limits: CallLimits,
) -> list[Outcome]:
    """Returns the outcome of `function(*arguments[i])` for each i, in order.

    What a call raises is its outcome; KeyboardInterrupt alone is passed on. Raises
    CallError where a coroutine blocks the event loop: nobody else could go on.

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
    """Returns whether a call is to be awaited: `async def`, or an object with one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__
    )


def start_aside(function: Callable[[], ValueT]) -> Callable[[], ValueT]:
    """Starts a call in a thread of its own; returns what waits for its value.

    What it raises is raised there. The thread keeps no process from ending.
    """
    return _DaemonThreads().submit(function).result


def check_any_succeeded(name: str, outcomes: Sequence[Settled]) -> None:
    """Raises CallError where each of several calls of `name` has failed.

    One failure may lie with its item; so many lie with the function.
    """
    if len(outcomes) > 1 and all(outcome.failure for outcome in outcomes):
        raise CallError(
            f"{name} failed on all of {len(outcomes)} completions; the first: "
            f"{outcomes[0].reason}"
        )


def call_metrics(outcomes: Sequence[Outcome]) -> dict[str, float]:
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
    """Returns what the coroutine returns, run in the event loop of `call_each`.

    Raises TimeoutError where that takes many seconds.
    """
    future = asyncio.run_coroutine_threadsafe(coroutine, _open_loop().loop)
    return future.result(_LOOP_GRACE_S)


# Plain functions.


class _Alarm:
    """Whether SIGALRM interrupts; at other times it comes too late and does nothing."""

    def __init__(self) -> None:
        self.is_armed = False

    def ring(self, *_: Any) -> None:
        """Interrupts what runs in the main thread."""
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
) -> Outcome:
    start = time.monotonic()
    try:
        try:
            alarm.is_armed = True
            signal.setitimer(signal.ITIMER_REAL, timeout_s, _REPEAT_S)
            outcome = Outcome(function(*args))
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
) -> Outcome:
    start = time.monotonic()
    future = _DaemonThreads().submit(function, *args)
    done, _ = concurrent.futures.wait([future], timeout_s)
    if not done:
        outcome = _overrun(timeout_s)
    elif isinstance(error := future.exception(), Exception | SystemExit):
        outcome = _raised(error)
    else:
        outcome = Outcome(future.result())
    return outcome._replace(seconds=time.monotonic() - start)


def _overrun(timeout_s: float) -> Outcome:
    return Outcome(failure="time_limit", reason=f"time limit {timeout_s:g} s")


def _raised(error: BaseException) -> Outcome:
    said = str(error).strip().splitlines()[:1]
    reason = ": ".join([type(error).__name__, *said])
    return Outcome(failure="error", reason=reason[:_MAX_REASON])


class _DaemonThreads(concurrent.futures.ThreadPoolExecutor):
    """Runs each call in a new thread, which no process waits for at its end."""

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
    """An event loop in a daemon thread. Its own threads are daemons as well."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(_DaemonThreads())
        self.turned = time.monotonic()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.close()

    def turn(self) -> None:
        """Asks the loop to write down that it turns."""
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
    arguments: Sequence[tuple[Any, ...]],
    limits: CallLimits,
) -> list[Outcome]:
    loop = _open_loop()
    loop.turned = time.monotonic()
    gathered = asyncio.run_coroutine_threadsafe(
        _gather(function, arguments, limits), loop.loop
    )
    while not concurrent.futures.wait([gathered], _POLL_S).done:
        loop.turn()
        if time.monotonic() - loop.turned > limits.timeout_s + _LOOP_GRACE_S:
            with _opening:
                _open_loops.remove(loop)  # whoever comes next gets another
            loop.loop.call_soon_threadsafe(loop.loop.stop)
            name = function.__qualname__ if inspect.isroutine(function) else function
            raise CallError(
                f"{name} is an async def that blocks: it neither returns nor awaits; "
                "await what takes long (with asyncio.to_thread, if it is a plain "
                "call), or make it a plain def"
            )
    return gathered.result()


async def _gather(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    limits: CallLimits,
) -> list[Outcome]:
    slots = asyncio.Semaphore(limits.concurrency)

    async def run(args: tuple[Any, ...]) -> Outcome:
        async with slots:
            start = time.monotonic()
            outcome = await _await_call(function, args, limits.timeout_s)
            return outcome._replace(seconds=time.monotonic() - start)

    return await asyncio.gather(*map(run, arguments))


async def _await_call(
    function: Callable[..., Any], args: tuple[Any, ...], timeout_s: float
) -> Outcome:
    """Returns the outcome in time, even of a coroutine that will not be canceled."""

    async def run() -> Outcome:
        try:
            return Outcome(await function(*args))
        except (Exception, SystemExit) as error:
            return _raised(error)

    task = asyncio.ensure_future(run())
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    if not done:
        task.cancel()
        return _overrun(timeout_s)
    return _raised(asyncio.CancelledError()) if task.cancelled() else task.result()
