"""A long run holds no more memory, files, threads and programs than a short one."""

import os
import re

import pytest

from tests.support.command import metrics, overrides, summary, tiny

LONG = overrides(
    train__steps=500,
    eval__every=0,
    checkpoint__every=50,
    log__rollouts_every=10,
    log__progress_every=100,
)


def _held(pid):
    """Returns the process's resident KiB, open files and threads."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        text = status.read()
    resident, threads = (
        int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1])
        for name in ("VmRSS", "Threads")
    )
    return resident, len(os.listdir(f"/proc/{pid}/fd")), threads


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_500_steps_hold_what_100_held(command, tmp_path, monkeypatch):
    # With an arena for each thread, malloc keeps 5 to 11 MiB more by chance. With one,
    # it keeps 2.
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    process = command.start(*tiny(tmp_path, *LONG))
    held = {}
    for line in process.stderr:
        if step := re.match(r"train  (\d+)/500", line):
            held[int(step[1])] = _held(process.pid)
    process.communicate()
    assert process.returncode == 0
    assert list(held) == [100, 200, 300, 400, 500]
    begun, *later = held.values()
    # 400 steps of 20 KiB each would be 8 MiB.
    assert max(resident for resident, _, _ in later) - begun[0] < 8 << 10
    # A running save has a few more, and one of the last two counts is without them. If
    # each save kept a file or a thread, there would be six more by step 400. Pools of
    # threads fill on demand.
    assert min(files for _, files, _ in later[-2:]) <= begun[1] + 4
    assert min(threads for _, _, threads in later[-2:]) <= begun[2] + 5
    steps = [row for row in metrics(tmp_path) if row["stage"] == "train"]
    assert len(steps) == 500


def test_the_number_of_steps_changes_no_number_of_programs(command, tmp_path):
    counts = []
    for steps in (20, 60):
        workdir = tmp_path / str(steps)
        args = tiny(workdir, *LONG, f"--config.train.steps={steps}")
        ended = command.run(*args)
        assert ended.code == 0, ended.err
        counts.append(summary(workdir)["compile_count"])
    assert counts[0] == counts[1]
