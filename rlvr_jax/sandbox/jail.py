"""What a process gives up: files, the network, other processes, memory and time.

The filter of system calls (`system_calls`) and the resource limits are enough for what
docs/code.md promises; namespaces and Landlock are a second wall, where the kernel has
them. All of it is the kernel's: nothing hangs on what Python's own objects are.
"""

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable

from rlvr_jax.sandbox import system_calls

CHANNEL = 3  # the first file that a jailed process keeps, beside three of /dev/null

_NAMESPACE_FLAGS = {
    "user": 0x10000000,
    "process": 0x20000000,
    "network": 0x40000000,
    "IPC": 0x08000000,
    "host name": 0x04000000,
    "mount": 0x00020000,
}
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_VERSION = 1  # the flag that asks for it
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # by version; 16 from the fifth on
_MAX_OPEN_FILES = 16
_ALL_FILES = (1 << 31) - 1
_GRACE_S = 1  # from the signal of the time limit that can be caught to the one that not


def isolate() -> list[str]:
    """Moves this process behind the second wall; returns what the kernel refuses.

    With namespaces it forks: what returns is the first process of its own, with which
    all its descendants end, and the process that called waits for it and exits.
    """
    refused = []
    # Where the machine's memory ends, it ends with a program and not with the trainer.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    try:
        system_calls.unshare(sum(_NAMESPACE_FLAGS.values()))
    except OSError as error:
        refused.append(f"namespaces ({os.strerror(error.errno or 0)})")
    else:
        _become_first_process()
    try:
        _give_up_files()
    except OSError as error:
        refused.append(f"Landlock ({os.strerror(error.errno or 0)})")
    return refused


def _become_first_process() -> None:
    child = os.fork()
    if child == 0:
        system_calls.die_with_parent()
        return
    os.closerange(0, 3)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _give_up_files() -> None:
    """Gives up every file by Landlock, and with newer ones TCP and outer signals."""
    version = system_calls.call(_LANDLOCK_CREATE, 0, 0, _LANDLOCK_VERSION)
    rights = (1 << _NUM_FILE_RIGHTS.get(version, 16)) - 1
    rules = ctypes.create_string_buffer(struct.pack("QQQ", rights, 3, 3))
    size = 8 if version < 4 else 16 if version < 6 else 24
    rule_set = system_calls.call(_LANDLOCK_CREATE, ctypes.addressof(rules), size, 0)
    system_calls.forgo_privileges()
    system_calls.call(_LANDLOCK_RESTRICT, rule_set, 0)
    os.close(rule_set)


def enter(files: list[int], code: bytes, *, cpu_s: int, memory_bytes: int) -> None:
    """Jails this process for good, with `files` as its files from CHANNEL on.

    For a fresh child of one thread whose standard input is /dev/null; `code` is
    `system_calls.make_filter()`. Raises OSError.
    """
    system_calls.die_with_parent()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, _MAX_OPEN_FILES) for fd in files]
    for target, source in enumerate((0, 0, *high), start=1):
        os.dup2(source, target)
    os.closerange(CHANNEL + len(files), _ALL_FILES)
    limits = {
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NOFILE: _MAX_OPEN_FILES,
        resource.RLIMIT_NPROC: 0,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + _GRACE_S))
    system_calls.install_filter(code)


def try_what_is_forbidden() -> list[str]:
    """Returns what a jailed process can do and must not: [] where the jail holds."""
    attempts: dict[str, Callable[[], object]] = {
        "open a file": lambda: os.open("/", os.O_RDONLY),
        "make a process": lambda: os.fork() or os._exit(0),
        "make a socket": socket.socket,
        "send a signal": lambda: os.kill(os.getpid(), 0),
        "raise a limit": lambda: resource.setrlimit(resource.RLIMIT_CPU, (9, 9)),
    }
    possible = []
    for name, attempt in attempts.items():
        with contextlib.suppress(OSError, ValueError):
            attempt()
            possible.append(name)
    return possible
