"""Takes away a process's access to files, network, other processes, memory and time.

The filter of system calls (`system_calls`) and the resource limits are enough for the
promises in docs/use/code.md. Namespaces and Landlock are a second wall if the kernel
has them. The kernel enforces all of it, so nothing depends on Python objects.
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

CHANNEL = 3  # first file that a jailed process keeps; 0 to 2 are /dev/null

_NAMESPACE_FLAGS = {
    "user": 0x10000000,
    "process": 0x20000000,
    "network": 0x40000000,
    "IPC": 0x08000000,
    "host name": 0x04000000,
    "mount": 0x00020000,
}
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_VERSION = 1  # flag that requests the version
_NUM_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}  # by version; 16 from version 5 on
_MAX_OPEN_FILES = 16
_ALL_FILES = (1 << 31) - 1
_GRACE_S = 1  # from the time limit's catchable signal to SIGKILL


def isolate() -> list[str]:
    """Puts this process behind the second wall; returns the parts the kernel refuses.

    With namespaces it forks. The child returns, as the first process of the namespace:
    when it ends, all its descendants end. The parent waits for the child and exits.
    """
    refused = []
    # If the machine runs out of memory, the kernel kills a program, not the trainer.
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
    """Gives up all files with Landlock; newer versions also give up TCP and signals."""
    version = system_calls.call(_LANDLOCK_CREATE, 0, 0, _LANDLOCK_VERSION)
    rights = (1 << _NUM_FILE_RIGHTS.get(version, 16)) - 1
    rules = ctypes.create_string_buffer(struct.pack("QQQ", rights, 3, 3))
    size = 8 if version < 4 else 16 if version < 6 else 24
    rule_set = system_calls.call(_LANDLOCK_CREATE, ctypes.addressof(rules), size, 0)
    system_calls.forgo_privileges()
    system_calls.call(_LANDLOCK_RESTRICT, rule_set, 0)
    os.close(rule_set)


def enter(files: list[int], code: bytes, *, cpu_s: int, memory_bytes: int) -> None:
    """Jails this process for good; `files` become its file descriptors from CHANNEL on.

    Call it in a fresh child with one thread, and /dev/null as standard input. `code` is
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
    """Returns the forbidden actions that this process can do, [] if the jail holds."""
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
