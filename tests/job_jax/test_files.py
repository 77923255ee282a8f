"""A file is replaced completely, or stays as it was."""

import shutil
import subprocess

import pytest

from job_jax.files import (
    DamagedFileError,
    check_digest,
    fingerprint,
    remove_with_digest,
    write_atomically,
    write_with_digest,
)


def test_the_new_file_appears_at_the_end(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with write_atomically(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_the_new_file_has_usual_permissions_whatever_its_writer_chooses(tmp_path):
    (tmp_path / "usual").touch()
    with write_atomically(tmp_path / "a") as partial:
        partial.write_text("new")
        partial.chmod(0o600)
    usual = (tmp_path / "usual").stat().st_mode
    assert (tmp_path / "a").stat().st_mode == usual != 0o100600


def test_a_failure_leaves_the_old_file_unchanged(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")

    def fail():
        with write_atomically(path) as partial:
            partial.write_text("ne")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("size", [0, 5, 1 << 16, (1 << 22) + 3, 9 << 20])
def test_a_fingerprint_depends_on_size_and_sampled_bytes(tmp_path, size):
    path = tmp_path / "weights"
    path.write_bytes(bytes(size))
    first = fingerprint(path)
    assert fingerprint(path) == first
    path.write_bytes(bytes(size) + b"\0")
    assert fingerprint(path) != first
    if size:  # its beginning, and most of a larger file, but not each byte
        changed = bytearray(size)
        changed[:: 1 << 14] = b"\1" * len(changed[:: 1 << 14])
        path.write_bytes(changed)
        assert fingerprint(path) != first


def test_a_file_of_up_to_four_mebibytes_is_hashed_whole(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(bytes(1 << 22))
    first = fingerprint(path)
    for place in (0, 65_535, 65_536, 1 << 21, (1 << 22) - 1):
        changed = bytearray(1 << 22)
        changed[place] = 1
        path.write_bytes(changed)
        assert fingerprint(path) != first


def test_a_digest_detects_every_flipped_bit(tmp_path):
    path = tmp_path / "a.jsonl"
    with write_with_digest(path) as partial:
        partial.write_bytes(b"abc")
    check_digest(path)
    for bit in range(24):
        content = bytearray(b"abc")
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        with pytest.raises(DamagedFileError, match=r"a\.jsonl is damaged"):
            check_digest(path)
    with write_with_digest(path) as partial:  # written again, it has a new digest
        partial.write_bytes(b"abd")
    check_digest(path)
    remove_with_digest(path)
    assert list(tmp_path.iterdir()) == []
    remove_with_digest(path)


def test_a_file_without_a_digest_is_read_as_it_is(tmp_path):
    path = tmp_path / "a"
    path.write_text("from elsewhere")
    check_digest(path)


def test_a_process_killed_behind_the_file_leaves_no_digest_of_the_one_before(
    tmp_path, monkeypatch
):
    path = tmp_path / "a"
    with write_with_digest(path) as partial:
        partial.write_text("old")

    def die(path):
        raise KeyboardInterrupt

    monkeypatch.setattr("job_jax.files.digest_of", die)

    def write():
        with write_with_digest(path) as partial:
            partial.write_text("new")

    with pytest.raises(KeyboardInterrupt):
        write()
    monkeypatch.undo()
    assert path.read_text() == "new"
    check_digest(path)


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="no sha256sum here")
def test_the_digest_is_what_sha256sum_checks(tmp_path):
    with write_with_digest(tmp_path / "a b") as partial:
        partial.write_bytes(b"\0" * 1000)
    command = ["sha256sum", "--check", "--strict", "a b.sha256"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout == b"a b: OK\n"
