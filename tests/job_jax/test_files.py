"""A file is replaced whole, or stays as it was."""

import pytest

from job_jax.files import fingerprint, write_atomically


def test_the_new_file_appears_at_the_end(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("old")
    with write_atomically(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_alone(tmp_path):
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
def test_a_fingerprint_tells_size_and_what_is_sampled(tmp_path, size):
    path = tmp_path / "weights"
    path.write_bytes(bytes(size))
    first = fingerprint(path)
    assert fingerprint(path) == first
    path.write_bytes(bytes(size) + b"\0")
    assert fingerprint(path) != first
    if size:  # its beginning, and most of a larger file, though not each byte
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
