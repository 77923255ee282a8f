"""A file is replaced whole, or stays as it was."""

import pytest

from job_jax.files import write_atomically


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
