"""Calls that return, raise, hang, block or exit each have their outcome, in time."""

import asyncio
import contextlib
import functools
import re
import signal
import subprocess
import sys
import threading

import pytest

from job_jax import calls
from job_jax.calls import (
    CallError,
    CallLimits,
    CallResult,
    call_each,
    call_metrics,
    start_aside,
)

LIMITS = CallLimits(timeout_s=0.3, concurrency=4)


def outcomes(function, items, limits=LIMITS):
    found = call_each(function, [(item,) for item in items], limits)
    assert all(outcome.seconds >= 0 for outcome in found)
    return [(outcome.value, outcome.failure) for outcome in found]


def asynchronous(function):
    async def call(item):
        await asyncio.sleep(0)
        return function(item)

    return call


def on_a_thread(run):
    """Returns what `run` returns in a thread that is not the main one."""
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def invert(item):
    if item == "exit":
        sys.exit(3)
    return 1 / item


@pytest.mark.parametrize(
    "run",
    [
        lambda: outcomes(invert, [2, 0, "exit", 4]),
        lambda: outcomes(asynchronous(invert), [2, 0, "exit", 4]),
        lambda: on_a_thread(lambda: outcomes(invert, [2, 0, "exit", 4])),
    ],
    ids=["plain", "async", "thread"],
)
def test_an_error_of_a_call_affects_only_its_outcome(run):
    assert run() == [(0.5, None), (None, "error"), (None, "error"), (0.25, None)]


def test_the_reason_is_the_error_and_the_first_line_of_what_it_says():
    def fail(item):
        raise ValueError(item)

    found = call_each(fail, [("a\nb",), ("",), ("x" * 999,)], LIMITS)
    assert [outcome.reason[:20] for outcome in found] == [
        *("ValueError: a", "ValueError", "ValueError: " + 8 * "x")
    ]
    assert len(found[2].reason) == 200


def spin(item):
    while item == "hang":
        pass
    return item


def spin_over_errors(item):
    while item == "hang":
        try:
            threading.Event().wait(0.01)
        except Exception:  # an interruption is not an outcome
            return "swallowed"
    return item


def backtrack(item):
    return re.match("(a+)+$", 50 * "a" + "b") if item == "hang" else item


def wait(item):
    return threading.Event().wait() if item == "hang" else item


@pytest.mark.parametrize("function", [spin, spin_over_errors, backtrack, wait])
def test_a_plain_call_that_hangs_is_interrupted_and_its_neighbors_are_not(function):
    expected = [(1, None), (None, "time_limit"), (2, None)]
    assert outcomes(function, [1, "hang", 2]) == expected
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_outside_the_main_thread_it_is_left_behind():
    found = on_a_thread(lambda: outcomes(wait, [1, "hang", 2]))
    assert found == [(1, None), (None, "time_limit"), (2, None)]


async def never(item):
    if item == "hang":
        await asyncio.Event().wait()
    return item


async def never_canceled(item):
    while item == "hang":
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    return item


async def waits_in_a_thread(item):
    return await asyncio.to_thread(wait, item)


@pytest.mark.parametrize("function", [never, never_canceled, waits_in_a_thread])
def test_a_coroutine_that_hangs_is_given_up_and_its_neighbors_are_not(function):
    expected = [(1, None), (None, "time_limit"), (2, None)]
    assert outcomes(function, [1, "hang", 2]) == expected


def test_a_coroutine_that_cancels_itself_has_failed():
    async def cancel(item):
        raise asyncio.CancelledError

    assert outcomes(cancel, [1, 2]) == [(None, "error")] * 2


@pytest.mark.parametrize("concurrency", [1, 3])
def test_so_many_coroutines_run_at_a_time_and_no_more(concurrency):
    running, most = set(), []

    async def count(item):
        running.add(item)
        most.append(len(running))
        for _ in range(5):
            await asyncio.sleep(0)
        running.remove(item)

    limits = CallLimits(timeout_s=60.0, concurrency=concurrency)
    outcomes(count, range(10), limits)
    assert max(most) == concurrency


def test_the_clock_of_an_item_starts_when_it_does():
    async def half(item):  # ten of them take far longer than the limit of one
        await asyncio.sleep(0.1)

    found = outcomes(half, range(10), CallLimits(timeout_s=0.5, concurrency=1))
    assert found == [(None, None)] * 10


def test_an_object_with_an_async_call_and_a_partial_are_awaited():
    class Scorer:
        async def __call__(self, item):
            return item + 1

    async def add(one, other):
        return one + other

    assert outcomes(Scorer(), [1]) == [(2, None)]
    assert outcomes(functools.partial(add, 2), [1]) == [(3, None)]


def test_a_coroutine_that_blocks_the_loop_is_named_and_the_next_call_runs(
    monkeypatch,
):
    monkeypatch.setattr(calls, "_LOOP_GRACE_S", 0.1)
    monkeypatch.setattr(calls, "_POLL_S", 0.05)
    until = threading.Event()

    async def blocks(item):
        until.wait()

    class Waits:
        __call__ = staticmethod(blocks)

        def __repr__(self):
            return "Waits(7)"

    with pytest.raises(CallError, match=r"locals>\.blocks is an async def that blocks"):
        outcomes(blocks, [1])
    with pytest.raises(CallError, match=r"^Waits\(7\) is an async def that blocks"):
        outcomes(Waits(), [1])
    until.set()
    assert outcomes(never, [1]) == [(1, None)]


def test_a_hanging_call_does_not_keep_the_process_from_ending():
    script = """
import asyncio, threading
from job_jax.calls import CallLimits, call_each

def wait(): threading.Event().wait()
async def wait_aside(): await asyncio.to_thread(wait)
def on_a_thread(): print(call_each(wait, [()], limits)[0].failure)

limits = CallLimits(timeout_s=0.1)
print(call_each(wait_aside, [()], limits)[0].failure)
thread = threading.Thread(target=on_a_thread)
thread.start()
thread.join()
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "time_limit\ntime_limit\n")


def test_ctrl_c_is_passed_on():
    def interrupt(item):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        outcomes(interrupt, [1])
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_function_that_always_fails_is_named_and_one_that_once_succeeds_is_not():
    failed = CallResult(failure="error", reason="ValueError: no")
    calls.check_any_succeeded("reward 'a:b'", [failed])  # it may be the item
    calls.check_any_succeeded("reward 'a:b'", [failed, CallResult(None), failed])
    with pytest.raises(CallError) as raised:
        calls.check_any_succeeded("reward 'a:b'", [failed, failed])
    assert str(raised.value) == (
        "reward 'a:b' failed on all of 2 completions; the first: ValueError: no"
    )


def test_metrics_count_failures_by_cause_and_seconds():
    late = CallResult(failure="time_limit", seconds=5.0)
    found = [CallResult(1, seconds=1.0), late, late, CallResult(failure="error")]
    assert call_metrics(found) == {
        "time_limit": 0.5,
        "failed": 0.25,
        "mean_s": 2.75,
        "max_s": 5.0,
    }


def test_a_call_aside_is_waited_for_later_and_raises_there():
    begun, let_go = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert let_go.wait(10)
        return 7

    wait = start_aside(work)
    assert begun.wait(10)
    let_go.set()
    assert wait() == 7
    with pytest.raises(ZeroDivisionError):
        start_aside(lambda: 1 / 0)()
