"""The system calls that a jailed program may make, as a kernel filter.

All others fail with EPERM: opening a file, making a process, a thread or a socket,
sending a signal, changing a limit. Executable memory cannot be allocated, so a program
cannot run its own machine code.
"""

import ctypes
import errno
import os
import platform
import signal
import struct

# Numbers by machine. They allow computing, non-executable memory, reading and writing
# open files, clocks, and exiting.
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "exit": (60, 93),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
_UNLESS_EXECUTABLE = {"mmap": (9, 222), "mprotect": (10, 226)}
# Column of the tables above, and the kernel's name of the machine.
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32_BIT = 0x40000000  # x86_64's other table of system calls

_LOAD, _RETURN = 0x20, 0x06
_JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_ANY_BIT = 0x15, 0x35, 0x45
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EPERM
_NUMBER, _MACHINE, _THIRD_ARGUMENT = 0, 4, 32  # offsets in struct seccomp_data
_PROT_EXEC = 4
_SET_PARENT_DEATH_SIGNAL, _SET_SECCOMP, _SET_NO_NEW_PRIVS = 1, 22, 38
_MODE_FILTER = 2

_LIBC = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def is_known_machine() -> bool:
    """Returns whether this machine's system calls are in the table."""
    return platform.system() == "Linux" and platform.machine() in _MACHINES


def make_filter() -> bytes:
    """Returns the filter in the kernel's classic BPF, for this machine."""
    column, machine = _MACHINES[platform.machine()]
    code = [
        (_LOAD, 0, 0, _MACHINE),
        *((_JUMP_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _KILL)),
        (_LOAD, 0, 0, _NUMBER),
        *((_JUMP_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL)),
    ]
    for numbers in _ALLOWED.values():
        code += [(_JUMP_EQUAL, 0, 1, numbers[column]), (_RETURN, 0, 0, _ALLOW)]
    for numbers in _UNLESS_EXECUTABLE.values():
        code += [
            (_JUMP_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, _THIRD_ARGUMENT),
            (_JUMP_ANY_BIT, 0, 1, _PROT_EXEC),
            *((_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)),
        ]
    code.append((_RETURN, 0, 0, _REFUSE))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


def install_filter(code: bytes) -> None:
    """Applies the filter to this process and everything it runs. Raises OSError."""
    program = _Program(len(code) // 8, code)
    forgo_privileges()
    _prctl(_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(program))


def forgo_privileges() -> None:
    """Keeps programs started from here from gaining privileges. Raises OSError."""
    _prctl(_SET_NO_NEW_PRIVS, 1)


def die_with_parent() -> None:
    """Lets the kernel kill this process when its parent ends. Raises OSError."""
    _prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


def unshare(flags: int) -> None:
    """Moves this process into new namespaces. Raises OSError."""
    _check(_LIBC.unshare(flags))


def call(number: int, *values: int) -> int:
    """Returns the result of a system call, given its number. Raises OSError."""
    return _check(_LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, values)))


def _prctl(option: int, *values: int) -> None:
    words = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    _check(_LIBC.prctl(option, *words))


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
