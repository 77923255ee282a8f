"""One run as several processes: how they start, agree, and end together.

Every process runs the same program on the same host values; a compiled program spans
the devices of all processes. Facts that only one process knows (its share of the
verdicts, a signal, a file that process 0 reads) are exchanged as JSON before any
process continues. With one process every function here returns at once.
"""

import contextlib
import ctypes
import dataclasses
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
from jaxtyping import PyTree

from job_jax.config_io import diff_json
from job_jax.heartbeat import Heartbeat
from job_jax.schema import ConfigError

Item = TypeVar("Item")
Value = TypeVar("Value")
Tree = TypeVar("Tree")

ENV_VARS = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")

_HEARTBEAT_S = 30  # without a sign of life for so long, a process counts as dead
_NO_TIMEOUT_MS = 1_000_000_000
_EXIT_GRACE_S = 15.0  # for the others to read the cause, even on a busy machine
_FAILURE_KEY, _EXITED_KEY = "job/cause", "job/left/"

_heartbeat = Heartbeat()
_exit_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class _ProcessSpec:
    coordinator: str | None = None  # JAX detects values that are None
    num_processes: int | None = None
    process_id: int | None = None


def initialize() -> None:
    """Joins the other processes, if there are any; call before JAX starts.

    The environment variables ENV_VARS, all three, describe them; otherwise JAX detects
    a cluster. Raises ConfigError.
    """
    spec = _spec_from_env() or (_ProcessSpec() if _find_cluster() else None)
    if spec is None or jax.distributed.is_initialized():
        return
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM is ours
    _handle_aborts()
    try:
        jax.distributed.initialize(
            spec.coordinator,
            spec.num_processes,
            spec.process_id,
            coordinator_bind_address=_own_address(spec.coordinator),
            heartbeat_timeout_seconds=_HEARTBEAT_S,
            shutdown_timeout_seconds=_NO_TIMEOUT_MS // 1000,
        )
    except RuntimeError as error:
        raise ConfigError(
            f"process {spec.process_id} cannot join the others through "
            f"{spec.coordinator or 'the coordinator of the cluster'}: "
            f"{str(error).splitlines()[0]}; is another run using that port?"
        ) from error
    _peer_monitor.start()
    _heartbeat.start(_store(), process_index())


def _own_address(coordinator: str | None) -> str | None:
    """Returns the coordinator's address if this machine has it, otherwise None.

    JAX then listens on that address only; by default it listens on all interfaces.
    """
    host, _, _ = (coordinator or "").rpartition(":")
    with contextlib.suppress(OSError):
        for family, *_, address in socket.getaddrinfo(host.strip("[]"), 0):
            with socket.socket(family) as trial:
                trial.bind(address)
                return coordinator
    return None


def asks_for_several() -> bool:
    """Returns whether the environment requests more than one process."""
    return _spec_from_env() is not None or _find_cluster() is not None


def expected_index() -> int:
    """Returns this process's number from the environment, before JAX starts."""
    spec, cluster = _spec_from_env(), _find_cluster()
    if spec is not None:
        assert spec.process_id is not None
        return spec.process_id
    return cluster.get_process_id() if cluster else 0


def require_single_process() -> None:
    """Raises ConfigError if the environment requests more than one process."""
    if asks_for_several():
        raise ConfigError(
            f"this command runs as one process; unset {', '.join(ENV_VARS)}, or "
            "start it without the cluster's launcher"
        )


def process_count() -> int:
    """Returns the number of processes. Does not start JAX."""
    return distributed.global_state.num_processes


def process_index() -> int:
    """Returns this process's number, from 0. Does not start JAX."""
    return distributed.global_state.process_id


def is_primary() -> bool:
    """Returns whether this is process 0, the only one that writes files and prints."""
    return process_index() == 0


def local_process_count() -> int:
    """Returns how many of the processes share this machine."""
    return all_gather_json(socket.gethostname()).count(socket.gethostname())


