"""Several processes, each with its own disk, write one workdir in a bucket.

They play their parts one after the other here: the messages of process 0 are kept and
given to the next.
"""

import contextlib
import shutil

import pytest

from job_jax.buckets import BucketAccessError, BucketError, TakenOverError, joint
from job_jax.buckets.commits import read_newest
from job_jax.buckets.fetch import fetch, fetch_commit
from job_jax.buckets.joint import JointMirror, kept_checkpoints, needed_files
from job_jax.buckets.store import Store
from job_jax.config import CheckpointConfig
from tests.support.memory_bucket import Bucket, read, write


class Parts:
    """Replaces `job_jax.processes`: the process on turn, and the first's messages."""

    def __init__(self):
        self.number, self._told, self._heard = 0, [], 0

    def is_primary(self):
        return self.number == 0

    def broadcast(self, tell):
        if self.is_primary():
            self._told.append(tell())
            return self._told[-1]
        self._heard += 1
        return self._told[self._heard - 1]

    def barrier(self):
        pass

    def play(self, number):
        self.number = number


@pytest.fixture
def parts(monkeypatch):
    found = Parts()
    monkeypatch.setattr(joint, "processes", found)
    return found


@pytest.fixture
def bucket():
    return Bucket()


def store_of(bucket):
    return Store(bucket, "gs://bucket/run")


def open_mirror(bucket, directory):
    store = store_of(bucket)
    commit = read_newest(store)
    fetch_commit(store, commit, directory, needed_files(commit.files))
    return JointMirror(store, directory)


def save(bucket, mirror, step, text, *, stage="train", complete=True, max_to_keep=2):
    """Writes shards and then the file that completes them, like orbax."""
    config = CheckpointConfig(every=1, max_to_keep=max_to_keep)
    mirror.begin_checkpoint(stage, step, config)
    folder = f"{mirror.checkpoint_url(stage).removeprefix('gs:/')}/{step}"
    put(bucket, f"{folder}/state/d/shard", text)
    if complete:
        put(bucket, f"{folder}/commit_success.txt", "done")


def put(bucket, path, text):
    """Makes an object without counting it, because orbax has its own retries."""
    super(Bucket, bucket).open(path, "wb", data=text.encode())


def in_bucket(bucket, tmp_path):
    """Returns the files that a fetch of the bucket finds now."""
    shutil.rmtree(tmp_path / "reader", ignore_errors=True)
    fetch(store_of(bucket), tmp_path / "reader")
    return {
        path: text
        for path, text in read(tmp_path / "reader").items()
        if not path.endswith("commit_success.txt")
    }


def shard(step, stage="train"):
    return f"checkpoints/{stage}/{step}/state/d/shard"


def test_the_others_see_what_the_first_has_committed(bucket, parts, tmp_path):
    first = open_mirror(bucket, tmp_path / "0")
    second = open_mirror(bucket, tmp_path / "1")
    first.claim()
    parts.play(1)
    second.claim()
    assert second.checkpoint_url("sft") == first.checkpoint_url("sft")
    parts.play(0)
    write(tmp_path / "0", config_json="{}", difficulty="1\n")
    save(bucket, first, 2, "two", stage="sft")
    save(bucket, first, 4, "four", stage="sft")
    first.share()
    assert read(tmp_path / "0")[shard(4, "sft")] == "four"  # it bypassed this disk
    parts.play(1)
    write(tmp_path / "1", judge__0001="my own")
    second.share()
    seen = read(tmp_path / "1")
    assert seen.pop("judge/0001") == "my own"
    assert seen == read(tmp_path / "0")
    assert shard(2, "sft") not in seen
    assert in_bucket(bucket, tmp_path)[shard(2, "sft")] == "two"
    parts.play(0)
    write(tmp_path / "0", difficulty="1\n2\n")
    first.share()
    parts.play(1)
    second.share()
    assert (tmp_path / "1/difficulty").read_text() == "1\n2\n"
    with second:
        write(tmp_path / "1", metrics="of the second")
    assert "metrics" not in in_bucket(bucket, tmp_path)


