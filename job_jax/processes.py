"""One run as several processes: how they start, agree, and end together.

Every process runs the same program on the same host values; a device program spans the
devices of all. What one process alone can know (its share of the verdicts, a signal, a
file that the first one reads) is exchanged as JSON before any of them goes on. With one
process everything here is free.
"""

import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np
from jax._src import distributed  # its key-value store has no public name
from jax._src.clusters import ClusterEnv
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from job_jax.config_io import diff_json
from job_jax.schema import ConfigError

Item = TypeVar("Item")
Value = TypeVar("Value")

ENVIRONMENT = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")

# Seconds without a sign of life after which a process counts as dead; noticed by the
# others some seconds later.
_HEARTBEAT_S = 30
_FOREVER_MS = 1_000_000_000
_LAST_WORDS_S = 5.0
_CAUSE, _LEFT = "rlvr/cause", "rlvr/left/"

_turns = itertools.count()
_leaving = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _Place:
    coordinator: str | None = None  # what is None, JAX finds out by itself
    count: int | None = None
    index: int | None = None


def start() -> None:
    """Joins the other processes, if there are any; call before JAX starts.

    The environment tells: ENVIRONMENT, all three, or else what JAX detects of a
    cluster. Raises ConfigError.
    """
    place = _place() or (_Place() if _in_cluster() else None)
    if place is None or jax.distributed.is_initialized():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours
    _explain_aborts()
    try:
        jax.distributed.initialize(
            place.coordinator,
            place.count,
            place.index,
            heartbeat_timeout_seconds=_HEARTBEAT_S,
            shutdown_timeout_seconds=_FOREVER_MS // 1000,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"process {place.index} cannot join the others by way of "
            f"{place.coordinator or 'what the cluster tells'}: "
            f"{str(error).splitlines()[0]}; is another run using that port?"
        ) from error
    threading.Thread(target=_follow, daemon=True).start()


def refuse() -> None:
    """Raises ConfigError where the environment asks for more than one process."""
    if _place() or _in_cluster():
        raise ConfigError(
            f"this command runs as one process; unset {', '.join(ENVIRONMENT)}, or "
            "start it without the cluster's launcher"
        )


def count() -> int:
    """Returns the number of processes. Does not start JAX."""
    return distributed.global_state.num_processes


def index() -> int:
    """Returns this process's number, from 0. Does not start JAX."""
    return distributed.global_state.process_id


def is_primary() -> bool:
    """Returns whether this is process 0, which alone writes files and speaks."""
    return index() == 0


def on_this_host() -> int:
    """Returns how many of the processes share this machine."""
    return exchange(socket.gethostname()).count(socket.gethostname())


def exchange(value: Value) -> list[Value]:
    """Returns the value of every process, in their order; all call it together.

    Values are plain JSON. The first process gathers them and hands out the whole.
    """
    if count() == 1:
        return [value]
    store, turn = _store(), next(_turns)
    at = f"rlvr/exchange/{turn}"
    store.key_value_set_bytes(f"{at}/{index()}", _packed(value))
    if is_primary():
        keys = [f"{at}/{each}" for each in range(count())]
        found = [store.blocking_key_value_get_bytes(k, _FOREVER_MS) for k in keys]
        whole = [_unpacked(each) for each in found]
        store.key_value_set_bytes(f"{at}/all", _packed(whole))
        # Who has come to this turn has read the one before.
        store.key_value_delete(f"rlvr/exchange/{turn - 1}/")
        return whole
    return _unpacked(store.blocking_key_value_get_bytes(f"{at}/all", _FOREVER_MS))


def from_primary(read: Callable[[], Value]) -> Value:
    """Returns what the first process reads: files are seen alike by all."""
    return exchange(read() if is_primary() else None)[0]  # type: ignore[return-value]