def all_gather_json(value: Value) -> list[Value]:
    """Returns the value of every process, by process number; all call it together.

    Values are plain JSON. Process 0 gathers them and sends the list to the others.
    """
    if process_count() == 1:
        return [value]
    store, turn = _store(), _heartbeat.begin_exchange()
    prefix = f"job/exchange/{turn}"
    store.key_value_set_bytes(f"{prefix}/{process_index()}", _compress(value))
    if is_primary():
        keys = [f"{prefix}/{each}" for each in range(process_count())]
        parts = [store.blocking_key_value_get_bytes(k, _NO_TIMEOUT_MS) for k in keys]
        values = [_decompress(part) for part in parts]
        store.key_value_set_bytes(f"{prefix}/all", _compress(values))
        # All processes took part in this exchange, so all have read the previous one.
        store.key_value_delete(f"job/exchange/{turn - 1}/")
        return values
    return _decompress(
        store.blocking_key_value_get_bytes(f"{prefix}/all", _NO_TIMEOUT_MS)
    )


def broadcast(read: Callable[[], Value]) -> Value:
    """Returns the value that process 0 reads, so that all processes see the same."""
    return all_gather_json(read() if is_primary() else None)[0]  # type: ignore[return-value]


def map_across_processes(
    items: Sequence[Item], work: Callable[[Sequence[Item]], list[Value]]
) -> list[Value]:
    """Returns `work(items)`, one value per item, computed by all processes together.

    Each process works on a contiguous part of the items. Values are plain JSON.
    """
    return start_across_processes(items, lambda part: lambda: work(part))()


def start_across_processes(
    items: Sequence[Item],
    start: Callable[[Sequence[Item]], Callable[[], list[Value]]],
) -> Callable[[], list[Value]]:
    """Starts work on each process's part; returns a function that waits for all values.

    It is `map_across_processes` in two steps: `start(part)` begins the work and returns
    a function that waits for the part's values. All processes must wait in the same
    order.
    """
    if process_count() == 1:
        return start(items)
    first, end = (
        len(items) * number // process_count()
        for number in (process_index(), process_index() + 1)
    )
    wait = start(items[first:end])
    return lambda: [value for part in all_gather_json(wait()) for value in part]


def barrier() -> None:
    """Returns once every process has called it."""
    all_gather_json(None)


def assert_equal_across(request: Mapping[str, object]) -> None:
    """Raises ConfigError if the processes were started with different requests."""
    first = all_gather_json(request)[0]
    for number, lines in enumerate(all_gather_json(diff_json(first, request))):
        if lines:
            raise ConfigError(
                f"process {number} was started differently from process 0: "
                f"{'; '.join(lines)}; start all with the same command"
            )


def device_put(tree: PyTree, sharding: Sharding) -> PyTree:
    """Returns the arrays on the devices of all processes.

    Each process transfers only its own devices' shards and ignores the rest of
    its values.
    """
    if process_count() == 1:
        return jax.device_put(tree, sharding)

    def place(leaf: object) -> Any:
        if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
            return jax.device_put(leaf, sharding)
        host = np.asarray(leaf)
        return jax.make_array_from_callback(host.shape, sharding, lambda at: host[at])

    return jax.tree.map(place, tree)


def device_get(tree: Tree) -> Tree:
    """Returns whole NumPy arrays in every process; all call it together."""
    if process_count() == 1:
        return jax.device_get(tree)
    leaves, structure = jax.tree.flatten(tree)
    remote = {  # leaves with shards on other processes' devices
        i: leaf
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, jax.Array)
        and not (leaf.is_fully_addressable or leaf.is_fully_replicated)
    }
    if remote:
        sharding = next(iter(remote.values())).sharding
        assert isinstance(sharding, NamedSharding)
        replicated = NamedSharding(sharding.mesh, PartitionSpec())
        gather = jax.jit(_identity, out_shardings=replicated)
        for i, leaf in zip(remote, gather(list(remote.values())), strict=True):
            leaves[i] = leaf
    return jax.tree.unflatten(structure, jax.device_get(leaves))


