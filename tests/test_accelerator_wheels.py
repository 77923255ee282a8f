"""The list of packages that the accelerator's benchmark brings along."""

import contextlib
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import benchmarks.accelerator

_ROOT = Path(__file__).parents[1]
_LIST = _ROOT / "benchmarks/accelerator/requirements.txt"
# Imports the benchmark's modules, and prints the distributions they come from.
_IMPORTS = """
import importlib, json, pkgutil, sys
from importlib import metadata
import benchmarks.accelerator as package
for module in pkgutil.iter_modules(package.__path__):
    importlib.import_module(f"benchmarks.accelerator.{module.name}")
owners = metadata.packages_distributions()
tops = {name.partition(".")[0] for name in sys.modules}
print(json.dumps(sorted({owner for top in tops for owner in owners.get(top, ())})))
"""
# JAX uses filelock if it is installed; setuptools hooks into every process.
_OPTIONAL = {"filelock", "setuptools"}


def _listed():
    lines = [line.partition("#")[0].strip() for line in _LIST.read_text().splitlines()]
    found = map(Requirement, filter(None, lines))
    return {canonicalize_name(each.name): each for each in found}


def _needs(name):
    """Returns the requirements of a distribution here, without its extras."""
    found = map(Requirement, metadata.requires(name) or ())
    return {
        canonicalize_name(each.name)
        for each in found
        if each.marker is None or each.marker.evaluate({"extra": ""})
    }


def _of_extras():
    """Returns packages of our extras: some listed packages import them if present."""
    ours = map(Requirement, metadata.requires("rlvr_jax") or ())
    ahead = [each for each in ours if each.marker is not None]  # of an extra
    found = set()
    while ahead:
        each = ahead.pop()
        extras = ("", *each.extras)
        if (each.name, extras) in found:
            continue
        found.add((each.name, extras))
        with contextlib.suppress(metadata.PackageNotFoundError):
            ahead += [
                more
                for more in map(Requirement, metadata.requires(each.name) or ())
                if more.marker is None
                or any(more.marker.evaluate({"extra": extra}) for extra in extras)
            ]
    return {canonicalize_name(name) for name, _ in found} - _listed().keys()


def _of_jax():
    return {"jax", "jaxlib"} | _needs("jax") | _needs("jaxlib")


def test_the_list_is_closed_under_dependencies():
    """Every package that a listed one requires is listed, or comes with JAX."""
    listed = _listed()
    for name in listed:
        assert _needs(name) <= listed.keys() | _of_jax(), name


def test_bounds_equal_the_projects_bounds():
    ours = {
        canonicalize_name(each.name): each.specifier
        for each in map(Requirement, metadata.requires("rlvr_jax") or ())
        if each.marker is None
    }
    for name, listed in _listed().items():
        assert ours.get(name, listed.specifier) == listed.specifier, name


def test_the_list_is_what_the_benchmark_imports():
    assert benchmarks.accelerator.__path__
    printed = subprocess.run(
        [sys.executable, "-c", _IMPORTS],
        cwd=_ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    imported = {canonicalize_name(name) for name in json.loads(printed)}
    imported -= _of_jax() | _of_extras() | _OPTIONAL | {canonicalize_name("rlvr_jax")}
    listed = _listed().keys()
    assert imported <= listed
    needed = set.union({"pytest"}, *map(_needs, listed))
    assert listed <= imported | needed