def test_a_checkpoint_counts_once_a_commit_names_it(bucket, parts, tmp_path):
    mirror = open_mirror(bucket, tmp_path / "0")
    mirror.claim()
    write(tmp_path / "0", metrics="1\n2\n")
    save(bucket, mirror, 2, "two")
    mirror.publish_checkpoint()
    mirror.wait()
    write(tmp_path / "0", metrics="1\n2\n3\n4\n")
    save(bucket, mirror, 4, "four")
    # Killed here: orbax is done, but no commit names the checkpoint.
    before = {"metrics": "1\n2\n", shard(2): "two"}
    assert in_bucket(bucket, tmp_path) == before
    again = open_mirror(bucket, tmp_path / "again")
    again.claim()
    held = [path for path in bucket.store if path.endswith("shard")]
    assert len(held) == 1  # the other is gone
    write(tmp_path / "again", metrics="1\n2\n3\n4\n")
    save(bucket, again, 4, "four")
    again.publish_checkpoint()
    again.wait()
    assert in_bucket(bucket, tmp_path) == {
        "metrics": "1\n2\n3\n4\n",
        shard(2): "two",
        shard(4): "four",
    }


def test_a_checkpoint_that_was_cut_short_is_not_named(bucket, parts, tmp_path):
    mirror = open_mirror(bucket, tmp_path / "0")
    mirror.claim()
    save(bucket, mirror, 2, "half", complete=False)
    with mirror:
        write(tmp_path / "0", metrics="1\n")
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n"}


def test_a_checkpoint_is_never_ahead_of_the_other_files(bucket, parts, tmp_path):
    mirror = open_mirror(bucket, tmp_path / "0")
    mirror.claim()
    write(tmp_path / "0", metrics="1\n2\n")
    save(bucket, mirror, 2, "two")
    commit = mirror._commit

    def commit_late(snapshot):
        write(tmp_path / "0", metrics="1\n2\n3\n4\n")
        save(bucket, mirror, 4, "four")
        commit(snapshot)

    mirror._commit = commit_late
    mirror.publish()
    mirror.wait()
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n2\n", shard(2): "two"}
    mirror._commit = commit
    mirror.publish_checkpoint()
    mirror.wait()
    assert in_bucket(bucket, tmp_path)[shard(4)] == "four"


@pytest.mark.parametrize(
    ("max_to_keep", "kept"), [(1, [6]), (2, [4, 6]), (3, [2, 4, 6])]
)
def test_older_checkpoints_go_with_the_commit_that_drops_them(
    bucket, parts, tmp_path, max_to_keep, kept
):
    for step in (2, 4, 6):  # a run each: all attempts are kept
        mirror = open_mirror(bucket, tmp_path / str(step))
        mirror.claim()
        if step == 2:
            save(bucket, mirror, 9, "kept", stage="sft", max_to_keep=1)
        save(bucket, mirror, step, str(step), max_to_keep=max_to_keep)
        before = dict(bucket.store)
        mirror.publish()
        mirror.wait()
        found = in_bucket(bucket, tmp_path)
        assert {path for path in before if path.endswith("shard")} >= {
            path for path in bucket.store if path.endswith("shard")
        }
    assert found == {shard(9, "sft"): "kept"} | {
        shard(step): str(step) for step in kept
    }
    held = [path for path in bucket.store if path.endswith("shard")]
    assert len(held) == 1 + len(kept)


def test_a_restarted_stage_drops_its_old_checkpoints(bucket, parts, tmp_path):
    first = open_mirror(bucket, tmp_path / "0")
    first.claim()
    save(bucket, first, 9, "of another run", stage="start")
    save(bucket, first, 2, "two")
    with first:
        pass
    again = open_mirror(bucket, tmp_path / "again")
    again.drop_checkpoints("start")
    again.claim()
    save(bucket, again, 3, "of a third", stage="start")
    for text in ("1\n", "1\n2\n"):  # and the commit after keeps the new one
        write(tmp_path / "again", metrics=text)
        again.publish()
        again.wait()
        assert in_bucket(bucket, tmp_path) == {
            "metrics": text,
            shard(2): "two",
            shard(3, "start"): "of a third",
        }


