"""Downloads a workdir from a bucket: `python -m job_jax.download ADDRESS DIR`."""

import pathlib
import sys
from collections.abc import Sequence

from job_jax.buckets import BucketError, download_workdir
from job_jax.command import run_command
from job_jax.flags import Flags, UsageError, parse_flags

_USAGE = """\
usage: python -m job_jax.download ADDRESS DIR

Writes the newest commit of gs://bucket/run or s3://bucket/run to DIR, as an ordinary
workdir. DIR must be empty or not exist.
"""


def main(argv: Sequence[str]) -> int:
    """Returns 0 when done, 1 if objects are damaged, 2 on bad usage."""
    return run_command(lambda: _run_command(argv), (BucketError, OSError))


def _run_command(argv: Sequence[str]) -> None:
    _, (url, directory) = parse_flags(
        argv, Flags, usage=_USAGE, arguments=["ADDRESS", "DIR"]
    )
    out = pathlib.Path(directory)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty; give a new directory")
    commit = download_workdir(url, out)
    print(f"{out}: commit {commit.number}, {len(commit.files)} files")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
