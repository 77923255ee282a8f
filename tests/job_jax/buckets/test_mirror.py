"""A workdir in a bucket is always a complete state that its run has had."""

import json
import os
import shutil
import threading

import pytest

from job_jax.buckets import BucketAccessError, BucketError, Mirror, TakenOverError
from job_jax.buckets.commits import read_newest
from job_jax.buckets.fetch import LocalState, fetch, fetch_commit
from job_jax.buckets.store import Store
from tests.support.memory_bucket import Bucket, read, write


@pytest.fixture
def bucket():
    return Bucket()


def store_of(bucket):
    return Store(bucket, "s3://bucket/run")


def open_mirror(bucket, directory):
    store = store_of(bucket)
    commit = read_newest(store)
    fetch_commit(store, commit, directory, commit.files)
    return Mirror(store, directory)


def in_bucket(bucket, tmp_path):
    """Returns the files that a fetch of the bucket finds now."""
    shutil.rmtree(tmp_path / "reader", ignore_errors=True)
    fetch(store_of(bucket), tmp_path / "reader")
    return read(tmp_path / "reader")


def first_run(bucket, tmp_path):
    """Returns the files of a run that has committed two checkpoints."""
    with open_mirror(bucket, tmp_path / "first") as mirror:
        mirror.claim()
        write(tmp_path / "first", config_json="{}", metrics="1\n")
        write(tmp_path / "first", checkpoints__train__2__a="two", rollouts__0="r0")
    return read(tmp_path / "first")


def second_run(bucket, directory):
    """Changes, adds and removes files of the first run, and commits that."""
    with open_mirror(bucket, directory) as mirror:
        mirror.claim()
        shutil.rmtree(directory / "checkpoints/train/2", ignore_errors=True)
        write(directory, metrics="1\n2\n", checkpoints__train__4__a="four")
        mirror.publish_checkpoint()
        mirror.wait()
        write(directory, metrics="1\n2\n3\n", rollouts__1="r1")
    return read(directory)


def test_written_files_are_read_back(bucket, tmp_path):
    one = first_run(bucket, tmp_path)
    assert in_bucket(bucket, tmp_path) == one
    assert set(one) == {"config.json", "metrics", "checkpoints/train/2/a", "rollouts/0"}
    two = second_run(bucket, tmp_path / "second")
    assert in_bucket(bucket, tmp_path) == two
    assert two["metrics"] == "1\n2\n3\n"
    assert "checkpoints/train/2/a" not in two


def test_a_bucket_holds_one_commit_and_its_files(bucket, tmp_path):
    first_run(bucket, tmp_path)
    second_run(bucket, tmp_path / "second")
    commit = read_newest(store_of(bucket))
    named = {f"/bucket/run/{each.object}" for each in commit.files.values()}
    (others,) = set(bucket.find("/bucket")) - named
    assert others == f"/bucket/run/commits/{commit.number:08d}.json"


def test_a_failure_at_any_operation_leaves_one_commit_or_the_next(tmp_path):
    whole = Bucket()
    first_run(whole, tmp_path / "0")
    begun = whole.num_operations
    second_run(whole, tmp_path / "0/second")
    seen = set()
    for k in range(begun + 1, whole.num_operations + 1):
        bucket, folder = Bucket(), tmp_path / str(k)
        one = first_run(bucket, folder)
        bucket.fails_at = k
        try:
            two = second_run(bucket, folder / "second")
        except (BucketError, BucketAccessError):
            two = None
        bucket.fails_at = None
        found = in_bucket(bucket, folder)
        metrics, steps = found["metrics"], [p for p in found if "checkpoints" in p]
        seen.add(metrics)
        if metrics == "1\n":
            assert found == one
        elif metrics == "1\n2\n":
            assert steps == ["checkpoints/train/4/a"]
            assert "rollouts/1" not in found
        else:
            assert found["rollouts/1"] == "r1"
        assert two is None or found == two
        # The same command resumes on another machine, with the same result.
        assert second_run(bucket, folder / "third") == read(tmp_path / "0/second")
        assert in_bucket(bucket, folder) == read(tmp_path / "0/second")
        num_files = len(in_bucket(bucket, folder))
        assert len(bucket.find("/bucket")) == 1 + num_files
    assert seen == {"1\n", "1\n2\n", "1\n2\n3\n"}


