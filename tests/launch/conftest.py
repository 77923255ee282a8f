"""Every launcher is tested without access to any cloud."""

import os
import shutil

import pytest

from tests.support.launchers import stand_in

# All programs that the launchers find, except fakes.
_TOOLS = ("awk", "bash", "cat", "date", "dirname", "grep", "head", "id", "mktemp")
_TOOLS += ("rm", "sed")


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A PATH with a few tools and fakes, which do what NAME.ARGUMENT says."""
    for tool in _TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    for name in ("STAGE", "HOME", "PATH", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    for name in ("git", "hostname", "sleep", "sudo"):
        stand_in(tmp_path, name)
    return tmp_path