def shutdown(code: int, cause: str, *, failed: bool) -> int:
    """Returns the exit code `code` once all processes have called it.

    A process that has failed does not wait: it sends the others the cause and exits,
    and they exit with its code.
    """
    if not jax.distributed.is_initialized():
        return code
    if not failed:
        barrier()
        if is_primary():
            _store().key_value_set(_FAILURE_KEY, json.dumps(None))
        _peer_monitor.join()
        _heartbeat.stop(wait=True)
        jax.distributed.shutdown()
        _handle_aborts(False)
        return code
    _exit_lock.acquire()  # never released: what the others report no longer matters
    with contextlib.suppress(
        Exception
    ):  # another process was first, or the store is gone
        failure = {"process": process_index(), "code": code, "cause": cause}
        _store().key_value_set(_FAILURE_KEY, json.dumps(failure))
    return _exit(code)


def peer_failure(error: BaseException) -> str | None:
    """Returns an error line if another process's death caused `error`, else None."""
    if process_count() == 1:
        return None
    text = str(error).splitlines()[0][:200] if str(error) else ""
    marks = ("Gloo", "coordination", "CoordinationService", "Socket closed")
    if any(mark in str(error) for mark in marks):
        return f"error: another process of this run has died ({text})"
    return None


def _store() -> Any:
    """Returns the key-value store of the process that coordinates the others."""
    return distributed.global_state.client


def _identity(arrays: object) -> Any:
    return arrays


def _compress(value: object) -> bytes:
    return zlib.compress(json.dumps(value).encode(), 1)


def _decompress(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))


def _spec_from_env() -> _ProcessSpec | None:
    """Returns this process's entry in ENV_VARS, or None if it is the only process."""
    given = {name: os.environ[name] for name in ENV_VARS if name in os.environ}
    if not given:
        return None
    if missing := [name for name in ENV_VARS if name not in given]:
        raise ConfigError(
            f"{', '.join(given)} set but not {', '.join(missing)}; set all three for "
            "several processes, none for one"
        )
    coordinator, count, index = (given[name] for name in ENV_VARS)
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
    return _ProcessSpec(coordinator, int(count), int(index))


def _find_cluster() -> type[ClusterEnv] | None:
    """Returns the cluster in which JAX detects a job of more than one process."""
    if any(name in os.environ for name in ENV_VARS):
        return None
    known = [each for each in ClusterEnv._cluster_types if not each.opt_in_only_method]
    present = next((each for each in known if each.is_env_present()), None)
    return present if present and present.get_process_count() > 1 else None


def _exit_on_peer_failure() -> None:
    """Ends this process, with the cause, when another one reports that it failed."""
    try:
        text = _store().blocking_key_value_get(_FAILURE_KEY, _NO_TIMEOUT_MS)
    except Exception:  # the store is gone: JAX ends this process by itself
        return
    failure = json.loads(text)  # None if all have ended well
    if failure is None or not _exit_lock.acquire(blocking=False):
        return
    cause = failure["cause"].removeprefix("error: ")
    print(f"error: process {failure['process']} has failed: {cause}", file=sys.stderr)
    _exit(failure["code"])


def _exit(code: int) -> Any:
    """Ends the process without JAX's shutdown, which would wait for the others.

    Process 0 holds the store, so it stays until the others have read the cause.
    """
    _heartbeat.stop(wait=False)  # silent processes need no report any more
    with contextlib.suppress(Exception):
        store, deadline = _store(), time.monotonic() + _EXIT_GRACE_S
        store.key_value_set(f"{_EXITED_KEY}{process_index()}", "")
        while is_primary() and time.monotonic() < deadline:
            if len(store.key_value_dir_get(_EXITED_KEY)) == process_count():
                break
            time.sleep(0.05)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _on_abort(number: int) -> None:
    os.write(
        2,
        b"error: another process of this run has died, or cannot be reached (JAX's own "
        b"message is above); see the log of the process that failed first\n",
    )
    os._exit(1)


def _handle_aborts(enabled: bool = True) -> None:
    """Turns JAX's abort into an exit with one clear line, or restores the default.

    If the coordinator or a process dies, JAX aborts all others from one of its
    threads, and its hook for that cannot take a Python function (0.10). A handler of
    Python's `signal` would not do: it runs in the main thread, which may be waiting for
    the dead process.
    """
    ctypes.CDLL(None).signal(signal.SIGABRT, _on_abort if enabled else None)


_peer_monitor = threading.Thread(target=_exit_on_peer_failure, daemon=True)
