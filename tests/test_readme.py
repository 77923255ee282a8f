"""The front door: the README's examples, tree and links, the table of contents."""

import doctest
import importlib
import operator
import pathlib
import re
import subprocess
import sys

import pytest

import rlvr_jax

_ROOT = pathlib.Path(__file__).parents[1]
_PAGES = sorted([*_ROOT.glob("*.md"), *(_ROOT / "docs").glob("*.md")])


def test_every_example_of_the_readme_prints_what_it_says():
    failed, attempted = doctest.testfile(
        str(_ROOT / "README.md"), module_relative=False
    )
    assert attempted > 15
    assert failed == 0


def test_every_path_of_the_readmes_tree_exists():
    text = (_ROOT / "README.md").read_text().split("## The tree\n```text\n")[1]
    folder, named = pathlib.Path(), []
    for line in text.split("```")[0].splitlines():
        name = line.split()[0]
        if line.startswith(" "):
            named.append(folder / name)
        else:
            folder = pathlib.Path(name)
            named.append(folder)
    assert len(named) > 15
    assert [str(path) for path in named if not (_ROOT / path).exists()] == []


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", rlvr_jax.__all__)
def test_the_table_of_contents_names_modules_that_import(name):
    module = importlib.import_module(f"rlvr_jax.{name}")
    assert operator.attrgetter(name)(rlvr_jax) is module


def test_importing_the_package_imports_no_jax():
    code = "import sys, rlvr_jax; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
