"""The processor, and the memory and cores that a process may use."""

import contextlib
import os
import pathlib
import platform
import sys
from collections.abc import Iterator

_ROOT = pathlib.Path("/")
_CGROUP = "sys/fs/cgroup"


def usable_bytes(root: pathlib.Path = _ROOT) -> int | None:
    """Returns the machine's memory in bytes, or the limit of its container if smaller.

    None if the system reports neither. `root` is where /proc and /sys are.
    """
    limits = []
    for folder, name in (("", "memory.max"), ("memory", "memory.limit_in_bytes")):
        texts = _read_groups(root, folder, name)
        limits += [int(text) for text in texts if text.isdigit()]  # or "max"
    with contextlib.suppress(ValueError, OSError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def usable_cores(root: pathlib.Path = _ROOT) -> float:
    """Returns the cores that this process may use, a fraction if a quota says so.

    `root` is as above.
    """
    cores: list[float] = [os.cpu_count() or 1]
    if sys.platform == "linux":
        cores.append(len(os.sched_getaffinity(0)))
    for text in _read_groups(root, "", "cpu.max"):  # microseconds in a period, or "max"
        quota, _, period = text.partition(" ")
        if quota.isdigit():
            cores.append(int(quota) / int(period))
    return min(cores)


def cpu_name(root: pathlib.Path = _ROOT) -> str:
    """Returns the processor's name where Linux knows it, else its architecture.

    Another kind of processor may round differently. `root` is as above.
    """
    lines = _read(root / "proc/cpuinfo").splitlines()
    names = [line.split(":")[1] for line in lines if line.startswith("model name")]
    return names[0].strip() if names else platform.machine()


def _read_groups(root: pathlib.Path, folder: str, name: str) -> Iterator[str]:
    """Yields a file of this process's control group, and of each group above it.

    Version 2 of control groups has one tree (`folder` ""), whose line in /proc is
    "0::/a/b"; version 1 has one for each controller, as "4:memory:/a/b". In a container
    the path may be the host's, which does not exist there.
    """
    top = root / _CGROUP / folder
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if folder not in controllers.split(","):
            continue
        group = top / path.strip("/")
        while group != top.parent:
            if text := _read(group / name).strip():
                yield text
            group = group.parent


def _read(path: pathlib.Path) -> str:
    """Returns the text of a file, "" if it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""
