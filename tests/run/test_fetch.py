"""A command fetches only the part of a run that it needs from a bucket."""

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from job_jax import buckets
from job_jax.buckets import local
from job_jax.buckets.store import Store
from job_jax.flags import UsageError
from rlvr_jax.run.fetch import local_checkpoint, local_run

FILES = (
    "config.json",
    "metrics.jsonl",
    "tokenizer.model",
    "rollouts/eval_before_000000.jsonl.gz",
    "rollouts/train_000000.jsonl.gz",
    "tensorboard/train/events",
    "checkpoints/sft/4/state/d",
    "checkpoints/sft/6/state/d",
    "checkpoints/train/9/state/d",
    "checkpoints/train/10/state/d",
)
POLICY = {"config.json", "tokenizer.model", "rollouts/eval_before_000000.jsonl.gz"}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Returns the address of a run in a bucket."""
    memory = MemoryFileSystem(skip_instance_cache=True)
    memory.store, memory.pseudo_dirs = {}, [""]
    monkeypatch.setenv(local.STAGING_ENV, str(tmp_path))
    monkeypatch.setattr(local, "open_store", lambda url: Store(memory, url))
    local_run.cache_clear()
    local_checkpoint.cache_clear()
    url = "gs://bucket/run"
    directory = buckets.open_workdir(url)
    with buckets.mirror_of(directory):
        for name in FILES:
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(name)
    buckets.close_workdir(directory)
    return url


def fetched(copy):
    return {
        path.relative_to(copy).as_posix()
        for path in copy.rglob("*")
        if path.is_file() and ".bucket" not in path.parts
    }


def test_a_run_comes_without_checkpoints_and_events(run):
    dropped = ("checkpoints", "tensorboard")
    assert fetched(local_run(run)) == {f for f in FILES if not f.startswith(dropped)}


def test_a_run_comes_with_its_checkpoints_where_they_are_asked_for(run):
    copy = local_run(run, with_checkpoints=True)
    assert fetched(copy) == {f for f in FILES if not f.startswith("tensorboard")}


@pytest.mark.parametrize(
    ("inside", "steps"),
    [
        ("", {"sft/6", "train/10"}),
        ("/checkpoints", {"sft/6", "train/10"}),
        ("/checkpoints/train", {"sft/6", "train/10"}),
        ("/checkpoints/train/", {"sft/6", "train/10"}),
        ("/checkpoints/train/9", {"sft/6", "train/9"}),
        ("/checkpoints/sft/4", {"sft/4", "train/10"}),
    ],
)
def test_a_checkpoint_comes_with_what_makes_a_policy_of_it(run, inside, steps):
    path = local_checkpoint(run + inside)
    workdir = next(p for p in (path, *path.parents) if (p / "config.json").exists())
    assert path.relative_to(workdir).as_posix() == (inside.strip("/") or ".")
    wanted = {f"checkpoints/{step}/state/d" for step in steps}
    assert fetched(workdir) == POLICY | wanted


@pytest.mark.parametrize("inside", ["train/1", "train/09", "probe", "sft/10"])
def test_a_missing_checkpoint_is_reported_with_the_existing_ones(run, inside):
    with pytest.raises(UsageError) as told:
        local_checkpoint(f"{run}/checkpoints/{inside}")
    assert str(told.value) == (
        f"no complete checkpoint at {run}/checkpoints/{inside}; there are sft/4, "
        "sft/6, train/9, train/10"
    )


def test_directories_stay_as_they_are(tmp_path):
    assert local_run(str(tmp_path)) == tmp_path
    assert local_checkpoint(str(tmp_path / "none")) == tmp_path / "none"
