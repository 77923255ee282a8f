"""Recipes load, and are called what their file is called."""

import pathlib

import pytest

from job_jax.command import load_config
from rlvr_jax.config import Config

_RECIPES = sorted((pathlib.Path(__file__).parents[1] / "configs").glob("*.py"))


@pytest.mark.parametrize("path", _RECIPES, ids=lambda path: path.stem)
def test_every_recipe_loads_under_its_own_name(path):
    assert load_config(path, Config).name == path.stem
