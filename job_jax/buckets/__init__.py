"""Workdirs on gs:// and s3://, which cannot rename or append.

A job works in a staging directory on its own disk. A `Mirror` uploads that directory to
the bucket; a run of several processes uses a `JointMirror`.
"""

from job_jax.buckets.commits import TakenOverError, describe_owner
from job_jax.buckets.joint import JointMirror
from job_jax.buckets.local import (
    close_workdir,
    download_workdir,
    fetch_copy,
    is_url,
    local_record,
    mirror_of,
    open_workdir,
    parse_url,
)
from job_jax.buckets.mirror import Mirror
from job_jax.buckets.store import BucketAccessError, BucketError, describe_error

__all__ = [
    "BucketAccessError",
    "BucketError",
    "JointMirror",
    "Mirror",
    "TakenOverError",
    "close_workdir",
    "describe_error",
    "describe_owner",
    "download_workdir",
    "fetch_copy",
    "is_url",
    "local_record",
    "mirror_of",
    "open_workdir",
    "parse_url",
]
