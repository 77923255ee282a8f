"""The front door: the README, the pages' examples and links, the table of contents."""

import doctest
import importlib
import operator
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import rlvr_jax
from rlvr_jax.analysis.__main__ import COMMANDS
from rlvr_jax.config import Config
from tests.support.run_workdirs import make_workdir

_ROOT = pathlib.Path(__file__).parents[1]
_PAGES = sorted([*_ROOT.glob("*.md"), *(_ROOT / "docs").rglob("*.md")])


def test_every_example_of_the_library_page_prints_what_it_says():
    failed, attempted = doctest.testfile(
        str(_ROOT / "docs/use/python.md"), module_relative=False
    )
    assert attempted > 15
    assert failed == 0


def test_the_readme_is_a_screen_or_two():
    text = (_ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 80
    assert len(text.split()) <= 600


def test_the_readmes_recipe_is_a_recipe():
    code = (_ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names = {}
    exec(code, names)
    assert isinstance(names["get_config"](), Config)


def _linked(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    return {(page.parent / link).resolve() for link in links if link.endswith(".md")}


def test_every_page_is_within_two_clicks_of_the_front():
    front = _linked(_ROOT / "README.md")
    near = front | {page for each in front for page in _linked(each)}
    pages = {page.resolve() for page in (_ROOT / "docs").rglob("*.md")}
    assert {str(page) for page in pages - near} == set()


def test_one_page_names_every_recipe_and_command():
    text = (_ROOT / "docs/use/commands.md").read_text()
    recipes = [f"configs/{path.name}" for path in (_ROOT / "configs").glob("*.py")]
    unnamed = [name for name in recipes if name not in text and "tsae" not in name]
    assert unnamed == []
    assert [name for name in COMMANDS if f"analysis {name}" not in text] == []


@pytest.mark.parametrize(
    "page", _PAGES, ids=lambda page: page.relative_to(_ROOT).as_posix()
)
def test_every_relative_link_leads_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", sorted({*rlvr_jax.__all__} - {*rlvr_jax._FUNCTIONS}))
def test_the_table_of_contents_names_modules_that_import(name):
    module = importlib.import_module(f"rlvr_jax.{name}")
    assert operator.attrgetter(name)(rlvr_jax) is module


def test_completion_offers_the_table_of_contents_and_imports_nothing():
    code = (
        "import sys, rlvr_jax; names = dir(rlvr_jax); "
        "sys.exit(names != sorted([*rlvr_jax.__all__, '__version__']) "
        "or any(name.startswith('rlvr_jax.') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("page", ["use/python.md", "lab/finite_field.md"])
def test_blocks_of_python_need_only_the_package(page, tmp_path, monkeypatch):
    """They run in an empty folder, where `train` is replaced by a finished run."""

    def train(config, workdir):
        make_workdir(pathlib.Path(workdir))
        scores = {"pass@k": {"1": config.seed}}
        return {"eval": {"after": scores}}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rlvr_jax.pipeline.train", train)
    monkeypatch.setitem(sys.modules, "configs", None)  # is only in a clone
    blocks = re.findall(
        r"```python\n(.*?)```", (_ROOT / "docs" / page).read_text(), re.S
    )
    whole = [block for block in blocks if not block.startswith(">>>")]
    assert whole
    for block in whole:
        exec(block, {})


@pytest.mark.parametrize(
    ("modules", "libraries"),
    [
        (["rlvr_jax", "rlvr_jax.config", "rlvr_jax.verify", "sae_jax"], {"jax"}),
        (["rlvr_jax.run.cli"], {"sae_jax.sae"}),
        (["rlvr_jax.stages.train"], {"sae_jax.sae", "rlvr_jax.tasks", "scipy.stats"}),
    ],
)
def test_modules_do_not_import_what_only_others_need(modules, libraries):
    """One process for several modules, because starting it takes most of the time."""
    code = f"import sys, {', '.join(modules)}; print(*{libraries} & set(sys.modules))"
    ended = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert not ended.stdout.split()


def test_the_layers_of_the_page_match_the_contracts():
    page = (_ROOT / "docs/lab/architecture.md").read_text()
    block = page.split("## Layers\n")[1].split("```")[1].removeprefix("text\n")
    written = {
        name: [line.strip() for line in lines]
        for name, *lines in (part.splitlines() for part in block.strip().split("\n\n"))
    }
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layered = {c["containers"][0]: c["layers"] for c in contracts if "containers" in c}
    assert written == {name: layered[name] for name in written}
    assert set(written) == {"rlvr_jax", "sae_jax", "job_jax"}