def test_a_failure_at_any_operation_leaves_files_and_checkpoint_of_one_step(
    tmp_path, parts
):
    def run(bucket, directory):
        """Continues to step 4 from the bucket, with a checkpoint every two steps."""
        mirror = open_mirror(bucket, directory)
        done = max(
            [*(int(p.split("/")[2]) for p in read(directory) if "shard" in p), 0]
        )
        with mirror:
            mirror.claim()
            for step in range(done + 1, 5):
                write(directory, metrics="".join(f"{i}\n" for i in range(1, step + 1)))
                if step % 2 == 0:
                    save(bucket, mirror, step, f"{step}", max_to_keep=1)
                    mirror.publish_checkpoint()
        return in_bucket(bucket, directory)

    whole = Bucket()
    end = run(whole, tmp_path / "0")
    assert end == {"metrics": "1\n2\n3\n4\n", shard(4): "4"}
    seen = set()
    for k in range(1, whole.num_operations + 1):
        bucket, folder = Bucket(), tmp_path / str(k)
        bucket.fails_at = k
        with contextlib.suppress(BucketError, BucketAccessError):
            run(bucket, folder / "first")
        bucket.fails_at = None
        found = in_bucket(bucket, folder)
        steps = [int(path.split("/")[2]) for path in found if "shard" in path]
        assert len(steps) <= 1
        lines = found.get("metrics", "").split()
        assert len(lines) >= sum(steps)  # never behind the checkpoint
        seen |= {sum(steps)}
        # The same command resumes on other machines, with the same result.
        assert run(bucket, folder / "second") == end
        assert len(bucket.find("/bucket")) == 1 + 3
    assert seen == {0, 2, 4}


def test_a_checkpoint_that_somebody_changed_is_refused(bucket, parts, tmp_path):
    mirror = open_mirror(bucket, tmp_path / "0")
    mirror.claim()
    save(bucket, mirror, 2, "two")
    with mirror:
        pass
    stored = read_newest(store_of(bucket)).files[shard(2)]
    assert (stored.size, stored.digest[:4]) == (3, "md5:")
    put(bucket, f"/bucket/run/{stored.object}", "TWO")
    with pytest.raises(BucketError, match="its digest differs from commit 2"):
        in_bucket(bucket, tmp_path)


def test_a_process_that_finds_another_runs_commit_says_so(bucket, parts, tmp_path):
    first = open_mirror(bucket, tmp_path / "0")
    second = open_mirror(bucket, tmp_path / "1")
    first.claim()
    later = Parts()
    joint.processes = later
    open_mirror(bucket, tmp_path / "later").claim()
    joint.processes = parts
    parts.play(1)
    with pytest.raises(TakenOverError, match="was taken over by another run"):
        second.claim()


def test_needed_are_all_files_and_of_checkpoints_the_newest():
    files = ["config.json", "features/10/2/a", "checkpoints/sft/6/a"]
    steps = [f"checkpoints/train/{step}/{name}" for step in (9, 10, 2) for name in "ab"]
    kept = ["checkpoints/train/10/a", "checkpoints/train/10/b"]
    assert needed_files([*files, *steps]) == [*files, *kept]
    every = dict.fromkeys([*files, *steps], 0)
    assert kept_checkpoints(every, {}) == every
    two = CheckpointConfig(every=1, max_to_keep=2)
    assert list(kept_checkpoints(every, {"train": two})) == [
        path for path in every if "/train/2/" not in path
    ]
    planned = CheckpointConfig(every=2, max_to_keep=2)  # 9 was saved by the time
    assert list(kept_checkpoints(every, {"train": planned})) == [
        path for path in every if "/train/9/" not in path
    ]
