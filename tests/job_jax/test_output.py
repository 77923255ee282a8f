"""Output without a reader is dropped; a file that cannot be written is an error."""

import os
import subprocess
import sys

CODE = """
import resource, sys
from job_jax.output import keep_output_going
keep_output_going()
if len(sys.argv) == 2:
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
print("x" * 100_000)
sys.stdout.flush()
print("y", flush=True)
print("went on", file=sys.stderr)
"""


def test_a_pipe_without_a_reader_ends_nothing():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-c", CODE]
    ended = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "went on\n")


BUFFERED = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}


def test_earlier_output_comes_first():
    ended = subprocess.run(
        [sys.executable, "-c", f"print('before'){CODE}"],
        capture_output=True,
        text=True,
        check=False,
        env=BUFFERED,
    )
    assert ended.returncode == 0
    assert ended.stdout == f"before\n{'x' * 100_000}\ny\n"


def test_earlier_output_without_a_reader_ends_nothing():
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [sys.executable, "-c", f"print('before'){CODE}"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=BUFFERED,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (0, "went on\n")


def test_a_file_that_cannot_hold_the_output_is_an_error(tmp_path):
    """A limit on file size simulates a full disk."""
    command = [sys.executable, "-c", CODE, "5000"]
    with (tmp_path / "out").open("w") as out:
        ended = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode != 0
    assert "OSError: [Errno 27] File too large" in ended.stderr
    assert "went on" not in ended.stderr
