"""The place of a bucket's workdirs on this disk, and refusals before work."""

import fcntl
import shutil
import subprocess
import sys

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from jax._src.clusters import ClusterEnv

from job_jax import buckets, download, processes
from job_jax.buckets import BucketAccessError, local
from job_jax.buckets.store import Store, access_error, open_store
from job_jax.schema import ConfigError


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """One bucket in memory at every address, staged below tmp_path."""
    memory = MemoryFileSystem(skip_instance_cache=True)
    memory.store, memory.pseudo_dirs = {}, [""]
    monkeypatch.setenv(local.STAGING_ENV, str(tmp_path / "staging"))
    monkeypatch.setattr(local, "open_store", lambda url: Store(memory, url))
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
        monkeypatch.delenv(name, raising=False)
    yield memory
    for directory in list(local._mirrors):
        buckets.close_workdir(directory)


def commit_run(url, **files):
    directory = buckets.open_workdir(url)
    with buckets.mirror_of(directory):
        for name, text in files.items():
            (directory / name).write_text(text)
    buckets.close_workdir(directory)
    return directory


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ("s3://bucket/run", "s3://bucket/run"),
        ("gs://bucket/a/b/", "gs://bucket/a/b"),
        ("s3://bucket//a///b", "s3://bucket/a/b"),
    ],
)
def test_an_address_has_one_spelling(given, spelled):
    assert buckets.is_url(given)
    assert buckets.parse_url(given) == spelled


@pytest.mark.parametrize(
    "given", ["s3://bucket", "s3://bucket/", "az://b/run", "gs:///run", "s3://b/../run"]
)
def test_an_invalid_workdir_address_is_refused(given):
    assert buckets.is_url(given)
    with pytest.raises(ConfigError, match="write gs://bucket/run or s3://bucket/run"):
        buckets.parse_url(given)


@pytest.mark.parametrize("given", ["runs/a", "/runs/a", "s3:/bucket/run", "a@7", ""])
def test_directories_stay_directories(given):
    assert not buckets.is_url(given)
    if given:
        assert str(buckets.open_workdir(given)) == given
        assert buckets.mirror_of(buckets.open_workdir(given)) is None


def test_addresses_do_not_share_a_directory(bucket):
    urls = ("s3://b/run", "gs://b/run", "s3://b/run/run", "s3://b-run/run", "s3://b/r")
    found = {buckets.open_workdir(url) for url in urls}
    assert len(found) == len(urls)
    assert {path.name for path in found} == {"run", "r"}
    assert not any(a in b.parents for a in found for b in found)
    assert buckets.open_workdir("s3://b//run/") in found


def test_a_directory_that_is_at_the_newest_commit_is_taken_as_it_is(bucket, capsys):
    directory = commit_run("s3://b/run", config="1")
    (directory / "ahead").write_text("of the bucket: the run was killed here")
    assert buckets.open_workdir("s3://b/run") == directory
    assert (directory / "ahead").exists()
    assert capsys.readouterr().err.count("fetching") == 0


def test_a_directory_that_another_machine_has_overtaken_is_brought_up(
    bucket, monkeypatch, tmp_path, capsys
):
    directory = commit_run("s3://b/run", config="1")
    (directory / "ahead").write_text("of a commit that is not the newest")
    monkeypatch.setenv(local.STAGING_ENV, str(tmp_path / "other"))
    commit_run("s3://b/run", config="2")
    monkeypatch.setenv(local.STAGING_ENV, str(tmp_path / "staging"))
    capsys.readouterr()
    assert buckets.open_workdir("s3://b/run") == directory
    assert capsys.readouterr().err == "s3://b/run: fetching commit 2\n"
    assert (directory / "config").read_text() == "2"
    assert not (directory / "ahead").exists()


def test_a_bucket_that_was_emptied_takes_no_last_copy_along(bucket):
    directory = commit_run("s3://b/run", config="1")
    bucket.rm("/b", recursive=True)
    with pytest.raises(BucketAccessError, match=f"no commit 1, of which {directory}"):
        buckets.open_workdir("s3://b/run")
    assert (directory / "config").read_text() == "1"
    shutil.rmtree(directory)
    assert buckets.open_workdir("s3://b/run") == directory
    assert not (directory / "config").exists()


def test_another_process_of_the_machine_is_refused(bucket):
    directory = buckets.open_workdir("s3://b/run")
    lock = directory.with_name("run.lock")
    code = (
        "import fcntl, sys; "
        "fcntl.flock(open(sys.argv[1], 'w'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, lock], capture_output=True, check=False
    )
    assert b"BlockingIOError" in ended.stderr
    buckets.close_workdir(directory)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(BucketAccessError, match="s3://b/run: another process on"):
            buckets.open_workdir("s3://b/run")


