"""One folder of compiled programs, and one uninterrupted run, for all workers."""

import os
import pathlib

import pytest

from tests.support.command import Command, tiny


@pytest.fixture(scope="session")
def command(once) -> Command:
    """The command with the compiled programs of the gate, or else a new folder."""
    kept = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    return Command(
        cache=pathlib.Path(kept) if kept else once("programs", lambda _: None)
    )


@pytest.fixture(scope="session")
def whole(command: Command, once) -> pathlib.Path:
    """The workdir of an undisturbed run."""

    def make(workdir: pathlib.Path) -> None:
        ended = command.run(*tiny(workdir))
        assert ended.code == 0, ended.err

    return once("whole", make)
