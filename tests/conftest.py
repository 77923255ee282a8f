"""Strict JAX for every test: 8 virtual CPU devices, no implicit promotion.

slow.txt lists the tests that run only with `launch/test.sh --all`. Fast files run
first, to show a failure early. The files in heavy.txt run last, the longest of them
first. Otherwise a worker could start a long file when the others are done.
"""

import contextlib
import fcntl
import gc
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator

import jax
import pytest

from job_jax.config import MeshConfig
from job_jax.mesh import configure_cpu
from job_jax.steps import STOP_SIGNALS

gc.disable()  # see `forgotten_programs`
configure_cpu(MeshConfig(cpu_devices=8))
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

_TESTS = pathlib.Path(__file__).parent
# Scripts and data, without doctests.
collect_ignore_glob = ["golden/make_*.py", "mutants*", "*/mutants*.py"]


def _lines(name: str) -> list[str]:
    text = (_TESTS / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Marks tests of slow.txt, refuses lines that match no test, sorts by weight.

    A line is the start of a test's name: a file, a test or one of its parameters.
    """
    slow, used = tuple(f"tests/{line}" for line in _lines("slow.txt")), set()
    for item in items:
        if item.nodeid.startswith(slow):
            item.add_marker(pytest.mark.slow)
            used |= {line for line in slow if item.nodeid.startswith(line)}
    collected = {item.nodeid.split("::")[0] for item in items}
    whole = {
        line for line in slow if line.split("::")[0] in collected and "::" not in line
    }
    unknown = [
        line
        for line in slow
        if line.split("::")[0] in collected and line not in used | whole
    ]
    # A test requested by name runs without its neighbors, so lines may match none.
    if unknown and not any("::" in arg for arg in config.args):
        raise pytest.UsageError(f"tests/slow.txt: no tests named {unknown}")
    heavy = {f"tests/{line}": n for n, line in enumerate(_lines("heavy.txt"))}
    items.sort(key=lambda item: heavy.get(item.nodeid.split("::")[0], -1))


def pytest_collection_finish() -> None:
    """Spares the collector what lives to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs() -> Iterator[None]:
    """Frees the memory of a module's programs, or workers would grow to 5 GiB.

    Tracing makes so many objects that the collector would otherwise take 7 % of the
    time. So it only runs here, after modules that made many. After each it took 4 %.
    """
    yield
    jax.clear_caches()
    new_objects, *_ = gc.get_count()
    if new_objects > 500_000:
        gc.collect()


@pytest.fixture(scope="module", autouse=True)
def forgotten_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forgets modules that tests wrote, or the next file would find them."""
    yield
    base = str(tmp_path_factory.getbasetemp())
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(base):
            del sys.modules[name]


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """Restores the signal handlers that a command in this process replaces."""
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str, Callable[[pathlib.Path], None]], pathlib.Path]:
    """Returns a function that makes a folder once for the workers of all processes.

    The first worker makes it while the others wait.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make_once(name: str, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
        folder, done = shared / name, shared / f"{name}.done"
        with _locked(shared / f"{name}.lock"):
            if not done.exists():
                folder.mkdir()  # an earlier failure fails again
                make(folder)
                done.touch()
        return folder

    return make_once


@contextlib.contextmanager
def _locked(path: pathlib.Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
