"""--config=NAME finds a recipe of the package, from a checkout and from a wheel."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from job_jax.recipes import find_config, recipe_names, suggest_config

ROOT = pathlib.Path(__file__).parents[2]
_SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
_FOLDERS = ("job_jax", "rlvr_jax", "sae_jax", "configs")


@pytest.mark.parametrize("name", ["quickstart", "tsae_paper", "paper/inverted_u"])
def test_a_name_is_the_recipe_of_the_package(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)  # as after --workdir=quickstart
    assert find_config(name) == ROOT / f"configs/{name}.py"


@pytest.mark.parametrize("text", ["quickstart.py", "configs/quickstart.py", "mine.py"])
def test_a_path_is_a_path(text):
    assert find_config(text) == pathlib.Path(text)


def test_every_recipe_has_a_name():
    files = {*(ROOT / "configs").rglob("*.py")}
    assert {find_config(name) for name in recipe_names()} == files


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (
            "configs/quickstart.py",
            "; the package's own recipe is --config=quickstart",
        ),
        ("quickstart.py", "; the package's own recipe is --config=quickstart"),
        ("quickstrt", "; did you mean 'quickstart'?"),
        ("papers/luck", "; did you mean 'paper/luck'?"),
        ("mine.py", ""),
    ],
)
def test_the_error_about_a_missing_file_names_the_recipe(
    text, hint, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "job_jax.recipes.recipe_names", lambda: ["paper/luck", "quickstart", "smoke"]
    )
    assert suggest_config(pathlib.Path(text)) == hint


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel installs, and nothing of the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in _SOURCES:
        shutil.copy(ROOT / name, source)
    for name in _FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, ignore=ignored)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    site = folder / "site"
    _run(*pip, "wheel", "--no-deps", f"--wheel-dir={folder}", source)
    (wheel,) = folder.glob("*.whl")
    _run(*pip, "install", "--no-deps", f"--target={site}", wheel)
    shutil.rmtree(source)
    return site


def test_the_wheel_trains_and_reports_without_a_checkout(installed, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(installed)}
    where = "import rlvr_jax; print(rlvr_jax.__version__, rlvr_jax.__file__)"
    command = (sys.executable, "-c", where)
    assert _run(*command, cwd=tmp_path, env=environment).split() == [
        "0.1.0",
        str(installed / "rlvr_jax/__init__.py"),
    ]
    command = (sys.executable, "-m", "rlvr_jax.main", "--config=smoke", "--workdir=run")
    _run(*command, cwd=tmp_path, env=environment)
    assert (tmp_path / "run/report/index.html").is_file()
    command = (sys.executable, "-m", "sae_jax.train", "--help")
    assert "--config.log.every" in _run(*command, cwd=tmp_path, env=environment)


def _run(*command, **settings):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **settings
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
