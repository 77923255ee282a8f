"""The processor, and the memory and cores that a process may use."""

import os
import platform

import pytest

from job_jax.machine import cpu_name, usable_bytes, usable_cores

_MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_a_container_it_is_the_machines(tmp_path):
    assert usable_bytes(tmp_path) == _MACHINE


@pytest.mark.parametrize(
    ("own", "above", "least"),
    [("4096", "8192", 4096), ("max", "8192", 8192), ("max", "max", _MACHINE)],
)
def test_the_smallest_limit_above_the_process_counts(tmp_path, own, above, least):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "0::/pod/job\n",
            "sys/fs/cgroup/pod/memory.max": f"{above}\n",
            "sys/fs/cgroup/pod/job/memory.max": f"{own}\n",
            "sys/fs/cgroup/other/memory.max": "1\n",
        },
    )
    assert usable_bytes(tmp_path) == least


def test_a_container_shows_its_own_group_as_the_root(tmp_path):
    """The path in /proc may be the host's, where the container sees nothing."""
    write(
        tmp_path,
        {"proc/self/cgroup": "0::/host/pod", "sys/fs/cgroup/memory.max": "4096"},
    )
    assert usable_bytes(tmp_path) == 4096


def test_version_1_of_control_groups(tmp_path):
    limit = "sys/fs/cgroup/memory/job/memory.limit_in_bytes"
    write(
        tmp_path,
        {"proc/self/cgroup": "5:cpu,cpuacct:/job\n4:hugetlb,memory:/job\n", limit: "7"},
    )
    assert usable_bytes(tmp_path) == 7


@pytest.mark.parametrize(
    ("text", "cores"),
    [("50000 100000", 0.5), ("max 100000", None), ("99900000 100000", None)],
)
def test_a_quota_limits_the_cores(tmp_path, text, cores):
    machine = len(os.sched_getaffinity(0))
    assert usable_cores(tmp_path) == machine
    write(tmp_path, {"proc/self/cgroup": "0::/job", "sys/fs/cgroup/job/cpu.max": text})
    assert usable_cores(tmp_path) == (cores or machine)


def test_the_processor_is_named_by_linux_or_by_its_architecture(tmp_path):
    assert cpu_name(tmp_path) == platform.machine()
    text = "model\t: 85\nmodel name\t: Xeon 8\n\nmodel name\t: other\n"
    write(tmp_path, {"proc/cpuinfo": text})
    assert cpu_name(tmp_path) == "Xeon 8"