@pytest.fixture
def process_1_of_2(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")


def test_several_processes_are_refused_on_s3_before_any_request(
    bucket, process_1_of_2, monkeypatch
):
    monkeypatch.setattr(local, "open_store", None)
    with pytest.raises(BucketAccessError, match="give an address on gs://, or a dir"):
        buckets.open_workdir("s3://b/run")


def test_each_of_several_processes_has_its_own_directory(
    bucket, process_1_of_2, monkeypatch
):
    second = buckets.open_workdir("gs://b/run")
    monkeypatch.setenv("JAX_PROCESS_ID", "0")
    first = buckets.open_workdir("gs://b/run")
    assert (second.parts[-3], first.parts[-3]) == ("work-1", "work-0")
    assert isinstance(buckets.mirror_of(first), buckets.JointMirror)
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
        monkeypatch.delenv(name)
    alone = buckets.open_workdir("gs://b/run")
    assert alone.parts[-3] == "work"
    assert not isinstance(buckets.mirror_of(alone), buckets.JointMirror)


def test_no_process_resumes_from_files_only_on_its_disk(bucket, process_1_of_2, capsys):
    commit_run("gs://b/run", config="1")
    directory = buckets.open_workdir("gs://b/run")
    (directory / "ahead").write_text("of the bucket: the run was killed here")
    buckets.close_workdir(directory)
    assert buckets.open_workdir("gs://b/run") == directory
    assert not (directory / "ahead").exists()


def test_a_copy_is_separate_and_does_not_change_the_run(bucket):
    directory = commit_run("s3://b/run", config="1", metrics="2")
    held = dict(bucket.store)
    copy = buckets.fetch_copy("s3://b/run", lambda commit: ["config"])
    assert copy != directory
    assert [path.name for path in copy.glob("[!.]*")] == ["config"]
    assert bucket.store == held
    assert buckets.mirror_of(copy) is None


def test_a_copy_is_fetched_by_one_process_at_a_time(bucket, monkeypatch):
    commit_run("s3://b/run", config="1")

    def fetch(store, directory, select):
        with (
            directory.with_name("run.lock").open("w") as other,
            pytest.raises(BlockingIOError),
        ):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return original(store, directory, select)

    original = local.fetch
    monkeypatch.setattr(local, "fetch", fetch)
    for _ in range(2):
        copy = buckets.fetch_copy("s3://b/run", lambda commit: commit.files)
        assert (copy / "config").read_text() == "1"


def test_a_copy_of_nothing_is_refused(bucket):
    with pytest.raises(BucketAccessError, match="s3://b/none holds no run"):
        buckets.fetch_copy("s3://b/none", lambda commit: commit.files)


@pytest.mark.parametrize(
    ("error", "mend"),
    [
        (
            FileNotFoundError("no such bucket"),
            "make the bucket s3://b, or name another",
        ),
        (PermissionError("403"), "the right to list, read, write and delete in s3://b"),
        (ConnectionError("refused"), "set AWS_ACCESS_KEY_ID and"),
    ],
)
def test_an_unusable_bucket_is_one_line_with_the_fix(bucket, monkeypatch, error, mend):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(bucket, "find", fail)
    with pytest.raises(BucketAccessError) as told:
        buckets.open_workdir("s3://b/run")
    assert mend in str(told.value)
    assert str(error) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_bucket_without_the_right_to_write_is_refused_as_the_run_claims_it(
    bucket, monkeypatch
):
    def fail(*args, **kwargs):
        raise PermissionError("AccessDenied")

    mirror = buckets.mirror_of(buckets.open_workdir("s3://b/run"))
    monkeypatch.setattr(bucket, "pipe_file", fail)
    with pytest.raises(BucketAccessError, match="give this account the right to"):
        mirror.claim()


@pytest.mark.parametrize(("scheme", "extra"), [("s3", "s3"), ("gs", "gcs")])
def test_a_missing_library_is_reported_with_its_extra(monkeypatch, scheme, extra):
    library = {"s3": "s3fs", "gs": "gcsfs"}[scheme]
    monkeypatch.setitem(sys.modules, library, None)
    for name in ("s3", "gs"):
        known = sys.modules["fsspec.registry"]._registry
        monkeypatch.delitem(known, name, raising=False)
    with pytest.raises(BucketAccessError) as told:
        open_store(f"{scheme}://b/run")
    assert f"pip install 'rlvr_jax[{extra}]'" in str(told.value)


def test_credential_errors_of_gcs_are_quoted():
    assert "gcloud auth" in str(access_error("gs://b/run", ValueError("anonymous")))


def test_a_config_of_a_bucket_is_read_and_nothing_else(bucket):
    commit_run("s3://b/run", **{"config.json": "{}"})
    assert buckets.local_record("s3://b/run/config.json").read_text() == "{}"
    with pytest.raises(ConfigError, match="only a run's config"):
        buckets.local_record("s3://b/run/recipe.py")


def test_a_download_is_an_ordinary_workdir(bucket, tmp_path, capsys):
    commit_run("s3://b/run", **{"config.json": "{}", "metrics": "1"})
    out = tmp_path / "out"
    assert download.main(["s3://b/run", str(out)]) == 0
    assert {path.name for path in out.rglob("*")} == {"config.json", "metrics"}
    assert capsys.readouterr().out == f"{out}: commit 1, 2 files\n"
    assert download.main(["s3://b/run", str(out)]) == 2
    assert f"error: {out} is not empty" in capsys.readouterr().err


def test_a_process_knows_its_number_in_a_cluster_before_jax_starts(monkeypatch):
    class Cluster(ClusterEnv):
        opt_in_only_method = True  # not found by itself

        @classmethod
        def is_env_present(cls):
            return True

        @classmethod
        def get_process_count(cls):
            return 4

        @classmethod
        def get_process_id(cls):
            return 3

    ClusterEnv._cluster_types.remove(Cluster)
    for name in processes.ENV_VARS:
        monkeypatch.delenv(name, raising=False)
    Cluster.opt_in_only_method = False
    monkeypatch.setattr(ClusterEnv, "_cluster_types", [Cluster])
    assert (processes.asks_for_several(), processes.expected_index()) == (True, 3)
    monkeypatch.setattr(Cluster, "get_process_count", lambda: 1)
    assert (processes.asks_for_several(), processes.expected_index()) == (False, 0)