def test_a_failed_upload_leaves_the_directory_and_names_it(bucket, tmp_path):
    mirror = open_mirror(bucket, tmp_path / "run")
    mirror.claim()
    write(tmp_path / "run", metrics="1\n")
    bucket.fails_at = 0
    with pytest.raises(BucketError) as told, mirror:
        pass
    line = str(told.value)
    assert "cannot write objects/00000002-" in line
    assert "/metrics in s3://bucket/run (ConnectionError: the network is gone)" in line
    assert f"all work so far is in {tmp_path / 'run'}" in line
    bucket.fails_at = None
    # By the state nothing was lost, so the next start fetches nothing.
    assert LocalState(tmp_path / "run").commit.number == 1
    with Mirror(store_of(bucket), tmp_path / "run"):
        pass
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n"}


def test_the_jobs_own_error_outranks_a_failed_upload(bucket, tmp_path, capsys):
    mirror = open_mirror(bucket, tmp_path / "run")
    write(tmp_path / "run", metrics="1\n")
    bucket.fails_at = 0
    with pytest.raises(ZeroDivisionError), mirror:
        _ = 1 / 0
    assert capsys.readouterr().err.startswith("bucket: cannot write objects/")


def test_a_job_that_fails_leaves_all_that_it_has_written(bucket, tmp_path):
    mirror = open_mirror(bucket, tmp_path / "run")
    write(tmp_path / "run", metrics="1\n")
    with pytest.raises(ZeroDivisionError), mirror:
        _ = 1 / 0
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n"}


def test_the_later_of_two_runs_continues(bucket, tmp_path):
    first = open_mirror(bucket, tmp_path / "first")
    first.claim()
    write(tmp_path / "first", metrics="1\n")
    first.publish()
    first.wait()
    later = open_mirror(bucket, tmp_path / "later")
    later.claim()
    write(tmp_path / "first", metrics="1\n2\n")
    first.publish()
    with pytest.raises(TakenOverError, match=r"taken over by another run \(process "):
        first.wait()
    write(tmp_path / "later", metrics="1\nother\n")
    with later:
        pass
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\nother\n"}
    with first:  # tries no more
        write(tmp_path / "first", metrics="1\n2\n3\n")
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\nother\n"}


@pytest.mark.parametrize("commits", [1, 2])
def test_a_number_that_was_used_and_removed_is_not_used_again(
    bucket, tmp_path, commits
):
    sleeper = open_mirror(bucket, tmp_path / "sleeper")
    other = open_mirror(bucket, tmp_path / "other")
    for number in range(commits):
        write(tmp_path / "other", metrics=str(number))
        other.publish()
        other.wait()
    held = in_bucket(bucket, tmp_path)
    write(tmp_path / "sleeper", metrics="stale")
    sleeper.publish()
    with pytest.raises(TakenOverError):
        sleeper.wait()
    assert in_bucket(bucket, tmp_path) == held
    assert read_newest(store_of(bucket)).number == commits


def test_a_commit_whose_answer_was_lost_is_ones_own(bucket, tmp_path, monkeypatch):
    """The library asks again, and finds the object that its first request made."""
    mirror = open_mirror(bucket, tmp_path / "run")
    create = mirror._store.create

    def lose_the_answer(name, data):
        create(name, data)
        create(name, data)

    monkeypatch.setattr(mirror._store, "create", lose_the_answer)
    write(tmp_path / "run", metrics="1\n")
    with mirror:
        pass
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n"}


def test_a_file_that_is_removed_while_it_is_copied_stays_out(bucket, tmp_path):
    run = tmp_path / "run"
    with open_mirror(bucket, run) as mirror:
        write(run, metrics="1\n", checkpoints__train__digests__2="d")
        listed = mirror._mirrored_files()
        (run / "checkpoints/train/digests/2").unlink()
        mirror._mirrored_files = lambda: listed
        mirror.publish()
        mirror.wait()
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n"}


def test_a_snapshot_keeps_the_files_of_its_moment(bucket, tmp_path):
    run = tmp_path / "run"
    with open_mirror(bucket, run) as mirror:
        write(run, metrics="1\n", checkpoints__train__2__a="two")
        gate, commit = threading.Event(), mirror._commit
        mirror._commit = lambda snapshot: gate.wait() and commit(snapshot)
        mirror.publish()
        with (run / "metrics").open("a") as file:
            file.write("2\n")
        shutil.rmtree(run / "checkpoints/train/2")
        gate.set()
        mirror.wait()
        mirror._commit = commit
        assert in_bucket(bucket, tmp_path) == {
            "metrics": "1\n",
            "checkpoints/train/2/a": "two",
        }
    assert in_bucket(bucket, tmp_path) == {"metrics": "1\n2\n"}


