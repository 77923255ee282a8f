"""One folder of compiled programs, and one uninterrupted run, for all of them."""

import pytest
from command import Command, tiny


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(cache=tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def whole(command: Command, tmp_path_factory: pytest.TempPathFactory):
    """The workdir of a run that nobody disturbed."""
    workdir = tmp_path_factory.mktemp("whole")
    ended = command.run(*tiny(workdir))
    assert ended.code == 0, ended.err
    return workdir
