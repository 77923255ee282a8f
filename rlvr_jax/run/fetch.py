"""Makes runs and checkpoints local: directories stay, buckets are copied here.

Each command needs a part of a workdir; only this part is copied from a bucket.
"""

import functools
from collections.abc import Iterable
from pathlib import Path

from job_jax.buckets import fetch_copy, is_url, parse_url
from job_jax.flags import UsageError
from rlvr_jax.run.workdir import TOKENIZER_FILE

_CHECKPOINTS = "checkpoints"
# Needed with a checkpoint to load its policy and to split its scores by band.
_OF_POLICY = ("config.json", TOKENIZER_FILE, "rollouts/eval_before_")
_EVENTS = ("tensorboard/",)


@functools.cache
def local_run(workdir: str, *, with_checkpoints: bool = False) -> Path:
    """Returns a directory with a run's files; its checkpoints only `with_checkpoints`.

    `workdir` is a directory, or its address in a bucket, which is copied. Files written
    to the copy stay on this machine. Raises BucketAccessError.
    """
    if not is_url(workdir):
        return Path(workdir)
    dropped = _EVENTS if with_checkpoints else (f"{_CHECKPOINTS}/", *_EVENTS)
    return fetch_copy(
        workdir,
        lambda commit: [path for path in commit.files if not path.startswith(dropped)],
    )


@functools.cache
def local_checkpoint(path: str) -> Path:
    """Returns `path` as a directory: a run's workdir, or a checkpoint inside one.

    From a bucket it copies config, tokenizer, the completions before RL, and the newest
    checkpoint of each stage, or the checkpoint that `path` names. Raises UsageError if
    that does not exist, and BucketAccessError.
    """
    if not is_url(path):
        return Path(path)
    workdir, slash, inside = parse_url(path).partition(f"/{_CHECKPOINTS}")
    stage, _, step = inside.strip("/").partition("/")
    copy = fetch_copy(
        workdir, lambda commit: _select(commit.files, stage, step, name=path)
    )
    return copy / f"{_CHECKPOINTS}{inside}" if slash else copy


def _select(files: Iterable[str], stage: str, step: str, *, name: str) -> list[str]:
    """Returns the files of a policy; `step` "" means the newest of each stage."""
    files = list(files)
    steps: dict[str, set[int]] = {}
    for path in files:
        folder, *inner = path.split("/")
        if folder == _CHECKPOINTS and len(inner) > 2 and inner[1].isdigit():
            steps.setdefault(inner[0], set()).add(int(inner[1]))
    if stage and (stage not in steps or (step and step not in map(str, steps[stage]))):
        there = (f"{s}/{n}" for s in sorted(steps) for n in sorted(steps[s]))
        raise UsageError(
            f"no complete checkpoint at {name}; there are {', '.join(there) or 'none'}"
        )
    chosen = {s: str(max(numbers)) for s, numbers in steps.items()}
    if step:
        chosen[stage] = step
    parts = tuple(f"{_CHECKPOINTS}/{s}/{number}/" for s, number in chosen.items())
    return [path for path in files if path.startswith((*_OF_POLICY, *parts))]
