"""Every launcher is tested in a world where no cloud can be reached."""

import os
import shutil

import pytest
from launchers import stand_in

# All that the launchers find beside stand-ins.
_TOOLS = ("awk", "bash", "cat", "date", "dirname", "grep", "head", "id", "mktemp")
_TOOLS += ("rm", "sed")


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A PATH of stand-ins, which do what is written to NAME.ARGUMENT, and few tools."""
    for tool in _TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool))
    for name in ("STAGE", "HOME", "PATH", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    for name in ("git", "hostname", "sleep", "sudo"):
        stand_in(tmp_path, name)
    return tmp_path