def divided(
    items: Sequence[Item], work: Callable[[Sequence[Item]], list[Value]]
) -> list[Value]:
    """Returns `work(items)`, one value an item, of which each process does its share.

    Values are plain JSON.
    """
    if count() == 1:
        return work(items)
    cuts = [len(items) * each // count() for each in (index(), index() + 1)]
    parts = exchange(work(items[cuts[0] : cuts[1]]))
    return [value for part in parts for value in part]


def wait_for_all() -> None:
    """Returns once every process has come here."""
    exchange(None)


def check_same(asked: Mapping[str, Any]) -> None:
    """Raises ConfigError where the processes were asked for different things."""
    first = exchange(asked)[0]
    for number, lines in enumerate(exchange(diff_json(first, asked))):
        if lines:
            raise ConfigError(
                f"process {number} was not asked for what process 0 was: "
                f"{'; '.join(lines)}; start all with the same command"
            )


def placed(tree: Any, layout: Sharding) -> Any:
    """Returns the arrays on the devices of all processes.

    Each process hands over the shards of its own devices alone; what it holds of the
    others' rows is not looked at.
    """
    if count() == 1:
        return jax.device_put(tree, layout)

    def place(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return jax.device_put(leaf, layout)
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, layout, lambda at: host[at])

    return jax.tree.map(place, tree)


def on_host(tree: Any) -> Any:
    """Returns the arrays whole, in NumPy, in every process; all call it together."""
    if count() == 1:
        return jax.device_get(tree)
    leaves, structure = jax.tree.flatten(tree)
    apart = {
        i: leaf
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, jax.Array)
        and not (leaf.is_fully_addressable or leaf.is_fully_replicated)
    }
    if apart:
        laid_out = next(iter(apart.values())).sharding
        assert isinstance(laid_out, NamedSharding)
        whole = NamedSharding(laid_out.mesh, PartitionSpec())
        found = jax.jit(_unchanged, out_shardings=whole)(list(apart.values()))
        for i, leaf in zip(apart, found, strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(structure, jax.device_get(leaves))


def leave(code: int, cause: str, *, failed: bool) -> int:
    """Returns the exit code, once all processes have come to the end.

    One that has failed waits for nobody: it tells the others why, and they end too.
    """
    if not jax.distributed.is_initialized():
        return code
    if not failed:
        jax.distributed.shutdown()
        return code
    _leaving.acquire()  # for good: what the others tell no longer matters
    store = _store()
    with contextlib.suppress(Exception):  # the store is gone with the first process
        told = {"process": index(), "code": code, "cause": cause}
        store.key_value_set(_CAUSE, json.dumps(told))
    with contextlib.suppress(Exception):
        store.key_value_set(f"{_LEFT}{index()}", "")
        deadline = time.monotonic() + _LAST_WORDS_S
        # The store lives in the first process: the others must have read the cause.
        while is_primary() and time.monotonic() < deadline:
            if len(store.key_value_dir_get(_LEFT)) == count():
                break
            time.sleep(0.05)
    return _exit(code)


def explained(error: Exception) -> str | None:
    """Returns one line on an error that another process's death has caused, or None."""
    if count() == 1:
        return None
    text = str(error).splitlines()[0][:200] if str(error) else ""
    marks = ("Gloo", "coordination", "CoordinationService", "Socket closed")
    if any(mark in str(error) for mark in marks):
        return f"error: another process of this run has died ({text})"
    return None


def _store() -> Any:
    """Returns the key-value store of the process that coordinates the others."""
    return distributed.global_state.client


def _unchanged(arrays: Any) -> Any:
    return arrays


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode(), 1)


def _unpacked(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


def _place() -> _Place | None:
    """Returns this process's place as ENVIRONMENT tells it; None for one process."""
    told = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    if not told:
        return None
    if missing := [name for name in ENVIRONMENT if name not in told]:
        raise ConfigError(
            f"{', '.join(told)} set but not {', '.join(missing)}; set all three for "
            "several processes, none for one"
        )
    coordinator, count, index = (told[name] for name in ENVIRONMENT)
    if not count.isdigit() or not index.isdigit() or int(index) >= int(count):
        raise ConfigError(
            f"JAX_PROCESS_ID={index!r} of JAX_NUM_PROCESSES={count!r}; processes are "
            "numbered 0..N-1"
        )
    if int(count) == 1:
        return None
    if not coordinator.rpartition(":")[2].isdigit():
        raise ConfigError(
            f"JAX_COORDINATOR_ADDRESS={coordinator!r}; write host:port, the address of "
            "process 0"
        )
    return _Place(coordinator, int(count), int(index))


def _in_cluster() -> bool:
    """Returns whether JAX knows of a cluster's job with more than one process."""
    if any(name in os.environ for name in ENVIRONMENT):
        return False
    known = [each for each in ClusterEnv._cluster_types if not each.opt_in_only_method]
    present = next((each for each in known if each.is_env_present()), None)
    return present is not None and present.get_process_count() > 1


def _follow() -> None:
    """Ends this process, once another one has told why it has failed."""
    store = _store()
    try:
        text = store.blocking_key_value_get(_CAUSE, _FOREVER_MS)
    except Exception:  # the run has ended, or JAX ends this process by itself
        return
    told = json.loads(text)
    if not _leaving.acquire(blocking=False):
        return
    cause = told["cause"].removeprefix("error: ")
    print(f"error: process {told['process']} has failed: {cause}", file=sys.stderr)
    with contextlib.suppress(Exception):
        store.key_value_set(f"{_LEFT}{index()}", "")
    _exit(told["code"])


def _exit(code: int) -> Any:
    """Ends the process without the goodbyes that wait for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _explain(number: int) -> None:
    os.write(
        2,
        b"error: another process of this run has died, or cannot be reached (JAX's own "
        b"words are above); see the log of the process that failed first\n",
    )
    os._exit(1)


def _explain_aborts() -> None:
    """Turns JAX's abort into an exit with one clear line.

    Where the coordinator or a process dies, JAX aborts all others from a thread of its
    own, and its hook for that cannot be given a Python function (0.10). Python's own
    signal handlers run in the main thread, which may be waiting for the dead one.
    """
    ctypes.CDLL(None).signal(signal.SIGABRT, _explain)