def test_only_what_changed_is_uploaded_and_nothing_makes_no_commit(bucket, tmp_path):
    first_run(bucket, tmp_path)
    before = read_newest(store_of(bucket))
    with open_mirror(bucket, tmp_path / "other") as mirror:
        pass
    assert read_newest(store_of(bucket)) == before
    with Mirror(store_of(bucket), tmp_path / "other") as mirror:
        write(tmp_path / "other", metrics="1\n2\n")
        os.utime(tmp_path / "other/rollouts/0")  # touched, not changed
    after = read_newest(store_of(bucket))
    assert after.number == before.number + 1
    moved = {p for p in after.files if after.files[p].object != before.files[p].object}
    assert moved == {"metrics"}
    assert mirror.commit == after


def test_files_being_written_stay_out(bucket, tmp_path):
    run = tmp_path / "run"
    with open_mirror(bucket, run):
        write(run, a="a", rollouts__x="x")
        for name in (".seen", "b.partial", "c/3.orbax-checkpoint-tmp/d", ".own/e"):
            write(run, **{name: "unfinished"})
    assert in_bucket(bucket, tmp_path) == {"a": "a", "rollouts/x": "x"}


def test_bytes_that_somebody_changed_are_refused(bucket, tmp_path):
    first_run(bucket, tmp_path)
    stored = read_newest(store_of(bucket)).files["metrics"]
    bucket.pipe_file(f"/bucket/run/{stored.object}", b"7\n")
    with pytest.raises(BucketError, match="metrics in s3://bucket/run is damaged"):
        in_bucket(bucket, tmp_path)


def test_a_removed_object_is_reported(bucket, tmp_path):
    first_run(bucket, tmp_path)
    stored = read_newest(store_of(bucket)).files["metrics"]
    bucket.rm_file(f"/bucket/run/{stored.object}")
    with pytest.raises(BucketError, match="s3://bucket/run is damaged: commit 2 names"):
        in_bucket(bucket, tmp_path)


def test_a_reader_gets_the_next_commit_where_one_is_made_meanwhile(bucket, tmp_path):
    first_run(bucket, tmp_path)
    seen = []

    def select(commit):
        seen.append(commit.number)
        if len(seen) == 1:
            second_run(bucket, tmp_path / "second")
        return commit.files

    commit = fetch(store_of(bucket), tmp_path / "reader", select)
    assert read(tmp_path / "reader") == read(tmp_path / "second")
    assert seen[0] < seen[-1] == commit.number


def test_a_part_is_fetched_and_the_files_of_another_commit_go(bucket, tmp_path):
    first_run(bucket, tmp_path)
    reader = tmp_path / "reader"
    fetch(store_of(bucket), reader, lambda commit: ["checkpoints/train/2/a", "metrics"])
    assert read(reader) == {"checkpoints/train/2/a": "two", "metrics": "1\n"}
    write(reader, report__index="made here")
    second_run(bucket, tmp_path / "second")
    fetch(store_of(bucket), reader, lambda commit: ["metrics"])
    assert read(reader) == {"metrics": "1\n2\n3\n"}
    assert not (reader / "checkpoints").exists()  # an empty step would look complete


def test_files_of_no_commit_may_stay_and_those_of_the_last_one_go(bucket, tmp_path):
    reader = tmp_path / "reader"
    first_run(bucket, tmp_path)
    fetch(store_of(bucket), reader, keeps_unknown=True)
    write(reader, report__index="made here")
    committed = second_run(bucket, tmp_path / "second")
    fetch(store_of(bucket), reader, keeps_unknown=True)
    assert "checkpoints/train/2/a" not in committed
    assert read(reader) == committed | {"report/index": "made here"}


def test_a_fetch_that_was_killed_is_trusted_in_nothing(bucket, tmp_path):
    first_run(bucket, tmp_path)
    commit = read_newest(store_of(bucket))
    run = tmp_path / "run"
    fetch_commit(store_of(bucket), commit, run, commit.files)
    state = run / ".bucket/state.json"
    assert json.loads(state.read_text())["commit"]["number"] == commit.number
    write(run, metrics="torn")
    downloads = []
    store = store_of(bucket)
    store.download = lambda *args: downloads.append(args) or 1 / 0
    with pytest.raises(ZeroDivisionError):
        fetch_commit(store, commit, run, commit.files)
    assert len(downloads) == 1  # the others are there, by their digests
    assert not state.exists()


def test_times_of_files_come_back(bucket, tmp_path):
    with open_mirror(bucket, tmp_path / "run"):
        write(tmp_path / "run", a="a")
        os.utime(tmp_path / "run/a", ns=(5, 1_000_000_007))
    in_bucket(bucket, tmp_path)
    assert (tmp_path / "reader/a").stat().st_mtime_ns == 1_000_000_007
