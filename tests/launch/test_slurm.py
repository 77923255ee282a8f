"""Slurm: the started command, and when the job goes back into the queue."""

import shutil

import pytest

from tests.support.launchers import LAUNCH, RUN, launch, script, stand_in


@pytest.fixture
def slurm(stage, monkeypatch):
    """A Slurm job, with the project where it was submitted."""
    project = stage / "project"
    (project / ".venv/bin").mkdir(parents=True)
    (project / "launch").symlink_to(LAUNCH)
    stand_in(stage, "srun", "squeue", "scontrol")
    shutil.copy(stage / "srun", project / ".venv/bin/python")
    for name, value in (
        ("SUBMIT_DIR", project),
        ("JOB_ID", 17),
        ("GPUS_PER_NODE", "h100:8"),
        ("NTASKS_PER_NODE", 8),
        ("CPUS_PER_TASK", 12),
    ):
        monkeypatch.setenv(f"SLURM_{name}", str(value))
    return stage


@pytest.mark.parametrize(
    ("code", "state", "count", "requeued"),
    [
        (0, "RUNNING", 0, False),
        (75, "RUNNING", 0, True),
        (75, "RUNNING", 20, False),  # restarts used up
        (75, "COMPLETING", 0, False),  # canceled, or already requeued
        (1, "RUNNING", 0, False),
        (2, "RUNNING", 0, False),
    ],
)
def test_a_slurm_job_goes_back_into_the_queue_after_a_checkpoint(
    code, state, count, requeued, slurm, monkeypatch
):
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(count))
    script(slurm, "srun.-m", f"exit {code}")
    script(slurm, "squeue.--noheader", f"echo {state}")
    assert launch("slurm.sh", *RUN, "--config.name=a b").returncode == code
    log = (slurm / "log").read_text()
    assert log.startswith(
        "srun --wait=60 --cpus-per-task=12 .venv/bin/python -m rlvr_jax.main "
        f"{' '.join(RUN)} --config.name=a b\n"
    )
    assert ("scontrol requeue 17\n" in log) == requeued


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SLURM_NTASKS_PER_NODE", "1", "must be equal"),
        ("SLURM_SUBMIT_DIR", "/", "is not the root of the project"),
    ],
)
def test_a_slurm_job_that_cannot_run_ends_at_once(
    name, value, said, slurm, monkeypatch
):
    monkeypatch.setenv(name, value)
    done = launch("slurm.sh", *RUN)
    assert (done.returncode, said in done.stderr) == (2, True)
    assert not (slurm / "log").exists()


def test_slurms_signal_leaves_time_for_a_checkpoint_and_the_job_requeues():
    lines = (LAUNCH / "slurm.sh").read_text().split("\nset -euo", 1)[0].splitlines()
    asked = [line.split()[1] for line in lines if line.startswith("#SBATCH ")]
    assert {"--requeue", "--signal=TERM@120", "--open-mode=append"} <= set(asked)
    # sbatch stops reading at the first line that is not a comment or blank.
    assert [line for line in lines if line and not line.startswith("#")] == []
